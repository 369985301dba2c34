# SPDX-License-Identifier: Apache-2.0
"""
A broker's rules and state: topics, groups, offsets, who is connected.

It knows nothing of request codes that come in; L{txrocket.processors} turns
requests into calls of what is here.
"""
