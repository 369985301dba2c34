# SPDX-License-Identifier: Apache-2.0
"""
Everything that txrocket raises on purpose::

    RocketError
      ProtocolError      bytes that cannot be understood
      InvalidMessage     a message that breaks a limit
      StoreError         a store that cannot do what is asked
      ConfigError        settings that are wrong
      AssignFailed       queues that cannot be divided
      RemotingError      a request that got no answer: where, and in which phase
      SendFailed         a message that was not sent, after all attempts
      ResponseError      an answer other than SUCCESS: one class per response code

A caller that retries looks at C{retriable} and never at a number.
"""

from __future__ import annotations

from typing import Any, ClassVar

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
    "MalformedBody",
    "MalformedField",
    "MalformedHeader",
    "MalformedRecord",
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


class RocketError(Exception):
    """
    The root of txrocket's errors.

    @cvar retriable: whether the same request may well succeed when it is made
        again, at another broker if there is one.
    """

    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is: to call the class with its words, as pickle does else, would fail, and a
        # worker's error could not be told to who waits for it.
        return _copied, (type(self), self.args, self.__dict__)


def _copied(
    kind: type[RocketError], args: tuple[object, ...], state: dict[str, Any]
) -> RocketError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


# --- bytes that cannot be understood -------------------------------------


class ProtocolError(RocketError):
    """
    The peer, or a file, holds bytes that break the format.
    """


class FrameTooLarge(ProtocolError):
    """
    A frame announces more bytes than this end takes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"frame of {size} bytes is larger than the limit of {limit}")
        self.size = size
        self.limit = limit


class HeaderOverLimit(ProtocolError):
    """
    A frame announces a longer header than this end takes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"header of {size} bytes is larger than the limit of {limit},"
            " com.rocketmq.remoting.headerMaxLength"
        )
        self.size = size
        self.limit = limit


class InvalidFrameLength(ProtocolError):
    """
    A frame's length is negative, or too small to hold a header length.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"frame length {size}: a frame has at least 4 bytes")
        self.size = size


class HeaderTooLong(ProtocolError):
    """
    A header announces more bytes than its frame holds.
    """

    def __init__(self, size: int, room: int) -> None:
        super().__init__(f"header of {size} bytes in a frame with room for {room}")
        self.size = size
        self.room = room


class UnknownSerializeType(ProtocolError):
    """
    A header is neither JSON (0) nor RocketMQ's binary form (1).
    """

    def __init__(self, serializeType: int) -> None:
        super().__init__(f"unknown header serialize type {serializeType}")
        self.serializeType = serializeType


class MalformedHeader(ProtocolError):
    """
    A frame's header is truncated, no valid JSON, or has members of wrong types.
    """


class MissingField(ProtocolError):
    """
    A header lacks a field that it must have.
    """

    def __init__(self, header: str, field: str) -> None:
        super().__init__(f"{header}: field {field} is missing")
        self.header = header
        self.field = field


class MalformedField(ProtocolError):
    """
    A field of a header has a value that its type does not allow.
    """

    def __init__(self, header: str, field: str, reason: str) -> None:
        super().__init__(f"{header}: field {field}: {reason}")
        self.header = header
        self.field = field
        self.reason = reason


class MalformedBody(ProtocolError):
    """
    A body is not the JSON that its request code calls for.
    """


class MalformedRecord(ProtocolError):
    """
    A message record breaks the format, or its body does not match its CRC.
    """


class MalformedTrace(ProtocolError):
    """
    What a client wrote about the way of a message breaks the format.
    """


class UnsupportedCompression(ProtocolError):
    """
    A body is compressed with a method that no installed library undoes.
    """


class InvalidMessage(RocketError):
    """
    A message breaks a limit of the format and was not sent or stored.
    """


# --- the store -----------------------------------------------------------


class StoreError(RocketError):
    """
    The store cannot do what is asked of it.
    """


class StoreInUse(StoreError):
    """
    Another process works on the same folder.
    """


class StoreCorrupt(StoreError):
    """
    The files on disk are not what they must be, and going on would lose data.
    """


class StoreFailed(StoreError):
    """
    A disk failed to take what was written: no write is accepted any more, for
    nobody can say what is on it.
    """


class DiskFull(StoreError):
    """
    There is no room for what is written.  Reads go on, and writes too once
    there is room again.
    """

    retriable: ClassVar[bool] = True


class MessageTooLarge(InvalidMessage):
    """
    A message is larger than the store takes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"message of {size} bytes is larger than the limit of {limit}")
        self.size = size
        self.limit = limit


