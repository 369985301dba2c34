# SPDX-License-Identifier: Apache-2.0
"""
A name server's rules and state: which brokers are there, which topics they have,
and settings by namespace.

It knows nothing of request codes that come in; L{txrocket.processors} turns
requests into calls of what is here.
"""
