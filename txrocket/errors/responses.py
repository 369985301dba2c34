# SPDX-License-Identifier: Apache-2.0
"""
One error class for each response code of RocketMQ 4.9.7 other than SUCCESS.

A processor raises the class, and the remoting layer writes its code and remark into
the response.  A client turns the code of a response back into the same class with
L{responseError}.
"""

from __future__ import annotations

from txrocket.errors.base import RocketError

__all__ = [
    "ConsumeMsgTimeout",
    "ConsumerNotOnline",
    "DeleteAclConfigFailed",
    "FilterDataNotExist",
    "FilterDataNotLatest",
    "FlowControl",
    "FlushDiskTimeout",
    "FlushSlaveTimeout",
    "MessageIllegal",
    "NoBuyerId",
    "NoMessage",
    "NoPermission",
    "NotInCurrentUnit",
    "PullNotFound",
    "PullOffsetMoved",
    "PullRetryImmediately",
    "QueryNotFound",
    "RemoteSystemError",
    "RequestCodeNotSupported",
    "ResponseError",
    "ServiceNotAvailable",
    "SlaveNotAvailable",
    "SubscriptionGroupNotExist",
    "SubscriptionNotExist",
    "SubscriptionNotLatest",
    "SubscriptionParseFailed",
    "SystemBusy",
    "TopicExistAlready",
    "TopicNotExist",
    "TransactionFailed",
    "TransactionShouldCommit",
    "TransactionShouldRollback",
    "TransactionStateGroupWrong",
    "TransactionStateUnknown",
    "UpdateAclConfigFailed",
    "UpdateGlobalWhiteAddrsFailed",
    "VersionNotSupported",
    "responseError",
]


class ResponseError(RocketError):
    """
    A response other than SUCCESS.  A processor raises it to send that response; a
    client raises it on receiving one.

    @cvar code: the response code of the class; -1 for the base class.
    @ivar remark: the explanation that the responding peer gave.
    @ivar address: the responding peer as C{host:port}; empty if not known.
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
    SYSTEM_ERROR: the peer failed, and no more specific code exists.
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
    FLUSH_DISK_TIMEOUT: the message is stored, but may not be on disk.
    """

    code = 10


class SlaveNotAvailable(ResponseError):
    """
    SLAVE_NOT_AVAILABLE: the message is stored, but no slave keeps up with the master.
    """

    code = 11


class FlushSlaveTimeout(ResponseError):
    """
    FLUSH_SLAVE_TIMEOUT: the message is stored, but may not be on a slave.
    """

    code = 12


class MessageIllegal(ResponseError):
    """
    MESSAGE_ILLEGAL: the message exceeds a limit.
    """

    code = 13


class ServiceNotAvailable(ResponseError):
    """
    SERVICE_NOT_AVAILABLE: the peer does not accept writes now.
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
    NO_PERMISSION: this broker forbids the request; another may allow it.
    """

    code = 16
    retriable = True


class TopicNotExist(ResponseError):
    """
    TOPIC_NOT_EXIST: this broker does not have the topic; another may have it.
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
    PULL_NOT_FOUND: the queue has no message at that offset yet.
    """

    code = 19


class PullRetryImmediately(ResponseError):
    """
    PULL_RETRY_IMMEDIATELY: no message matched; pull again from the next offset.
    """

    code = 20
    retriable = True


class PullOffsetMoved(ResponseError):
    """
    PULL_OFFSET_MOVED: the offset lies outside the queue.
    """

    code = 21


class QueryNotFound(ResponseError):
    """
    QUERY_NOT_FOUND.
    """

    code = 22


class SubscriptionParseFailed(ResponseError):
    """
    SUBSCRIPTION_PARSE_FAILED: the filter expression cannot be parsed.
    """

    code = 23


class SubscriptionNotExist(ResponseError):
    """
    SUBSCRIPTION_NOT_EXIST: the group does not subscribe to the topic.
    """

    code = 24


class SubscriptionNotLatest(ResponseError):
    """
    SUBSCRIPTION_NOT_LATEST: the broker has not yet received the newest subscription.
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
    TRANSACTION_STATE_UNKNOW, in RocketMQ's spelling.
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
    Create the error of a response code: a plain L{ResponseError} for a code that
    RocketMQ 4.9.7 does not know.
    """
    return _BY_CODE.get(code, ResponseError)(remark or "", address=address, code=code)
