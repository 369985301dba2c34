# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's store on a folder whose log was damaged, and mended by ours.  Not named
C{test_...}: it needs Java, and is run by C{make interop} only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from tests.interop.content import Content
from tests.interop.driven import Driven
from tests.interop.live import TurnsCase
from tests.interop.samples import commands
from txrocket.protocol.record import TRANSACTION_PREPARED_TYPE
from txrocket.store.log.commitlog import HOLE_TOPIC


class HolesTests(TurnsCase):
    """
    Messages are damaged, we start after a crash, and Java goes on.
    """

    def test_filledHoleIsReadByJava(self) -> None:
        """
        A log in which we have filled a hole, and closed, is read and continued by Java
        with every message but the damaged ones, under the offsets that they had.
        """
        self.holes(Driven.stop, among=True)

    def test_filledHoleIsReadAfterCrash(self) -> None:
        """
        The same holds if both end without closing the folder.
        """
        self.holes(Driven.halt, among=True)

    def test_holeAtTheEndOfAQueue(self) -> None:
        """
        The same if the damaged message is the last one of its queue.
        """
        self.holes(Driven.stop, among=False)

    # Java takes the end of the last entry for the end of what is filed, and the entry that
    # stands for nothing is a gigabyte long.
    test_holeAtTheEndOfAQueue.todo = (  # type: ignore[attr-defined]
        "Java files no message until its log is longer than the entry says"
    )

    def holes(self, end: Callable[[Driven], None], *, among: bool) -> None:
        """
        Damage a log, and have Java work on what our start has made of it.

        @param among: whether other messages of the queues follow the damaged ones.
        """
        store = self.ours(self.settings)
        written = self.write(store, "A", 0)
        records = [each for each in written if each["kind"] == "record" and each["body"]]
        ordinary = [each for each in records if each["topic"].startswith("Topic")]
        queue = ordinary[-1]["topic"], ordinary[-1]["queueId"]
        lasts = [each for each in ordinary if (each["topic"], each["queueId"]) != queue]
        middle = len(ordinary) // 2
        damaged = [ordinary[middle // 2], ordinary[middle]] if among else [lasts[-1]]
        store.halt()
        for each in damaged:
            self.flip(each["offset"] + each["size"] // 2)
        # A start trusts what is before the checkpoint, and on a busy machine there is one.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.settings.storePathRootDir, "checkpoint"))
        store = self.ours(self.settings)
        end(store)
        gone = {each["offset"] for each in damaged}
        expected = [each for each in written if each["kind"] == "record"]
        expected = [each for each in expected if each["offset"] not in gone]
        store = self.java(self.settings)
        self.assertEqual(self.messages(store), expected)
        sent = list(commands("B", 20))
        for answer in store.put(sent):
            self.assertEqual(answer["status"], "PUT_OK")
        found = self.messages(store)
        numbers = [(each["topic"], each["queueId"], each["queueOffset"]) for each in found]
        queued = [
            at
            for at, each in zip(numbers, found, strict=True)
            if not each["sysFlag"] & TRANSACTION_PREPARED_TYPE
        ]
        self.assertEqual(len(queued), len(set(queued)))
        self.assertServed(store, found)
        end(store)
        store = self.java(self.settings)
        self.assertEqual(self.messages(store), found)
        self.assertServed(store, found)
        end(store)
        store = self.ours(self.settings)
        self.assertServed(store, found)
        store.stop()
        if end is Driven.stop:
            # After two crashes in a row, Java's index counts some slots twice.
            self.verify()

    def flip(self, offset: int) -> None:
        """
        Change one bit of the log.
        """
        size = self.settings.mappedFileSizeCommitLog
        name = f"{offset - offset % size:020d}"
        with open(os.path.join(self.settings.storePathRootDir, "commitlog", name), "r+b") as file:
            file.seek(offset % size)
            (byte,) = file.read(1)
            file.seek(offset % size)
            file.write(bytes([byte ^ 4]))

    @staticmethod
    def messages(store: Driven) -> Content:
        """
        The records of a store that are messages.
        """
        records = [each for each in store.dump() if each["kind"] == "record"]
        return [each for each in records if not HOLE_TOPIC.startswith(each["topic"])]

    def assertServed(self, store: Driven, records: Content) -> None:
        """
        Every message is where its queue says.
        """
        queues = [each for each in store.dump() if each["kind"] == "queue"]
        entries = {
            (each["topic"], each["queueId"], each["min"] + place): entry[:2]
            for each in queues
            for place, entry in enumerate(each["entries"])
        }
        for each in records:
            # Halves and rollbacks are in no queue.
            if each["sysFlag"] & TRANSACTION_PREPARED_TYPE == 0:
                at = each["topic"], each["queueId"], each["queueOffset"]
                self.assertEqual(entries[at], [each["offset"], each["size"]], at)
