# SPDX-License-Identifier: Apache-2.0
"""
Every exception that txrocket raises on purpose, by layer::

    RocketError        base.py
      ConfigError      base.py        settings that are not valid
      ProtocolError    protocol.py    bytes that break a format
      InvalidMessage   protocol.py    a message that exceeds a limit
      StoreError       store.py       the store cannot serve the call
      RemotingError    remoting.py    a request that got no response
      ReplicaRefused   replication.py a broker that does not replicate with another
      ResponseError    responses.py   a response other than SUCCESS, one class per code
      SendFailed       client.py      a message that was not sent, after all attempts
      NotAssigned      client.py      a queue that the consumer does not own
      AssignFailed     client.py      queues that cannot be allocated

A caller decides on a retry by C{retriable}, never by a response code.
"""

from __future__ import annotations

from txrocket.errors.base import (
    ConfigError,
    RocketError,
)
from txrocket.errors.client import (
    AssignFailed,
    NotAssigned,
    SendFailed,
)
from txrocket.errors.protocol import (
    FrameTooLarge,
    HeaderOverLimit,
    HeaderTooLong,
    InvalidFrameLength,
    InvalidMessage,
    MalformedBody,
    MalformedField,
    MalformedHeader,
    MalformedRecord,
    MalformedReplication,
    MalformedTrace,
    MessageTooLarge,
    MissingField,
    ProtocolError,
    UnknownSerializeType,
    UnsupportedCompression,
)
from txrocket.errors.remoting import (
    ConnectFailed,
    ConnectionLost,
    RemotingError,
    RequestTimedOut,
    TooManyRequests,
)
from txrocket.errors.replication import LogsDiverged, ReplicaRefused
from txrocket.errors.responses import (
    ConsumeMsgTimeout,
    ConsumerNotOnline,
    DeleteAclConfigFailed,
    FilterDataNotExist,
    FilterDataNotLatest,
    FlowControl,
    FlushDiskTimeout,
    FlushSlaveTimeout,
    MessageIllegal,
    NoBuyerId,
    NoMessage,
    NoPermission,
    NotInCurrentUnit,
    PullNotFound,
    PullOffsetMoved,
    PullRetryImmediately,
    QueryNotFound,
    RemoteSystemError,
    RequestCodeNotSupported,
    ResponseError,
    ServiceNotAvailable,
    SlaveNotAvailable,
    SubscriptionGroupNotExist,
    SubscriptionNotExist,
    SubscriptionNotLatest,
    SubscriptionParseFailed,
    SystemBusy,
    TopicExistAlready,
    TopicNotExist,
    TransactionFailed,
    TransactionShouldCommit,
    TransactionShouldRollback,
    TransactionStateGroupWrong,
    TransactionStateUnknown,
    UpdateAclConfigFailed,
    UpdateGlobalWhiteAddrsFailed,
    VersionNotSupported,
    responseError,
)
from txrocket.errors.store import (
    DiskFull,
    MalformedLog,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreInUse,
    StoreIsReplica,
)

__all__ = [
    "AssignFailed",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeMsgTimeout",
    "ConsumerNotOnline",
    "DeleteAclConfigFailed",
    "DiskFull",
    "FilterDataNotExist",
    "FilterDataNotLatest",
    "FlowControl",
    "FlushDiskTimeout",
    "FlushSlaveTimeout",
    "FrameTooLarge",
    "HeaderOverLimit",
    "HeaderTooLong",
    "InvalidFrameLength",
    "InvalidMessage",
    "LogsDiverged",
    "MalformedBody",
    "MalformedField",
    "MalformedHeader",
    "MalformedLog",
    "MalformedRecord",
    "MalformedReplication",
    "MalformedTrace",
    "MessageIllegal",
    "MessageTooLarge",
    "MissingField",
    "NoBuyerId",
    "NoMessage",
    "NoPermission",
    "NotAssigned",
    "NotInCurrentUnit",
    "ProtocolError",
    "PullNotFound",
    "PullOffsetMoved",
    "PullRetryImmediately",
    "QueryNotFound",
    "RemoteSystemError",
    "RemotingError",
    "ReplicaRefused",
    "RequestCodeNotSupported",
    "RequestTimedOut",
    "ResponseError",
    "RocketError",
    "SendFailed",
    "ServiceNotAvailable",
    "SlaveNotAvailable",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreInUse",
    "StoreIsReplica",
    "SubscriptionGroupNotExist",
    "SubscriptionNotExist",
    "SubscriptionNotLatest",
    "SubscriptionParseFailed",
    "SystemBusy",
    "TooManyRequests",
    "TopicExistAlready",
    "TopicNotExist",
    "TransactionFailed",
    "TransactionShouldCommit",
    "TransactionShouldRollback",
    "TransactionStateGroupWrong",
    "TransactionStateUnknown",
    "UnknownSerializeType",
    "UnsupportedCompression",
    "UpdateAclConfigFailed",
    "UpdateGlobalWhiteAddrsFailed",
    "VersionNotSupported",
    "responseError",
]
