# SPDX-License-Identifier: Apache-2.0
"""
The log and the tables of a master on its slaves.
"""
