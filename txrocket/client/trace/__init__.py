# SPDX-License-Identifier: Apache-2.0
"""
Message traces: hooks that record them, the producer that sends them, views that read them.
"""
