# SPDX-License-Identifier: Apache-2.0
"""
Processors of administration: broker settings, topics, groups, statistics, resets.
"""
