# SPDX-License-Identifier: Apache-2.0
"""
C{make bench-compare}: txrocket's broker beside Apache RocketMQ's, on one machine, in one
run, under one load.  L{benchmarks.compare.trees} compares two source trees of txrocket.
"""
