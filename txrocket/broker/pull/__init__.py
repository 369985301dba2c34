# SPDX-License-Identifier: Apache-2.0
"""
The rules of pulling: long polling, subscriptions, and how far consumer groups have come.
"""
