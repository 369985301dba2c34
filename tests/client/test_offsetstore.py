# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.client.consumer.offsetstore}.
"""

from __future__ import annotations

from pathlib import Path

from twisted.logger import LogLevel

from tests.client.brokers import ConsumerTests
from tests.remoting.doubles import RemotingTests
from txrocket.client.consumer.brokercalls import GroupCalls
from txrocket.client.consumer.offsetstore import LocalOffsets, MemoryOffsets, RemoteOffsets
from txrocket.errors import RemoteSystemError
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode

QUEUES = [MessageQueue("T", "a", queueId) for queueId in range(3)]


class MemoryTests(RemotingTests):
    """
    Offsets in memory.
    """

    def test_memoryKeepsItsOffsets(self) -> None:
        """
        Offsets stay known, because no queue changes its owner, and nothing is saved.
        """
        offsets = MemoryOffsets()
        offsets.load()
        self.assertIsNone(self.successResultOf(offsets.fetch(QUEUES[0])))
        offsets.update(QUEUES[0], 5)
        self.successResultOf(offsets.persist())
        offsets.forget(QUEUES[0])
        self.assertEqual(self.successResultOf(offsets.fetch(QUEUES[0])), 5)

    def test_updateGoesBackOnlyIfAllowed(self) -> None:
        """
        An offset does not go back, unless that is allowed.
        """
        offsets = MemoryOffsets()
        seen = []
        for offset, back in ((0, False), (7, False), (5, False), (5, True)):
            offsets.update(QUEUES[0], offset, back=back)
            seen.append(offsets.get(QUEUES[0]))
        self.assertEqual(seen, [0, 7, 7, 5])


class RemoteTests(ConsumerTests):
    """
    Offsets at brokers.
    """

    def setUp(self) -> None:
        super().setUp()
        self.offsets = RemoteOffsets(GroupCalls(self.cluster, "G"))
        self.offsets.load()
        self.addCleanup(self.cluster.stop)

    def test_fetchedOffsetIsNotSavedBack(self) -> None:
        """
        The broker is asked, and its answer is not saved back.
        """
        self.a.offsets["G", "T", 0] = 9
        self.assertEqual(self.got(self.offsets.fetch(self.queue)), 9)
        self.assertIsNone(self.got(self.offsets.fetch(self.queues[1])))
        self.assertIsNone(self.offsets.get(self.queue))

    def test_persistSavesChangedOffsets(self) -> None:
        """
        The broker gets the offsets of all queues, or of some, each once.
        """
        for queueId in range(3):
            self.offsets.update(self.queues[queueId], 10 + queueId)
        self.got(self.offsets.persist([self.queues[1], self.queues[3]]))
        self.assertEqual(self.a.updates, [(1, 11)])
        self.got(self.offsets.persist())
        self.got(self.offsets.persist())
        self.assertEqual(self.a.updates, [(1, 11), (0, 10), (2, 12)])
        self.offsets.update(self.queues[0], 20)
        self.got(self.offsets.persist())
        self.assertEqual(self.a.updates[3:], [(0, 20)])

    def test_refusedOffsetIsSavedAgain(self) -> None:
        """
        A refused offset is saved the next time, and the failure is logged.
        """
        self.offsets.update(self.queue, 5)
        self.a.failing[RequestCode.UPDATE_CONSUMER_OFFSET] = RemoteSystemError("no")
        self.got(self.offsets.persist())
        self.assertIn("Offset 5 of", self.logged(LogLevel.warn)[0])
        del self.a.failing[RequestCode.UPDATE_CONSUMER_OFFSET]
        self.got(self.offsets.persist())
        self.assertEqual(self.a.updates, [(0, 5)])

    def test_forgottenQueueIsNotSaved(self) -> None:
        """
        A forgotten queue is not saved any more, also if a save was in flight.
        """
        self.offsets.update(self.queue, 5)
        telling = self.offsets.persist()
        self.offsets.forget(self.queue)
        self.got(telling)
        self.assertIsNone(self.offsets.get(self.queue))
        # Had it been noted, it would not be told once the queue has come back.
        self.offsets.update(self.queue, 5)
        self.got(self.offsets.persist())
        self.assertEqual(self.a.updates, [(0, 5), (0, 5)])


class LocalTests(RemotingTests):
    """
    Offsets in a file.
    """

    def setUp(self) -> None:
        super().setUp()
        self.path = Path(self.mktemp(), "deeper", "offsets.json")
        self.offsets = LocalOffsets(self.path)

    def reloaded(self) -> list[int | None]:
        """
        What another consumer reads in the file.
        """
        offsets = LocalOffsets(str(self.path))
        offsets.load()
        return [self.successResultOf(offsets.fetch(each)) for each in QUEUES]

    def backup(self) -> Path:
        """
        The file as it was before.
        """
        return self.path.with_name("offsets.json.bak")

    def test_missingFileHasNoOffsets(self) -> None:
        """
        Without a file there are no offsets, and no error.
        """
        self.assertEqual(self.reloaded(), [None, None, None])
        self.assertEqual(self.logged(LogLevel.error), [])

    def test_fileIsReadableByJava(self) -> None:
        """
        Java's C{LocalFileOffsetStore} can read the file.
        """
        self.offsets.update(QUEUES[1], 12)
        self.successResultOf(self.offsets.persist())
        self.assertEqual(
            self.path.read_text(),
            '{"offsetTable":{{"brokerName":"a","queueId":1,"topic":"T"}:12}}',
        )
        self.assertEqual(self.reloaded(), [None, 12, None])

    def test_javasFileIsRead(self) -> None:
        """
        A file of Java's, with lines and tabs, is read.
        """
        self.path.parent.mkdir(parents=True)
        self.path.write_text(
            '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"'
            '\n\t\t}:3,{\n\t\t\t"brokerName":"a",\n\t\t\t"queueId":2,\n\t\t\t"topic":"T"\n\t\t}:5'
            "\n\t}\n}"
        )
        self.assertEqual(self.reloaded(), [3, None, 5])

    def test_backupReplacesDamagedFile(self) -> None:
        """
        The former file is kept beside it, and counts if the file is damaged or missing.
        """
        self.offsets.update(QUEUES[0], 1)
        self.successResultOf(self.offsets.persist())
        self.offsets.update(QUEUES[0], 2)
        self.successResultOf(self.offsets.persist())
        self.assertEqual(self.reloaded()[0], 2)
        self.path.write_text("")
        self.assertEqual(self.reloaded()[0], 1)
        self.assertIn("offsets.json cannot be read", self.logged(LogLevel.error)[0])
        self.path.unlink()
        self.assertEqual(self.reloaded()[0], 1)
        self.backup().write_bytes(b"\xff")
        self.assertEqual(self.reloaded()[0], None)

    def test_unchangedOffsetsAreNotWritten(self) -> None:
        """
        Unchanged offsets are not written again, so that the former file is older.
        """
        self.offsets.update(QUEUES[0], 1)
        for _ in range(3):
            self.successResultOf(self.offsets.persist([QUEUES[0]]))
        self.assertFalse(self.backup().exists())

    def test_forgottenQueueStaysInFile(self) -> None:
        """
        A forgotten queue stays: no queue changes its owner.
        """
        self.offsets.update(QUEUES[0], 1)
        self.offsets.forget(QUEUES[0])
        self.assertEqual(self.offsets.get(QUEUES[0]), 1)

    def test_unwritableFileIsLoggedAndRetried(self) -> None:
        """
        A file that cannot be written is logged, and tried again.
        """
        self.path.parent.parent.mkdir()
        self.path.parent.write_text("a file where the folder should be")
        self.offsets.update(QUEUES[0], 1)
        self.successResultOf(self.offsets.persist())
        self.assertIn("was not written", self.logged(LogLevel.error)[0])
        self.path.parent.unlink()
        self.successResultOf(self.offsets.persist())
        self.assertEqual(self.reloaded()[0], 1)
