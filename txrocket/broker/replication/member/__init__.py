# SPDX-License-Identifier: Apache-2.0
"""
A broker as a member of its group: what it knows of itself, how it finds the master, and how
it takes a role and changes it.
"""