# --- settings ------------------------------------------------------------


class ConfigError(RocketError, ValueError):
    """
    Settings are wrong: all that are, not only the first.

    @ivar problems: a line for each, which says where it stands, what its name is
        and what was expected.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class AssignFailed(RocketError, ValueError):
    """
    Queues cannot be divided among the members of a group as they are given.
    """


# --- requests without an answer ------------------------------------------


class RemotingError(RocketError):
    """
    A request that got no answer.

    @ivar address: the peer, as C{host:port}.
    """

    retriable: ClassVar[bool] = True

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class ConnectFailed(RemotingError):
    """
    No connection could be made: nothing was sent.
    """


class TooManyRequests(RemotingError):
    """
    The limit of requests or bytes under way is reached: nothing was sent.
    """


class RequestTimedOut(RemotingError):
    """
    No answer came in time: the peer may have served the request all the same.
    """


class ConnectionLost(RemotingError):
    """
    The connection went away, or was gone already.  If it went away while an
    answer was waited for, the peer may have served the request all the same;
    the message says which.
    """


class SendFailed(RocketError):
    """
    A message was not sent, or not known to be: what its sender gets in the end.

    @ivar error: the last of the errors.
    @ivar phase: what failed: C{route}, C{connect}, C{send} or C{answer}.  After the
        last two the broker may have the message all the same; if it was tried more
        than once, one of the brokers that were asked before may.
    @ivar address: with whom; empty if no broker was found.
    @ivar attempts: how often it was tried.
    @ivar elapsed: how many seconds that took.
    @ivar sent: if it was part of a batch, the results of the parts before it, which were
        sent; those after it were not.
    """

    sent: tuple[Any, ...] = ()

    def __init__(
        self, topic: str, error: RocketError, address: str, attempts: int, elapsed: float
    ) -> None:
        phase = _phase(error) if attempts else "route"
        self.error = error
        self.phase = phase
        self.address = address
        self.attempts = attempts
        self.elapsed = elapsed
        with_ = f" with {address}" if address else ""
        times = f" at attempt {attempts}" if attempts > 1 else ""
        super().__init__(
            f"sending to topic {topic} failed{times} after {elapsed:.3f} s, {phase}{with_}: {error}"
        )

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """
        Whether another attempt may do.
        """
        return self.error.retriable


class NotAssigned(RocketError):
    """
    A queue is not one that the consumer reads, or no longer: another member of its
    group may have it now.
    """


def _phase(error: RocketError) -> str:
    if isinstance(error, ConnectFailed):
        return "connect"
    if isinstance(error, (TooManyRequests, ConnectionLost)):
        return "send"
    return "answer"


# --- answers other than SUCCESS ------------------------------------------


class ResponseError(RocketError):
    """
    An answer other than SUCCESS.  A processor raises one to give that answer;
    a client raises one on receiving it.

    @cvar code: the response code, where the class stands for one.
    @ivar remark: what the answering end says about it.
    @ivar address: the answering end, where known.
    """

    code: int = -1

    def __init__(self, remark: str = "", *, address: str = "", code: int | None = None) -> None:
        if code is not None:
            self.code = code
        self.remark = remark
        self.address = address
        said = f"code {self.code}: {remark}" if remark else f"code {self.code}"
        super().__init__(f"{address} answered {said}" if address else said)


class RemoteSystemError(ResponseError):
    """
    SYSTEM_ERROR: the peer failed in a way that it has no own code for.
    """

    code = 1
    retriable = True


class SystemBusy(ResponseError):
    """
    SYSTEM_BUSY: the peer sheds load and has not served the request.
    """

    code = 2
    retriable = True


class RequestCodeNotSupported(ResponseError):
    """
    REQUEST_CODE_NOT_SUPPORTED: the peer has no processor for the code.
    """

    code = 3


class TransactionFailed(ResponseError):
    """
    TRANSACTION_FAILED.
    """

    code = 4


class FlushDiskTimeout(ResponseError):
    """
    FLUSH_DISK_TIMEOUT: stored, but not known to be on disk.
    """

    code = 10


class SlaveNotAvailable(ResponseError):
    """
    SLAVE_NOT_AVAILABLE: stored, but no slave is near enough to copy it.
    """

    code = 11


class FlushSlaveTimeout(ResponseError):
    """
    FLUSH_SLAVE_TIMEOUT: stored, but not known to be on a slave.
    """

    code = 12


class MessageIllegal(ResponseError):
    """
    MESSAGE_ILLEGAL: the message breaks a limit.
    """

    code = 13


class ServiceNotAvailable(ResponseError):
    """
    SERVICE_NOT_AVAILABLE: the peer does not take writes now.
    """

    code = 14
    retriable = True


class VersionNotSupported(ResponseError):
    """
    VERSION_NOT_SUPPORTED.
    """

    code = 15


class NoPermission(ResponseError):
    """
    NO_PERMISSION: at this broker; another may allow it.
    """

    code = 16
    retriable = True


class TopicNotExist(ResponseError):
    """
    TOPIC_NOT_EXIST: at this broker; another may have it.
    """

    code = 17
    retriable = True


class TopicExistAlready(ResponseError):
    """
    TOPIC_EXIST_ALREADY.
    """

    code = 18


class PullNotFound(ResponseError):
    """
    PULL_NOT_FOUND: no message at that offset yet.
    """

    code = 19


class PullRetryImmediately(ResponseError):
    """
    PULL_RETRY_IMMEDIATELY: nothing matched; pull again from the next offset.
    """

    code = 20
    retriable = True


class PullOffsetMoved(ResponseError):
    """
    PULL_OFFSET_MOVED: the offset lies outside of the queue.
    """

    code = 21


class QueryNotFound(ResponseError):
    """
    QUERY_NOT_FOUND.
    """

    code = 22


class SubscriptionParseFailed(ResponseError):
    """
    SUBSCRIPTION_PARSE_FAILED: the filter expression is no expression.
    """

    code = 23


class SubscriptionNotExist(ResponseError):
    """
    SUBSCRIPTION_NOT_EXIST: the group does not subscribe to the topic.
    """

    code = 24


class SubscriptionNotLatest(ResponseError):
    """
    SUBSCRIPTION_NOT_LATEST: the broker has not heard of the newest subscription.
    """

    code = 25


class SubscriptionGroupNotExist(ResponseError):
    """
    SUBSCRIPTION_GROUP_NOT_EXIST.
    """

    code = 26


class FilterDataNotExist(ResponseError):
    """
    FILTER_DATA_NOT_EXIST.
    """

    code = 27


class FilterDataNotLatest(ResponseError):
    """
    FILTER_DATA_NOT_LATEST.
    """

    code = 28


class TransactionShouldCommit(ResponseError):
    """
    TRANSACTION_SHOULD_COMMIT.
    """

    code = 200


class TransactionShouldRollback(ResponseError):
    """
    TRANSACTION_SHOULD_ROLLBACK.
    """

    code = 201


class TransactionStateUnknown(ResponseError):
    """
    TRANSACTION_STATE_UNKNOW, as RocketMQ spells it.
    """

    code = 202


class TransactionStateGroupWrong(ResponseError):
    """
    TRANSACTION_STATE_GROUP_WRONG.
    """

    code = 203


class NoBuyerId(ResponseError):
    """
    NO_BUYER_ID.
    """

    code = 204
    retriable = True


class NotInCurrentUnit(ResponseError):
    """
    NOT_IN_CURRENT_UNIT.
    """

    code = 205
    retriable = True


class ConsumerNotOnline(ResponseError):
    """
    CONSUMER_NOT_ONLINE.
    """

    code = 206


class ConsumeMsgTimeout(ResponseError):
    """
    CONSUME_MSG_TIMEOUT.
    """

    code = 207


class NoMessage(ResponseError):
    """
    NO_MESSAGE.
    """

    code = 208


class UpdateAclConfigFailed(ResponseError):
    """
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED.
    """

    code = 209


class DeleteAclConfigFailed(ResponseError):
    """
    DELETE_ACL_CONFIG_FAILED.
    """

    code = 210


class UpdateGlobalWhiteAddrsFailed(ResponseError):
    """
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED.
    """

    code = 211


class FlowControl(ResponseError):
    """
    FLOW_CONTROL: the peer asks for a slower pace and has not served the request.
    """

    code = 215
    retriable = True


_BY_CODE: dict[int, type[ResponseError]] = {
    each.code: each for each in ResponseError.__subclasses__()
}


def responseError(code: int, remark: str | None, address: str = "") -> ResponseError:
    """
    The error that stands for a response code; a plain L{ResponseError} for a
    code that RocketMQ 4.9.7 does not know.
    """
    return _BY_CODE.get(code, ResponseError)(remark or "", address=address, code=code)
