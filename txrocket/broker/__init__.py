# SPDX-License-Identifier: Apache-2.0
"""
A broker's rules and state: topics, groups, offsets, connected clients.

It knows nothing of request codes that come in; L{txrocket.processors} turns
requests into calls of what is here.
"""
