# SPDX-License-Identifier: Apache-2.0
"""
Transactions: half messages, op messages and the checks of undecided halves.
"""
