# SPDX-License-Identifier: Apache-2.0
"""
The operator's hooks, which look at every message that is sent; Java's
C{SendMessageHook}.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from txrocket.broker.interfaces import ISendHook, SendMessageContext
from txrocket.errors import TopicNotExist
from txrocket.model import TopicConfig
from txrocket.processors.messages.send.sendchecks import SendChecks
from txrocket.protocol.command import RemotingCommand

__all__ = ["SendHooks"]


class SendHooks:
    """
    All hooks of a broker.
    """

    _log = Logger()

    def __init__(self, hooks: Sequence[ISendHook], checks: SendChecks) -> None:
        self._hooks = hooks
        self._checks = checks

    def __len__(self) -> int:
        return len(self._hooks)

    def before(self, sending: SendMessageContext, config: TopicConfig) -> TopicConfig:
        """
        Let hooks look at a message.

        @param config: the topic that it is sent to.
        @return: the topic that it goes to now.
        @raise ResponseError: if a hook refuses it, or sends it where it may not go.
        """
        where = sending.topic, sending.queueId
        for hook in self._hooks:
            hook.beforeSend(sending)
        if (sending.topic, sending.queueId) == where:
            return config
        found = self._checks.topics.get(sending.topic)
        if found is None:
            raise TopicNotExist(f"topic {sending.topic}, where a hook sends this, does not exist")
        self._checks.check(found, sending.queueId)
        return found

    def after(self, sending: SendMessageContext, response: RemotingCommand) -> None:
        """
        Tell hooks of a message that was taken.
        """
        for hook in self._hooks:
            try:
                hook.afterSend(sending, response)
            except Exception:
                # The message is taken, and its sender must not be told otherwise.
                self._log.failure("{hook} failed after a message was taken", hook=hook)
