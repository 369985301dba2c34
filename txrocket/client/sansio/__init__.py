# SPDX-License-Identifier: Apache-2.0
"""
The rules that every client follows, with a reactor or without: pure functions and values.
"""
