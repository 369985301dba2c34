# SPDX-License-Identifier: Apache-2.0
"""
The tables of a master on its slaves: what a master sends of them, and how a slave takes it.
"""
