# SPDX-License-Identifier: Apache-2.0
"""
What a blocking client is told: a value that can be pickled and compared, to be made
in one process and used in others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import attrs

from txrocket.acl import Credentials
from txrocket.blocking.tls import TLS
from txrocket.errors import ConfigError
from txrocket.protocol.addresses import nameServerAddresses
from txrocket.protocol.frames import FRAME_LIMIT
from txrocket.protocol.names import checkGroupName

__all__ = ["Settings"]


def _addresses(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return tuple(nameServerAddresses(given, os.environ.get("NAMESRV_ADDR", "")))


def _group(settings: object, attribute: attrs.Attribute[Any], value: str) -> None:
    checkGroupName(value)


def _positive(settings: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ConfigError(f"{attribute.name}={value!r}: more than 0 was expected")


def _notNegative(settings: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if value < 0:
        raise ConfigError(f"{attribute.name}={value!r}: 0 or more was expected")


@attrs.frozen
class Settings:
    """
    How to reach a cluster, and how to behave there.

    @ivar nameServers: C{host:port;host:port}, or a list of addresses; NAMESRV_ADDR
        of the environment if not given.
    @ivar timeout: how many seconds a call may take, unless it says otherwise.
    @ivar retries: how often something is tried again that may well succeed then.
    @ivar producerGroup: in whose name messages are sent.
    @ivar consumerGroup: in whose name messages are pulled.  By default that of
        RocketMQ's own tools, which every broker knows.
    @ivar compressOver: bodies of so many bytes, or more, are compressed.
    @ivar maxMessageSize: how many bytes a body, or a batch, may have.
    @ivar defaultTopicQueueNums: how many queues a topic gets at each broker if a
        message of this client brings it into being.
    @ivar tls: how to speak TLS; L{None} is plain text.
    @ivar credentials: the account that requests are signed for, if brokers ask for one.
    @ivar frameMaxLength: the longest frame in bytes, in and out.
    """

    nameServers: tuple[str, ...] = attrs.field(default=None, converter=_addresses)
    timeout: float = attrs.field(default=3.0, kw_only=True, validator=_positive)
    retries: int = attrs.field(default=2, kw_only=True, validator=_notNegative)
    producerGroup: str = attrs.field(default="DEFAULT_PRODUCER", kw_only=True, validator=_group)
    consumerGroup: str = attrs.field(default="TOOLS_CONSUMER", kw_only=True, validator=_group)
    compressOver: int = attrs.field(default=4096, kw_only=True, validator=_positive)
    maxMessageSize: int = attrs.field(default=4 << 20, kw_only=True, validator=_positive)
    defaultTopicQueueNums: int = attrs.field(default=4, kw_only=True, validator=_positive)
    tls: TLS | None = attrs.field(default=None, kw_only=True)
    credentials: Credentials | None = attrs.field(default=None, kw_only=True)
    frameMaxLength: int = attrs.field(default=FRAME_LIMIT, kw_only=True, validator=_positive)
