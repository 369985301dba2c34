# SPDX-License-Identifier: Apache-2.0
"""
The replication stream between a master and a slave, as bytes: RocketMQ 4.9.7's and ours.
"""
