# SPDX-License-Identifier: Apache-2.0
"""
The model of replication: a master and two slaves, and all that can happen to them.
"""
