# SPDX-License-Identifier: Apache-2.0
"""
The programs that C{twistd} and the C{txrocket} command start, and the environment of their
process: clock, threads, ports and files.
"""
