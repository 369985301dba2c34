# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.tables.consumeroffsets}.
"""

from __future__ import annotations

import json
import os
from typing import Any

from twisted.internet.task import Clock, Cooperator
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk, Held, atOnce
from txrocket.broker.tables import consumeroffsets as offsetsModule
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.broker.tables.savedtable import TableFile
from txrocket.broker.tables.tabletext import SLICE
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.store.jsontable import Table, checked, sealed

CLIENT = "192.0.2.1:5"


class OffsetsTests(SynchronousTestCase):
    """
    The offsets of groups at a broker.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.path = os.path.join(self.mktemp(), "config", "consumerOffset.json")
        self.offsets = self.make()

    def make(self, inThread: Any = atOnce) -> ConsumerOffsets:
        """
        The offsets as they are after a start.
        """
        offsets = ConsumerOffsets(TableFile(Table(self.disk, self.path), inThread))
        offsets.load()
        return offsets

    def saved(self) -> Any:
        """
        The content of the file.
        """
        with open(self.path, "rb") as file:
            # The one thing in it that is not JSON are numbers as keys.
            text = checked(file.read(), strict=True)
        return json.loads(text.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":'))

    def test_committedOffsetIsReturned(self) -> None:
        """
        An offset is there as soon as it is committed; before, it is -1.
        """
        self.assertEqual(-1, self.offsets.query("G", "T", 0))
        self.offsets.commit("G", "T", 0, 7, CLIENT)
        self.assertEqual(7, self.offsets.query("G", "T", 0))
        for group, topic, queueId in (("G", "T", 1), ("G", "U", 0), ("H", "T", 0), ("T", "G", 0)):
            self.assertEqual(-1, self.offsets.query(group, topic, queueId))

    def test_offsetBeyondMaximumIsRefused(self) -> None:
        """
        An offset up to the queue's maximum is taken, and a larger one is refused.
        """
        for maximum, offset, expected in ((7, 7, 7), (7, 8, 7), (9, 9, 9), (0, 2**63 - 1, 9)):
            taken = self.offsets.commitWithin(maximum, "G", "T", 0, offset, CLIENT)
            self.assertEqual(offset <= maximum, taken)
            self.assertEqual(expected, self.offsets.query("G", "T", 0))

    def test_refusedIsToldOnce(self) -> None:
        """
        A refused commit is logged once for each group and queue, and not remembered for
        ever.
        """
        self.patch(offsetsModule, "_MOST_BEYOND", 2)
        with capturedLogs() as events:
            for group in ("G", "G", "H", "H", "I", "G"):
                self.offsets.commitWithin(3, group, "T", 0, 5, CLIENT)
        said = [formatEvent(each) for each in events]
        self.assertEqual(4, len(said))
        self.assertEqual(
            "192.0.2.1:5 commits offset 5 for group G in queue 0 of T, whose next message gets"
            " 3: refused, the group stays at -1",
            said[0],
        )

    def test_ofReturnsAllQueues(self) -> None:
        """
        All offsets of a group at a topic are returned at once.
        """
        self.offsets.commit("G", "T", 0, 7, CLIENT)
        self.offsets.commit("G", "T", 3, 8, CLIENT)
        self.assertEqual({0: 7, 3: 8}, self.offsets.of("G", "T"))
        self.assertEqual({}, self.offsets.of("G", "U"))

    def test_fullTableRefusesNewPairs(self) -> None:
        """
        An offset beyond the limit is not kept, which is logged once and not for each
        commit, until one that was removed has made room.
        """
        offsets = ConsumerOffsets(TableFile(Table(self.disk, self.path), atOnce), limit=1)
        offsets.commit("G", "T", 0, 7, CLIENT)
        with capturedLogs() as events:
            for _ in range(3):
                offsets.commit("H", "T", 0, 8, CLIENT)
        self.assertEqual(-1, offsets.query("H", "T", 0))
        [event] = events
        self.assertEqual((event["log_level"], event["limit"]), (LogLevel.warn, 1))
        offsets.removeGroup("G")
        offsets.commit("H", "T", 0, 8, CLIENT)
        self.assertEqual(8, offsets.query("H", "T", 0))

    def test_goingBackIsLogged(self) -> None:
        """
        A group may go back, and the log names the client.
        """
        self.offsets.commit("G", "T", 0, 7, CLIENT)
        with capturedLogs() as events:
            self.offsets.commit("G", "T", 0, 9, CLIENT)
            self.offsets.commit("G", "T", 0, 3, CLIENT)
        self.assertEqual(3, self.offsets.query("G", "T", 0))
        (event,) = events
        self.assertEqual(LogLevel.warn, event["log_level"])
        self.assertEqual((CLIENT, 9, 3), (event["address"], event["before"], event["offset"]))

    def test_fileIsJavas(self) -> None:
        """
        The file is Java's: C{topic@group} to queue to offset.
        """
        self.offsets.commit("G", "T", 0, 7, CLIENT)
        self.offsets.commit("G", "T", 1, 8, CLIENT)
        self.successResultOf(self.offsets.save())
        self.assertEqual({"offsetTable": {"T@G": {"0": 7, "1": 8}}}, self.saved())
        again = self.make()
        self.assertEqual({0: 7, 1: 8}, again.of("G", "T"))
        again.commit("G", "T", 0, 9, CLIENT)
        self.assertEqual(9, again.query("G", "T", 0))

    def lay(self, data: bytes, bak: bytes) -> None:
        """
        Put the two files there.
        """
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        for path, content in ((self.path, data), (self.path + ".bak", bak)):
            with open(path, "wb") as file:
                file.write(content)

    def test_fileDamagedTakesLesserOffsets(self) -> None:
        """
        A group whose offsets were damaged goes on where it misses no message.
        """
        newer = b'{"offsetTable":{"T@G":{0:9,1:2},"U@H":{0:4},"V@H":{0:5'
        older = b'{"offsetTable":{"T@G":{0:7,1:3},"W@G":{0:1}}}'
        self.lay(newer, sealed(older))
        offsets = self.make()
        self.assertEqual({0: 7, 1: 2}, offsets.of("G", "T"))
        self.assertEqual({0: 4}, offsets.of("H", "U"))
        self.assertEqual({0: 1}, offsets.of("G", "W"))
        self.assertEqual({"G", "H"}, set(offsets.groups()))

    def test_bothDamagedKeepsWhatIsLegible(self) -> None:
        """
        The legible part of two damaged tables is kept, and written at the next save.
        """
        self.lay(b'{"offsetTable":{"T@G":{0:9},"U', b'{"offsetTable":{"U@G":{0:3},"T@G":{0:8}')
        offsets = self.make()
        self.assertEqual(({0: 8}, {0: 3}), (offsets.of("G", "T"), offsets.of("G", "U")))
        self.successResultOf(offsets.save())
        self.assertEqual({"offsetTable": {"T@G": {"0": 8}, "U@G": {"0": 3}}}, self.saved())

    def test_oneOffsetChangedEncodesOneMember(self) -> None:
        """
        A save encodes the members that have changed, and no others.
        """
        for number in range(1000):
            self.offsets.commit(f"G{number}", "T", 0, 7, CLIENT)
        self.successResultOf(self.offsets.save())
        before = self.offsets._text.encoded
        self.offsets.commit("G5", "T", 0, 8, CLIENT)
        self.successResultOf(self.offsets.save())
        self.assertEqual(1, self.offsets._text.encoded - before)
        self.assertEqual(8, self.make().query("G5", "T", 0))

    def sliced(self, groups: int) -> Clock:
        """
        Have this many groups commit, in a table that is encoded a slice a second.
        """
        clock = Clock()
        slices = Cooperator(
            lambda: lambda: True, scheduler=lambda function: clock.callLater(1, function)
        )
        self.offsets = ConsumerOffsets(TableFile(Table(self.disk, self.path), atOnce, slices))
        for number in range(groups):
            self.offsets.commit(f"G{number}", "T", 0, 7, CLIENT)
        return clock

    def test_manyOffsetsChangedAreEncodedInSlices(self) -> None:
        """
        No turn of the reactor encodes more members than a slice has.
        """
        clock = self.sliced(4 * SLICE)
        saved = self.offsets.save()
        turns = []
        while not saved.called:
            before = self.offsets._text.encoded
            clock.advance(1)
            turns.append(self.offsets._text.encoded - before)
        self.assertGreater(len(turns), 2)
        self.assertLessEqual(max(turns), SLICE)
        self.assertEqual(4 * SLICE, len(self.saved()["offsetTable"]))

    def test_askedForAllEncodesInSlices(self) -> None:
        """
        A caller that wants all offsets gets them once they are encoded, slice by slice.
        """
        clock = self.sliced(3 * SLICE)
        asked = self.offsets.encoded()
        self.assertNoResult(asked)
        self.assertEqual(SLICE, self.offsets._text.encoded)
        clock.pump([1] * 5)
        text = self.successResultOf(asked)
        self.assertEqual(encodeBody(self.offsets.wrapper()), text)
        # They were not written yet, and are at the next save.
        self.successResultOf(self.offsets.save())
        self.assertEqual(3 * SLICE, len(self.saved()["offsetTable"]))

    def test_topicRemovedLooksAtItsGroupsOnly(self) -> None:
        """
        To forget a topic costs as much as it has groups, however many others there are.
        """
        for number in range(100):
            self.offsets.commit("G", f"T{number}", 0, 7, CLIENT)
        self.successResultOf(self.offsets.save())
        self.offsets.removeTopic("T7")
        self.assertEqual([("T7", "G")], list(self.offsets._text.stale))
        self.offsets.removeTopic("absent")
        self.assertEqual([("T7", "G")], list(self.offsets._text.stale))

    def test_unchangedTableIsNotWritten(self) -> None:
        """
        Nothing is written where nothing has changed: every few seconds would be
        for ever.
        """
        thread = Held()
        offsets = self.make(thread)
        self.successResultOf(offsets.save())
        offsets.commit("G", "T", 0, 7, CLIENT)
        offsets.save()
        thread.work()
        offsets.commit("G", "T", 0, 7, CLIENT)
        self.successResultOf(offsets.save())
        self.assertEqual([], thread.jobs)

    def test_saveWaitsForRunningWrite(self) -> None:
        """
        A save during a write of the same offsets ends with that write: a stop waits for it.
        """
        thread = Held()
        offsets = self.make(thread)
        offsets.commit("G", "T", 0, 7, CLIENT)
        offsets.save()
        again = offsets.save()
        self.assertNoResult(again)
        while thread.jobs:
            thread.work()
        self.successResultOf(again)

    def test_unwrittenOffsetsAreWrittenNextTime(self) -> None:
        """
        Offsets that could not be written are written the next time, changed or not.
        """
        self.offsets.commit("G", "T", 0, 7, CLIENT)
        self.disk.failing["pwrite"] = OSError("broken")
        with capturedLogs() as events:
            self.successResultOf(self.offsets.save())
        self.assertEqual([LogLevel.error], [each["log_level"] for each in events])
        del self.disk.failing["pwrite"]
        self.successResultOf(self.offsets.save())
        self.assertEqual({"offsetTable": {"T@G": {"0": 7}}}, self.saved())

    def test_cloneIsIndependent(self) -> None:
        """
        A clone has the offsets, and goes its own way from there.
        """
        self.offsets.commit("G", "T", 0, 7, CLIENT)
        self.offsets.commit("H", "T", 5, 1, CLIENT)
        self.offsets.clone("G", "H", "T")
        self.offsets.clone("G", "H", "missing")
        self.offsets.commit("G", "T", 0, 8, CLIENT)
        self.assertEqual({0: 7}, self.offsets.of("H", "T"))
        self.assertEqual({"H"}, self.offsets.groupsOf("T") - {"G"})
        self.assertEqual({"T"}, self.offsets.topicsOf("H"))
        self.successResultOf(self.offsets.save())
        self.assertEqual({0: 7}, self.make().of("H", "T"))

    def test_removedOffsetsLeaveTheFile(self) -> None:
        """
        Offsets are forgotten by topic and group, in the file too.
        """
        for group, topic in (("G", "T"), ("G", "U"), ("H", "T")):
            self.offsets.commit(group, topic, 0, 7, CLIENT)
        self.offsets.save()
        self.offsets.removeTopic("T")
        self.assertEqual(-1, self.offsets.query("G", "T", 0))
        self.assertEqual({"U"}, self.offsets.topicsOf("G"))
        self.assertEqual(set(), self.offsets.groupsOf("T"))
        self.assertEqual(["G"], list(self.offsets.groups()))
        self.successResultOf(self.offsets.save())
        self.assertEqual({"U@G"}, set(self.saved()["offsetTable"]))
        self.offsets.removeGroup("G")
        self.assertEqual(set(), self.offsets.groupsOf("U"))
        self.successResultOf(self.offsets.save())
        self.assertEqual({}, self.saved()["offsetTable"])

    def test_topicsAreListedByGroup(self) -> None:
        """
        The topics of all groups can be requested at once.
        """
        for group, topic in (("G", "T"), ("G", "U"), ("H", "T")):
            self.offsets.commit(group, topic, 0, 7, CLIENT)
        self.assertEqual({"G": ["T", "U"], "H": ["T"]}, self.offsets.topicsByGroup())
