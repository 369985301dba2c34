# SPDX-License-Identifier: Apache-2.0
"""
Consumers: rebalance, offsets, pulls, and what a broker asks of a consumer.
"""
