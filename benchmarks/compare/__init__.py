# SPDX-License-Identifier: Apache-2.0
"""
C{make bench-compare}: a broker of ours beside Apache RocketMQ's, on one machine, in one
run, under one load.
"""
