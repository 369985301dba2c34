# SPDX-License-Identifier: Apache-2.0
"""
The tools of the command C{txrocket} for operators, a module each.
"""
