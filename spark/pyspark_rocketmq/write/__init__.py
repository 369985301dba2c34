# SPDX-License-Identifier: Apache-2.0
"""
Writing rows as messages.
"""
