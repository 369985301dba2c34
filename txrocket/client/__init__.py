# SPDX-License-Identifier: Apache-2.0
"""
Clients of RocketMQ on Twisted: producers and consumers, whose Deferreds can be
awaited.
"""
