# SPDX-License-Identifier: Apache-2.0
"""
The clients that are connected to a broker: producers, consumers, their subscriptions and the
queues that they have locked.
"""
