# SPDX-License-Identifier: Apache-2.0
"""
Serves producers: takes their messages into the store.

The modules::

    send              one message, by all rules
    sendtogether      many messages that need no rule
    checkedtopics     the topics whose messages need no rule
    sendchecks        whether the broker takes a message
    storedproperties  a message's properties, as the store has them
    reroute           delayed messages, halves of transactions and dead letters
    sendhooks         plugins that see messages before and after
    sendresponse      the answers
"""

from __future__ import annotations

from txrocket.processors.messages.send.send import SendProcessor

__all__ = ["SendProcessor"]
