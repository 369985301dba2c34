# SPDX-License-Identifier: Apache-2.0
"""
The name server: the route table, with its brokers and topics, and the key-value table.

Requests are not handled here: L{txrocket.processors} turns them into calls of these
classes.
"""
