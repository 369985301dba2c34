# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.log.append} and L{txrocket.store.log.write}: many messages at a time, and
what becomes of them.
"""

from __future__ import annotations

import errno

from tests.store.support import HOST, StoreCase
from txrocket.bulk import SentMessage
from txrocket.errors import DiskFull, InvalidMessage, MessageTooLarge, StoreError
from txrocket.store.messagestore import MessageStore


def message(body: bytes = b"body", queueId: int = 0, topic: str = "T") -> SentMessage:
    """
    A message that a producer has sent.
    """
    return SentMessage(1, (topic, queueId), body, b"a\x01b", 7)


class AppendManyTests(StoreCase):
    """
    L{MessageStore.appendMany}.
    """

    def append(self, store: MessageStore, *messages: SentMessage) -> int:
        """
        Append messages.

        @return: how many were.
        """
        return len(store.appendMany(list(messages), [HOST] * len(messages)).appended)

    def test_allAreWrittenInOrder(self) -> None:
        """
        Messages of several queues are in the log one after the other, each with the next
        offset of its queue.
        """
        store = self.start()
        made = store.appendMany(
            [message(b"1"), message(b"2", 1), message(b"3"), message(b"4", topic="U")], [HOST] * 4
        )
        store.write()
        self.assertEqual([each[:2] for each in made.appended],
            [(("T", 0), 0), (("T", 1), 0), (("T", 0), 1), (("U", 0), 0)])  # fmt: skip
        self.assertEqual({key: count for key, (count, _) in made.totals.items()}, {"T": 3, "U": 1})
        self.assertEqual(2, store.get("T", 0, 0, 32).count)
        store.stop()

    def test_fullFileEndsAppend(self) -> None:
        """
        An append ends before the first message that needs another file of the log; the next
        one begins that file.
        """
        store = self.start(mappedFileSizeCommitLog=1000)
        messages = [message(b"x" * 200) for _ in range(5)]
        self.assertEqual(3, self.append(store, *messages))
        self.assertEqual(2, self.append(store, *messages[3:]))
        store.write()
        self.assertEqual([0, 1000], store.log.segments.bases)
        self.assertEqual(5, store.maxOffset("T", 0))
        store.stop()

    def test_nothingAppendsNothing(self) -> None:
        """
        No message is no error.
        """
        store = self.start()
        self.assertEqual(0, self.append(store))
        store.stop()

    def test_invalidMessageRefusesAll(self) -> None:
        """
        If one message cannot be stored, none is appended, and no queue offset is lost.
        """
        store = self.start()
        for bad in (message(topic="a/b"), message(queueId=-1), message()._replace(flag=2**31)):
            self.assertRaises(InvalidMessage, self.append, store, message(), bad)
        large = message(b"x" * (store.settings.maxMessageSize + 1))
        self.assertRaises(MessageTooLarge, self.append, store, large)
        self.assertEqual(0, store.log.end)
        self.assertEqual(1, self.append(store, message(), large))
        self.assertEqual({("T", 0): 1}, store.appender.nexts)
        store.stop()


class WriteTests(StoreCase):
    """
    L{MessageStore.pendingWrite}.
    """

    def test_appendsShareTheWrite(self) -> None:
        """
        All appends before a write share it; it has no error while it is pending, nor once the
        messages are in the files.
        """
        store = self.start()
        pending = store.pendingWrite
        store.appendMany([message()], [HOST])
        self.gather(store)
        self.assertIs(pending, store.pendingWrite)
        self.assertIsNone(pending.error)
        store.write()
        self.assertIsNone(pending.error)
        self.assertIsNot(pending, store.pendingWrite)
        store.stop()

    def test_failedWriteTellsItsMessages(self) -> None:
        """
        A write that finds no room has an error; the next one has not, and its messages get
        the offsets of those that were lost.
        """
        store = self.start()
        self.put(store)
        pending = store.pendingWrite
        store.appendMany([message()], [HOST])
        pwrite = self.disk.pwrite

        def full(handle: int, data: bytes, offset: int) -> None:
            raise OSError(errno.ENOSPC, "full")

        self.patch(self.disk, "pwrite", full)
        self.assertRaises(DiskFull, store.write)
        self.assertIsInstance(pending.error, DiskFull)
        self.patch(self.disk, "pwrite", pwrite)
        following = store.pendingWrite
        [(_, queueOffset, _, _)] = store.appendMany([message()], [HOST]).appended
        store.write()
        self.assertEqual((1, None), (queueOffset, following.error))
        self.assertIsInstance(pending.error, DiskFull)
        store.stop()

    def test_newFileWritesWhatIsBefore(self) -> None:
        """
        If a new file is begun, the messages before it are written, and those in it have a
        write of their own, which may fail alone.
        """
        store = self.start(mappedFileSizeCommitLog=1000)
        first = store.pendingWrite
        store.appendMany([message(b"x" * 500)], [HOST])
        store.appendMany([message(b"x" * 500)], [HOST])
        second = store.pendingWrite
        self.assertIsNot(first, second)
        self.patch(self.disk, "pwrite", self.refuse)
        self.assertRaises(StoreError, store.write)
        self.assertIsNone(first.error)
        self.assertIsNotNone(second.error)

    def refuse(self, handle: int, data: bytes, offset: int) -> None:
        """
        A disk that takes nothing.
        """
        raise OSError(errno.EIO, "broken")
