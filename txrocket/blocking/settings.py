# SPDX-License-Identifier: Apache-2.0
"""
The settings of a blocking client: a value that can be pickled and compared, so that Spark's
driver can send it to workers.
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


def _addresses(addresses: str | Sequence[str] | None) -> tuple[str, ...]:
    return tuple(nameServerAddresses(addresses, os.environ.get("NAMESRV_ADDR", "")))


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
    The settings of a client.

    @ivar nameServers: C{host:port;host:port}, or a list of addresses; by default
        NAMESRV_ADDR of the environment.
    @ivar timeout: the seconds that a call may take by default.
    @ivar retries: the most further attempts after a retriable error.
    @ivar producerGroup: the group that messages are sent for.
    @ivar consumerGroup: the group that messages are pulled for.  The default is the group
        of RocketMQ's own tools, which every broker knows.
    @ivar compressOver: a body of this many bytes, or more, is compressed.
    @ivar maxMessageSize: the most bytes of a body, or of a batch.
    @ivar defaultTopicQueueNums: the queues at each broker of a topic that a message of
        this client creates.
    @ivar tls: the TLS settings; L{None} for plain text.
    @ivar credentials: the account that requests are signed for; L{None} for none.
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
