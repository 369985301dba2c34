# SPDX-License-Identifier: Apache-2.0
"""
Message filters of subscriptions.

A subscription has an expression and the name of the expression's type.
L{txrocket.filters.expressions} looks up the type and compiles the expression to a
filter.  L{txrocket.filters.tags} and L{txrocket.filters.sql92} are RocketMQ's types.
"""
