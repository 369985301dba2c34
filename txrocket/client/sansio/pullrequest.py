# SPDX-License-Identifier: Apache-2.0
"""
A pull as it is asked and as it is answered, whatever carries it; of Java's
C{PullAPIWrapper}, what needs no network.

A broker finds messages by the hash of their tags, so tags are compared here once
more.  Bodies are left as they are stored: L{readable} decompresses them for a reader,
so that one bad body does not hold up the others.

A broker may have damaged messages, and give them.  A consumer passes over what it cannot
read, and believes the pull, and not a message, where it is in the queue::

    asked for 7, the next pull begins at 10:   7   8   1048584   -- no record --
                                               ^   ^
                                               given; the group is then at 10
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from txrocket.bulk import readableRecords
from txrocket.client.sansio.results import PullData, PullResult, PullStatus
from txrocket.errors import MalformedRecord, UnsupportedCompression, responseError
from txrocket.filters.tags import TAG, tagSubscription
from txrocket.message import PROPERTY_MAX_OFFSET, PROPERTY_MIN_OFFSET, PROPERTY_TAGS, MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.compression import COMPRESSED_FLAG, inflated
from txrocket.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from txrocket.protocol.record import decodeRecords
from txrocket.protocol.salvage import salvage

__all__ = [
    "COMMIT_FLAG",
    "PullRequest",
    "checkProgress",
    "pullData",
    "pullHeader",
    "pullResult",
    "readAll",
    "readable",
    "wantedTags",
]

# Bits of a pull's sysFlag.
COMMIT_FLAG: Final = 0x1
_SUSPEND: Final = 0x2
_SUBSCRIPTION: Final = 0x4

# The name of the tag's property, and what stands behind it.
_TAGS: Final = f"{PROPERTY_TAGS}\x01".encode()

_STATUS: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}
_LEADS_ON: Final = (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG)


# One for each subscription of a process, and each pull looks.
@lru_cache(1024)
def wantedTags(expression: str, expressionType: str = TAG) -> frozenset[str]:
    """
    The tags of an expression; none if it wants messages by something else, or all.

    @raise SubscriptionParseFailed: if the expression cannot be parsed as tags.
    """
    return tagSubscription("", expression).tagsSet if expressionType == TAG else frozenset()


class PullRequest(NamedTuple):
    """
    One pull.

    @ivar offset: where to begin.
    @ivar most: how many messages at most; the broker may give fewer.
    @ivar expression: selects messages: tags, or SQL92.
    @ivar version: the subscription's, a time in milliseconds.
    @ivar brought: whether the request brings the expression along; if not, the broker
        takes that of the group's heartbeat.
    @ivar commitOffset: the group's offset, for the broker to commit.
    @ivar wait: how many seconds the broker may wait for a message.
    """

    queue: MessageQueue
    offset: int
    most: int
    expression: str
    expressionType: str = TAG
    version: int = 0
    brought: bool = True
    commitOffset: int | None = None
    wait: float = 0.0


def pullHeader(group: str, pull: PullRequest) -> PullMessageRequestHeader:
    """
    The header of a pull.
    """
    queue, wait, brought, commitOffset = pull.queue, pull.wait, pull.brought, pull.commitOffset
    sysFlag = _SUSPEND if wait > 0 else 0
    if brought:
        sysFlag |= _SUBSCRIPTION
    if commitOffset is not None:
        sysFlag |= COMMIT_FLAG
    return PullMessageRequestHeader(
        group,
        queue.topic,
        queue.queueId,
        pull.offset,
        pull.most,
        sysFlag,
        commitOffset or 0,
        int(wait * 1000),
        pull.version,
        pull.expression if brought else None,
        pull.expressionType,
        queue.brokerName,
    )


def pullData(answer: RemotingCommand, address: str) -> tuple[PullData, int]:
    """
    The content of the answer to a pull, its messages unread.

    @param address: the broker's.
    @return: that, and the id of the broker to pull from next.
    @raise ResponseError: if the broker refuses.
    @raise ProtocolError: if the answer cannot be understood.
    """
    status = _STATUS.get(answer.code)
    if status is None:
        raise responseError(answer.code, answer.remark, address)
    header = answer.decodeHeader(PullMessageResponseHeader)
    data = answer.body if status is PullStatus.FOUND else b""
    pulled = PullData(status, header.nextBeginOffset, header.minOffset, header.maxOffset, data)
    return pulled, header.suggestWhichBrokerId


def pullResult(
    answer: RemotingCommand, queue: MessageQueue, offset: int, tags: frozenset[str], address: str
) -> tuple[PullResult, int]:
    """
    The content of the answer to a pull.

    @param offset: where the pull was to begin.
    @param tags: as L{wantedTags} gives them.
    @param address: the broker's.
    @return: the result, and the id of the broker to pull from next.
    @raise ResponseError: if the broker refuses.
    @raise ProtocolError: if the answer cannot be understood.
    """
    (status, nextOffset, low, high, data), suggested = pullData(answer, address)
    checkProgress(status, queue, offset, nextOffset)
    messages: list[MessageExt] = []
    faults: list[str] = []
    if data:
        known = f"\x02{PROPERTY_MIN_OFFSET}\x01{low}\x02{PROPERTY_MAX_OFFSET}\x01{high}".encode()
        messages, faults = _decoded(data, queue.brokerName, known)
        messages = _within(messages, queue, offset, nextOffset, faults)
        if tags:
            encoded = _encoded(tags)
            messages = [each for each in messages if _isWanted(each, tags, encoded)]
    return PullResult(status, nextOffset, low, high, tuple(messages), tuple(faults)), suggested


def checkProgress(status: PullStatus, queue: MessageQueue, offset: int, nextOffset: int) -> None:
    """
    See that a pull that found messages, or skipped some, leads on.

    @raise MalformedRecord: if it does not: the same pull would be made for ever.
    """
    if status in _LEADS_ON and nextOffset <= offset:
        raise MalformedRecord(
            f"broker {queue.brokerName} answered a pull at {offset} in queue {queue.queueId} of"
            f" topic {queue.topic} that the next one begins at {nextOffset}"
        )


def _decoded(data: bytes, brokerName: str, known: bytes) -> tuple[list[MessageExt], list[str]]:
    """
    The messages that can be read, and what is wrong with the others.
    """

    def decode(data: bytes, *, checkCrc: bool) -> list[MessageExt]:
        return decodeRecords(
            data, checkCrc=checkCrc, inflate=False, brokerName=brokerName, appended=known
        )

    try:
        return decode(data, checkCrc=readableRecords(data) != len(data)), []
    except MalformedRecord:
        sound, faults = salvage(data)
        return decode(sound, checkCrc=False), faults


def _within(
    messages: list[MessageExt],
    queue: MessageQueue,
    offset: int,
    nextOffset: int,
    faults: list[str],
) -> list[MessageExt]:
    """
    Those messages that belong into a pull.

    @param faults: is added to, for each that does not.
    """
    last, queueId = offset - 1, queue.queueId
    for each in messages:
        if not last < each.queueOffset < nextOffset or each.queueId != queueId:
            break
        last = each.queueOffset
    else:
        return messages
    last, found = offset - 1, []
    for each in messages:
        if last < each.queueOffset < nextOffset and each.queueId == queueId:
            last = each.queueOffset
            found.append(each)
        else:
            faults.append(
                f"a message at {each.commitLogOffset} in the log says that it is {each.queueOffset}"
                f" in queue {each.queueId}, and the pull goes from {offset} to {nextOffset} in"
                f" {queueId}"
            )
    return found


@lru_cache(1024)
def _encoded(tags: frozenset[str]) -> frozenset[bytes]:
    return frozenset(each.encode(errors="replace") for each in tags)


def _isWanted(message: MessageExt, tags: frozenset[str], encoded: frozenset[bytes]) -> bool:
    """
    Whether a message has one of some tags.  That it has one, and which, is seen without
    splitting its properties, a fifth of the price, if there are no two ways to read them.
    """
    data = message.propertiesData
    before, found, after = data.partition(_TAGS)
    if not found:
        return False
    if (before and before[-1] != 2) or _TAGS in after:
        return message.tags in tags
    tag = after.partition(b"\x02")[0]
    return tag in encoded if tag.isascii() else message.tags in tags


def readable(message: MessageExt) -> MessageExt:
    """
    A pulled message whose body can be read: the same one unless it is compressed.

    @raise MalformedRecord: if its body is damaged; the text says where it is.
    @raise UnsupportedCompression: if the library for it is not installed.
    """
    if not message.sysFlag & COMPRESSED_FLAG:
        return message
    try:
        return inflated(message)
    except (MalformedRecord, UnsupportedCompression) as error:
        raise type(error)(
            f"message {message.queueOffset} in queue {message.queueId} of topic {message.topic}"
            f" at broker {message.brokerName}: {error}"
        ) from None


def readAll(result: PullResult) -> PullResult:
    """
    A result whose messages can be read: those before the first for which a library is
    missing, without those that are damaged.

    @raise UnsupportedCompression: if the library is missing for the first of all.
    """
    messages: list[MessageExt] = []
    faults = list(result.faults)
    for message in result.messages:
        try:
            messages.append(readable(message))
        except MalformedRecord as error:
            faults.append(str(error))
        except UnsupportedCompression:
            if not messages:
                raise
            result = result._replace(nextBeginOffset=message.queueOffset)
            break
    return result._replace(messages=tuple(messages), faults=tuple(faults))
