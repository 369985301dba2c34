# SPDX-License-Identifier: Apache-2.0
"""
Damaged files: what a damaged log has lost, what must not be given twice because of it, and
what can still be served.
"""
