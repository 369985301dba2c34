# SPDX-License-Identifier: Apache-2.0
"""
What is done to many messages at a time: the values, and the functions::

    splitFrames    bytes of a peer     --> runs of frames of one code
    decodeSends    frames of sends     --> messages
    decodePulls    frames of pulls     --> pulls
    encodeSendResponses                --> frames of responses to sends
    encodeHeads    values of headers   --> frames up to their bodies
    encodeRecords  messages            --> records of the log
    batchRecords   a producer's batch  --> records of the log
    suspect        records             --> whether one may look torn
    readRecords    a stretch of log    --> entries of queues, pairs for the index
    indexEntries   pairs               --> entries of an index file
    checkRecords   a stretch of log    --> where its sound records end
    collectRecords entries of a queue  --> the records of a pull
    readableRecords a pull's answer    --> where its readable records end
    messageIds     sizes of records    --> the ids that a producer gets
    syncPaths      files               --> on the disk

Two modules provide L{Bulk}: C{txrocket.bulk.python} and C{txrocket.bulk._compiled}.  The
package L{txrocket.bulk} chooses one of them when it is imported.  C{tests/bulk} compares
them, argument by argument.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from mmap import mmap
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from txrocket.protocol.frames import Run
from txrocket.protocol.javahash import javaHash
from txrocket.protocol.record import TopicField

__all__ = [
    "PAIR",
    "AppendedRecord",
    "AwaitedMessage",
    "BatchRecords",
    "Bulk",
    "CollectedRecords",
    "DecodedPull",
    "DecodedSends",
    "EncodedRecords",
    "Frames",
    "IndexEntries",
    "QueueKey",
    "QueueTail",
    "ReadRecords",
    "SentMessage",
    "keyHash",
]

#: The topic and the number of a queue.
QueueKey: TypeAlias = tuple[str, int]

#: A record that was encoded: its queue, its queue offset, its offset in the log, its size.
AppendedRecord: TypeAlias = tuple[QueueKey, int, int, int]

#: A message of a queue that a consumer waits for: offset in the log, queue, queue offset, hash.
AwaitedMessage: TypeAlias = tuple[int, QueueKey, int, int]

#: The frames of one peer, complete and not decoded: the peer, its address as records hold it,
#: the bytes that hold the frames, where the first one begins, where the last one ends.
Frames: TypeAlias = tuple[Any, bytes, bytes, int, int]

#: A pull: its opaque; what all pulls of the consumer have in common, that is group, topic,
#: sysFlag, subVersion, subscription and expressionType with C{\\x01} between them and C{\\x02}
#: for one that is missing; queue id, queue offset, maxMsgNums, commitOffset; where its frame ends.
DecodedPull: TypeAlias = tuple[int, bytes, int, int, int, int, int]

#: What the index gets for each key: its hash, and the offset of the record in the log.
PAIR: Final = Struct(">iq")


def keyHash(topic: str, key: str) -> int:
    """
    The hash of a key in the index: the absolute value of Java's C{hashCode}, and 0 for the
    one number that has no absolute value.
    """
    found = abs(javaHash(f"{topic}#{key}"))
    return found if found <= 0x7FFFFFFF else 0


class SentMessage(NamedTuple):
    """
    A message that a producer has sent.

    @ivar opaque: the number of the request; L{None} if the producer wants no response.
    @ivar properties: as a record has them.
    @ivar frameEnd: where the frame of the request ends in the bytes that it came with.
    """

    opaque: int | None
    queue: QueueKey
    body: bytes
    properties: bytes
    bornTimestamp: int
    flag: int = 0
    sysFlag: int = 0
    reconsumeTimes: int = 0
    frameEnd: int = 0
    preparedTransactionOffset: int = 0


class DecodedSends(NamedTuple):
    """
    The messages at the fronts of calls that need no rule.

    @ivar hosts: the address of the producer of each message, as records hold it.
    @ivar owners: the number of a call, and how many of its messages these are.
    """

    messages: list[SentMessage]
    hosts: list[bytes]
    owners: list[tuple[int, int]]


class EncodedRecords(NamedTuple):
    """
    Records of messages, one behind the other.

    @ivar records: their bytes.
    @ivar appended: where each message went; fewer than were given if there is no room.
    @ivar totals: by topic how many messages there are, and how many bytes.
    """

    records: bytes
    appended: list[AppendedRecord]
    totals: dict[str, tuple[int, int]]


class BatchRecords(NamedTuple):
    """
    The records of a producer's batch, one behind the other, and the size of each.
    """

    records: bytes
    sizes: list[int]


class ReadRecords(NamedTuple):
    """
    What the start of a stretch of the log gave to the queues.

    @ivar end: where in the stretch the messages end.
    @ivar number: how many messages these are.
    @ivar pairs: the L{PAIR}s for the index.
    @ivar timestamp: the store time of all these messages; 0 if there is none.
    @ivar awaited: those messages of queues that a consumer waits for.
    """

    end: int
    number: int
    pairs: bytes
    timestamp: int
    awaited: list[AwaitedMessage]


class IndexEntries(NamedTuple):
    """
    New entries of an index file, and how many slots they are the first in.
    """

    data: bytes
    first: int


class CollectedRecords(NamedTuple):
    """
    The records of a pull.

    @ivar number: how many records there are.
    @ivar looked: how many entries were looked at.
    """

    records: bytes
    number: int
    looked: int


class QueueTail(Protocol):
    """
    The end of a consume queue.

    @ivar filed: one past the queue offset of the last entry that is in a file.
    @ivar tail: the entries behind it.
    """

    filed: int
    tail: bytearray


class Bulk(Protocol):
    """
    An implementation.  Arguments are positional only.
    """

    def splitFrames(self, data: bytes, limit: int, headerLimit: int, /) -> tuple[list[Run], int]:
        """
        See L{txrocket.protocol.frames.splitFrames}.
        """

    def decodeSends(
        self,
        calls: Sequence[Frames],
        known: dict[bytes, tuple[QueueKey, ...]],
        cluster: bytes,
        batch: bool,
        /,
    ) -> tuple[DecodedSends, DecodedSends]:
        """
        Read the messages at the front of each call that need no rule, up to the first that
        does, or whose header is in another form.

        @param known: by topic, the queues to which messages need no rule.
        @param cluster: the property that is added to each message.
        @param batch: whether the frames are SEND_BATCH_MESSAGE, not SEND_MESSAGE_V2.
        @return: those with a JSON header, and those with a binary one.
        """

    def decodePulls(self, data: bytes, start: int, end: int, /) -> list[DecodedPull]:
        """
        Read the frames of PULL_MESSAGE between two offsets, up to the first whose header is
        not JSON or not as clients write it.
        """

    def encodeSendResponses(
        self,
        messages: list[SentMessage],
        appended: list[AppendedRecord],
        owners: list[tuple[int, int]],
        head: bytes,
        tail: bytes,
        binary: bool,
        /,
    ) -> list[bytes]:
        """
        The responses to messages that were appended, as frames.

        @param appended: where each message went; fewer than there are messages if the rest
            was not appended.
        @param owners: see L{DecodedSends}.
        @param head: what each response has before the offset in the message's id.
        @param tail: what it has behind its opaque; with a binary header, before it.
        @return: the frames for each owner, one behind the other; oneway sends have none.
        """

    def encodeHeads(
        self, pieces: tuple[bytes, ...], rows: list[tuple[int | str, ...]], /
    ) -> list[bytes]:
        """
        Frames up to their bodies, from JSON headers that differ in a few values.

        @param pieces: what all headers have before, between and behind the values; see
            L{responsePieces<txrocket.protocol.headertemplates.responsePieces>}.
        @param rows: for each frame its values, numbers of 64 bits or texts that JSON need not
            escape, and at last the size of its body.
        @raise ValueError: if a header is longer than a frame can tell.
        """

    def encodeRecords(
        self,
        messages: list[SentMessage],
        fields: dict[str, TopicField],
        nexts: dict[QueueKey, int],
        offset: int,
        end: int,
        maxBody: int,
        timestamp: int,
        bornHosts: list[bytes],
        storeHost: bytes,
        /,
    ) -> EncodedRecords:
        """
        Encode messages up to the first for which there is no room.

        A half message gets the queue offset 0 and is in no queue.

        @param fields: the topics of the messages.
        @param nexts: the next queue offset of each queue, which is advanced; unless all
            records can be made, it stays as it is.
        @param offset: where in the log the first record goes.
        @param end: the offset of the log that no record may pass.
        @param maxBody: how many bytes a body may have.
        @param bornHosts: the address of the producer of each message.
        @raise InvalidMessage: if a number, an address or properties do not fit a record.
        """

    def batchRecords(
        self,
        data: bytes,
        topic: TopicField,
        properties: bytes,
        queueId: int,
        queueOffset: int,
        physicalOffset: int,
        sysFlag: int,
        bornTimestamp: int,
        bornHost: bytes,
        storeTimestamp: int,
        storeHost: bytes,
        reconsumeTimes: int = 0,
        /,
    ) -> BatchRecords:
        """
        Make log records of a batch request's body.

        @param properties: those of the request, added to each message's own.
        @param queueOffset: of the first record; the others follow.
        @param physicalOffset: likewise.
        @raise MalformedRecord: if a length in C{data} does not fit.
        @raise InvalidMessage: as L{encodeRecord<txrocket.protocol.record.encodeRecord>}, and
            if the batch has too many messages.
        """

    def suspect(self, records: bytes, sizes: list[int], /) -> bool:
        """
        Whether recovery might take one of these records for torn: there are many zeros, or
        a record ends with one, as a record without properties does.
        """

    def checkRecords(self, data: bytes, position: int, offset: int, limit: int, /) -> int:
        """
        Where the ordinary records of one time end that begin at a position of a stretch of
        the log, and of which nothing is missing.  A record whose topic is not in ASCII, or
        whose texts have zeros, needs a closer look, and ends them as well.

        @param offset: the offset in the log of that position.
        @param limit: how many bytes a record may have.
        """

    def readRecords(
        self,
        data: bytes,
        position: int,
        offset: int,
        known: Mapping[QueueKey, QueueTail],
        find: Callable[[QueueKey], QueueTail],
        awaited: Container[QueueKey] | None,
        /,
    ) -> ReadRecords:
        """
        Add the entries of the ordinary messages of one time that begin at a position of a
        stretch of the log to their queues.

        It ends before a half message, a delayed message, a message that is not the next one
        of its queue, and a record of another time or place.

        @param offset: the offset in the log of that position.
        @param known: the queues that have a tail.
        @param find: finds other queues.
        @param awaited: the queues that a consumer waits for; L{None} for all.
        """

    def indexEntries(
        self,
        pairs: bytes,
        count: int,
        slots: int,
        seconds: int,
        table: bytearray,
        dirty: bytearray,
        run: int,
        /,
    ) -> IndexEntries:
        """
        New entries of an index file whose slots are in memory.  The slots are changed.

        @param count: the number of the first entry.
        @param slots: how many slots the file has.
        @param seconds: the time of the entries.
        @param table: the slots.
        @param dirty: a byte for each run of slots, set to 1 if a slot of it changes.
        @param run: how many slots a run has.
        """

    def collectRecords(
        self,
        entries: bytes,
        source: mmap | bytes | int,
        base: int,
        written: int,
        near: int,
        most: int,
        mostBytes: int,
        matches: Callable[[int], bool] | None,
        topic: bytes,
        queueId: int,
        queueOffset: int,
        largest: int,
        checkBelow: int,
        /,
    ) -> CollectedRecords | None:
        """
        The records of a pull, from one file of the log.

        @param source: the bytes of the file, or its handle.
        @param base: the offset in the log at which the file begins.
        @param written: where the log ends.
        @param near: how many bytes before that are not old.
        @param most: how many records are collected at most.
        @param mostBytes: how many bytes they have at most, unless there is one only.
        @param matches: whether the consumer wants a message, by the hash of its tag.
        @param queueOffset: of the first entry.
        @param largest: how many bytes a record may have.
        @param checkBelow: bodies of records before this offset are compared with their CRC.
        @return: L{None} if a record is in another file, is old, or is not the one of its
            entry, and if no message matches.
        """

    def readableRecords(self, data: bytes, /) -> int:
        """
        Where the records that bytes begin with end: at the first byte that does not begin a
        record whose parts add up to its size, and whose body matches its CRC, if it has one.
        """

    def syncPaths(self, paths: Iterable[str], /) -> int:
        """
        Sync files, except those that do not exist.  Blocks.

        @return: the number of the error of a sync that failed, or 0.
        @raise OSError: if a file cannot be opened.
        """

    def messageIds(self, prefix: str, offset: int, sizes: tuple[int, ...], /) -> str:
        """
        The ids of records of these sizes that follow each other, joined by commas.

        @param prefix: the store host, in hexadecimal digits.
        @param offset: of the first record in the log.
        """

    def guardBus(self) -> None:
        """
        Have L{collectRecords} survive a mapped file that cannot be read.  This takes over
        SIGBUS for the whole process, and is for a server's own process only.
        """

    def releaseBus(self) -> None:
        """
        Give SIGBUS back to the handler that L{guardBus} found.
        """

    def isGuarded(self) -> bool:
        """
        Whether L{guardBus} is in force, so that L{collectRecords} may get a mapped file.
        """
