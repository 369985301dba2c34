# SPDX-License-Identifier: Apache-2.0
"""
How far each consumer group has come in each queue, in memory and in
C{consumerOffset.json}; Java's C{ConsumerOffsetManager}.

Offsets change with nearly every pull, so the broker writes them every few seconds and
when it stops.  If it is killed, a group gets the messages of the last seconds once more,
which a consumer must expect anyway.

At most C{maxConsumerOffsetNum} pairs of a topic and a group have offsets.  The broker
refuses and logs a commit beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.tables.salvage import decodeTable, legible
from txrocket.broker.tables.savedtable import SavedTable, TableFile
from txrocket.broker.tables.tabletext import TableText
from txrocket.errors import RemoteSystemError
from txrocket.protocol.bodies import ConsumerOffsetSerializeWrapper
from txrocket.protocol.bodies.codec import encodeBody

__all__ = ["ConsumerOffsets"]

# How many refused commits are remembered, so that each is logged once.
_MOST_BEYOND = 1000


class ConsumerOffsets:
    """
    The groups' offsets at a broker.
    """

    _log = Logger()

    def __init__(self, file: TableFile, limit: int = 500_000) -> None:
        """
        @param limit: how many pairs of a topic and a group may have offsets.
        """
        self._limit = limit
        self._refused = False
        # By topic and group, as the file has them.
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        # The same keys, to be found by one half of them.
        self._groups: dict[str, set[str]] = {}
        self._topics: dict[str, set[str]] = {}
        self._text = TableText(self._member, lambda: (b'{"offsetTable":{', b"}}"))
        self._saved = SavedTable(file, self._text)
        self._changed = False
        # The queues whose commits beyond the maximum are logged already.
        self._beyond: set[tuple[str, str, int]] = set()
        self._watchers: list[Callable[[tuple[str, str]], None]] = []

    def watch(self, touched: Callable[[tuple[str, str]], None]) -> None:
        """
        Have a function called with topic and group of all offsets that change.
        """
        self._watchers.append(touched)

    def keys(self) -> Iterable[tuple[str, str]]:
        """
        The pairs of a topic and a group that have offsets.
        """
        return self._table.keys()

    def load(self) -> None:
        """
        Read C{consumerOffset.json}.  If it is damaged, read the older table, and from the
        newer one every member that is legible.
        """
        saved = self._saved.load(
            lambda data: decodeTable(ConsumerOffsetSerializeWrapper, data, b"offsetTable"), _mended
        )
        if saved is not None:
            for key, offsets in saved.offsetTable.items():
                topic, _, group = key.partition("@")
                self._add((topic, group), dict(offsets))
            # The broker serves no request yet.
            self._text.refresh(len(self._table))
            self._changed = False

    def query(self, group: str, topic: str, queueId: int) -> int:
        """
        A group's offset in a queue; -1 if it has none.
        """
        offsets = self._table.get((topic, group))
        return offsets.get(queueId, -1) if offsets else -1

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """
        A group's offsets in the queues of a topic.
        """
        return self._table.get((topic, group), {})

    def commit(self, group: str, topic: str, queueId: int, offset: int, address: str) -> None:
        """
        Set the offset of a group in a queue, forward or back.

        @param address: the client that commits it.
        """
        key = topic, group
        offsets = self._table.get(key)
        if offsets is None:
            if len(self._table) >= self._limit:
                self._refuse(group, topic, address)
                return
            offsets = {}
            self._add(key, offsets)
        before = offsets.get(queueId)
        if before != offset:
            offsets[queueId] = offset
            self._touch(key)
            if before is not None and offset < before:
                self._log.warn(
                    "{address} takes group {group} back in queue {queueId} of {topic},"
                    " from {before} to {offset}",
                    address=address,
                    group=group,
                    queueId=queueId,
                    topic=topic,
                    before=before,
                    offset=offset,
                )

    def checkRoom(self, group: str, topic: str) -> None:
        """
        Refuse the first offset of a group in a topic if the table is full.

        @raise RemoteSystemError: naming the setting.
        """
        if len(self._table) >= self._limit and (topic, group) not in self._table:
            raise RemoteSystemError(
                f"the offsets of group {group} in topic {topic} are not kept:"
                f" {len(self._table)} pairs of a topic and a group have some, and"
                f" maxConsumerOffsetNum is {self._limit}: delete groups, or set it higher in the"
                " broker's file and start the broker anew"
            )

    def _refuse(self, group: str, topic: str, address: str) -> None:
        # Log it once, and not for each pull, until there is room again.
        if not self._refused:
            self._refused = True
            self._log.warn(
                "{address} commits offsets of group {group} in topic {topic}, which are not kept,"
                " nor are other new ones: maxConsumerOffsetNum is {limit}",
                address=address,
                group=group,
                topic=topic,
                limit=self._limit,
            )

    def commitWithin(
        self, maximum: int, group: str, topic: str, queueId: int, offset: int, address: str
    ) -> bool:
        """
        As L{commit}, if the offset is within the queue.  A client that commits a larger one
        has read a damaged message, and its group would skip the messages to come.

        @param maximum: the offset that the queue's next message gets.
        @return: whether the offset was committed.
        """
        if offset <= maximum:
            self.commit(group, topic, queueId, offset, address)
            return True
        key = group, topic, queueId
        if key not in self._beyond:
            if len(self._beyond) >= _MOST_BEYOND:
                self._beyond.clear()
            self._beyond.add(key)
            self._log.warn(
                "{address} commits offset {offset} for group {group} in queue {queueId} of"
                " {topic}, whose next message gets {maximum}: refused, the group stays at"
                " {before}",
                address=address,
                offset=offset,
                group=group,
                queueId=queueId,
                topic=topic,
                maximum=maximum,
                before=self.query(group, topic, queueId),
            )
        return False

    def clone(self, fromGroup: str, toGroup: str, topic: str) -> None:
        """
        Give one group the offsets of another in a topic.

        @raise RemoteSystemError: if the table is full.
        """
        offsets = self._table.get((topic, fromGroup))
        if offsets is not None:
            self.checkRoom(toGroup, topic)
            self._add((topic, toGroup), dict(offsets))

    def removeTopic(self, topic: str) -> None:
        """
        Forget all groups' offsets in a topic.
        """
        for group in self.groupsOf(topic):
            self._remove((topic, group))

    def removeGroup(self, group: str) -> None:
        """
        Forget a group's offsets in all topics.
        """
        for topic in self.topicsOf(group):
            self._remove((topic, group))

    def topicsOf(self, group: str) -> set[str]:
        """
        The topics in which a group has offsets.
        """
        return set(self._topics.get(group, ()))

    def topicsByGroup(self) -> dict[str, list[str]]:
        """
        The topics in which each group has offsets.
        """
        return {group: sorted(topics) for group, topics in self._topics.items()}

    def groupsOf(self, topic: str) -> set[str]:
        """
        The groups that have offsets in a topic.
        """
        return set(self._groups.get(topic, ()))

    def groups(self) -> Iterator[str]:
        """
        The groups that have offsets in any topic.
        """
        return iter(self._topics)

    def adopt(
        self, put: Mapping[str, Mapping[int, int]], removed: Iterable[str], *, mayGoBack: bool
    ) -> None:
        """
        Take over offsets of the master's table, by C{topic@group}.

        @param mayGoBack: whether an offset may be lower than it was: if a consumer or an
            administrator has set it back, and not if the master has only missed commits.
        """
        for name, offsets in put.items():
            topic, _, group = name.partition("@")
            known = self._table.get((topic, group))
            if known is None:
                self._add((topic, group), dict(offsets))
                continue
            merged = dict(known)
            for queueId, offset in offsets.items():
                merged[queueId] = offset if mayGoBack else max(offset, known.get(queueId, offset))
            if merged != known:
                self._add((topic, group), merged)
        for name in removed:
            topic, _, group = name.partition("@")
            if (topic, group) in self._table:
                self._remove((topic, group))

    def bringBack(self, maxOffset: Callable[[str, int], int]) -> int:
        """
        Set the offsets that are beyond the end of their queue back to it: the log was cut, or
        lacks what the master's had.

        @param maxOffset: the offset that the next message of a queue gets.
        @return: how many offsets were set back.
        """
        count = 0
        for key, offsets in self._table.items():
            for queueId, offset in offsets.items():
                most = maxOffset(key[0], queueId)
                if offset > most:
                    offsets[queueId] = most
                    self._touch(key)
                    count += 1
        return count

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """
        All offsets, as peers and the file get them.
        """
        return ConsumerOffsetSerializeWrapper(
            {f"{topic}@{group}": offsets for (topic, group), offsets in self._table.items()}
        )

    def encoded(self) -> Deferred[bytes]:
        """
        The whole table as JSON.  Only members that have changed since the last time are
        encoded, in slices, because between two saves all may change.
        """
        return self._saved.encoded()

    def save(self) -> Deferred[None]:
        """
        Write the offsets if they have changed.  A failure is logged, and the next call
        writes them.

        @return: a Deferred that fires once nothing is being written.
        """
        if not self._changed:
            return self._saved.idle()
        self._changed = False
        return self._saved.save().addErrback(self._saved.failed)

    def _add(self, key: tuple[str, str], offsets: dict[int, int]) -> None:
        topic, group = key
        self._table[key] = offsets
        self._groups.setdefault(topic, set()).add(group)
        self._topics.setdefault(group, set()).add(topic)
        self._touch(key)

    def _remove(self, key: tuple[str, str]) -> None:
        topic, group = key
        del self._table[key]
        self._touch(key)
        self._refused = False
        for table, outer, inner in ((self._groups, topic, group), (self._topics, group, topic)):
            table[outer].discard(inner)
            if not table[outer]:
                del table[outer]

    def _touch(self, key: tuple[str, str]) -> None:
        self._text.stale[key] = None
        self._changed = True
        for touched in self._watchers:
            touched(key)

    def _member(self, key: tuple[str, str]) -> bytes | None:
        offsets = self._table.get(key)
        if offsets is None:
            return None
        # Cheaper than the general encoder, and offsets are encoded most.
        text = ",".join([f"{queueId}:{offset}" for queueId, offset in offsets.items()])
        return b"%s:{%s}" % (encodeBody("@".join(key)), text.encode())


def _mended(
    older: ConsumerOffsetSerializeWrapper | None, spoiled: Sequence[bytes]
) -> ConsumerOffsetSerializeWrapper:
    """
    The offsets of all legible tables, the lowest of each: a group may get messages once
    more, and misses none.
    """
    table = {} if older is None else {each: dict(of) for each, of in older.offsetTable.items()}
    for text in spoiled:
        for key, offsets in legible(text, dict[int, int]):
            if "@" in key:
                known = table.setdefault(key, {})
                for queueId, offset in offsets.items():
                    if queueId >= 0 and offset >= 0:
                        known[queueId] = min(offset, known.get(queueId, offset))
    return ConsumerOffsetSerializeWrapper(table)
