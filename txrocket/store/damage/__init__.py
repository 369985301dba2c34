# SPDX-License-Identifier: Apache-2.0
"""
Damaged files: the records that a damaged log has lost, the queue offsets that must not be
given twice because of it, and the records that can still be served.
"""
