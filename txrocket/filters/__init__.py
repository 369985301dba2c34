# SPDX-License-Identifier: Apache-2.0
"""
Which messages of a topic a group wants.

A subscription has an expression and the name of the expression's type.
L{txrocket.filters.expressions} looks the type up and makes a filter of the
expression; L{txrocket.filters.tags} and L{txrocket.filters.sql92} are RocketMQ's types.
"""
