# SPDX-License-Identifier: Apache-2.0
"""
A master and its slaves: who leads, how the log and the tables come to the slaves, and when a
message counts as being on one of them.
"""
