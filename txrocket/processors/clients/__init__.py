# SPDX-License-Identifier: Apache-2.0
"""
Processors of clients' housekeeping: heartbeats, connections, queue locks, consumer offsets.
"""
