# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.read.getmessage}: what many records at a time give is what a look at each
gives.
"""

from __future__ import annotations

import shutil
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.support import StoreCase
from txrocket.bulk import compiled, python
from txrocket.protocol.javahash import tagsCode
from txrocket.store.messagestore import MessageStore
from txrocket.store.read import getmessage
from txrocket.store.read.getresult import GetMessageResult

LIMITS = st.sampled_from([1, 3, 32])
SIZES = st.sampled_from([300, 1000, 1 << 20])


class GetMessageTests(StoreCase):
    """
    Messages of a queue.
    """

    def filled(self, topics: str, **options: Any) -> MessageStore:
        """
        A store in which messages of the named topics follow each other, over files
        of five or six.
        """
        store = self.start(mappedFileSizeCommitLog=1000, mappedFileSizeConsumeQueue=400, **options)
        for number, topic in enumerate(topics):
            self.gather(store, b"%d" % number * (number % 3), topic=topic, TAGS=str(number % 2))
        store.write()
        return store

    def check(self, store: MessageStore) -> None:
        """
        The answer to any pull is that of a look at each message.
        """
        asked = [
            (topic, offset, most)
            for topic in "TU"
            for offset in range(25)
            for most in (-1, 0, 1, 2, 5, 32, 1000)
        ]
        filters = (None, lambda hashed: hashed == tagsCode("1"))

        def answers() -> list[GetMessageResult]:
            return [store.get(t, 0, at, most, each) for t, at, most in asked for each in filters]

        ways: list[Any] = [python.collectRecords]
        if compiled is not None:
            ways.append(compiled.collectRecords)
        found = []
        for direct in (False, True):
            store.log.direct = direct
            for way in ways:
                self.patch(getmessage, "collectRecords", way)
                found.append(answers())
        self.patch(getmessage, "collectRecords", lambda *given: None)
        slowly = answers()
        store.log.direct = False
        for each in found:
            self.assertEqual(slowly, each)

    @settings(max_examples=25, deadline=None)
    @given(st.text("TTTU", max_size=24), LIMITS, SIZES, LIMITS, st.sampled_from([0, 40, 100]))
    def test_limitsGiveSame(
        self, topics: str, count: int, size: int, onDisk: int, ratio: int
    ) -> None:
        """
        They are given as any others are, within all limits.
        """
        store = self.filled(
            topics,
            memory=2000,
            maxTransferCountOnMessageInMemory=count,
            maxTransferBytesOnMessageInMemory=size,
            maxTransferCountOnMessageInDisk=onDisk,
            accessMessageInMemoryMaxRatio=ratio,
        )
        self.check(store)
        store.stop()
        shutil.rmtree(self.root)

    def test_firstFileDeletedGivesSame(self) -> None:
        """
        Also when the log has lost its first file, and the queue has not heard of it.
        """
        store = self.filled("T" * 20)
        store.log.segments.removeFirst()
        self.check(store)
        store.retention.follow()
        self.check(store)
        store.stop()

    def test_gapGivesSame(self) -> None:
        """
        Also where the queue has entries that stand for nothing.
        """
        store = self.filled("TTT")
        store.appender.nexts["T", 0] = 6
        for _ in range(3):
            self.put(store)
        self.check(store)
        store.stop()

    def test_contiguousTakesOneRead(self) -> None:
        """
        It takes two reads, of the entries, with those that will be asked for next, and of
        the records; the next takes one.
        """
        store = self.filled("TTTTT")
        store.queues.write()
        self.disk.preads.clear()
        got = store.get("T", 0, 1, 3)
        self.assertEqual((3, 4), (got.count, got.nextOffset))
        self.assertEqual([80, len(got.data)], [size for _, _, size in self.disk.preads])
        got = store.get("T", 0, 4, 3)
        self.assertEqual((1, 5), (got.count, got.nextOffset))
        self.assertEqual([len(got.data)], [size for _, _, size in self.disk.preads[2:]])
        store.stop()
