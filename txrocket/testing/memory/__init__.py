# SPDX-License-Identifier: Apache-2.0
"""
A cluster in memory: its clock, network, machines and disks.
"""
