# SPDX-License-Identifier: Apache-2.0
"""
Tests for reading a store that is damaged: L{txrocket.store.read.entryreader},
L{txrocket.store.damage.entrysearch}, L{txrocket.store.damage.recordcheck} and L{DamageLog}.

All hold with the compiled module and without it.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import HOST, StoreCase
from txrocket.bulk import chosen, compiled
from txrocket.protocol.javahash import tagsCode
from txrocket.protocol.record import decodeRecord, decodeRecords, encodeRecord, encodeTopic
from txrocket.store.damage import damagelog, entrysearch
from txrocket.store.damage.damagelog import DamageLog
from txrocket.store.damage.recordcheck import Origin, fits, recordFault
from txrocket.store.messagestore import MessageStore
from txrocket.store.read.getresult import GetMessageStatus

FIRST = "00000000000000000000"


class DamageCase(StoreCase):
    """
    A store of which files are changed once it has started: what a start would put right
    is not what is tested here.
    """

    #: How the store is read: by pread, mapped, or without the compiled module.
    WAY = "plain"

    def setUp(self) -> None:
        super().setUp()
        self.events: list[LogEvent] = []
        self.changes: list[tuple[str, int, bytes]] = []
        observer: Any = self.events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def logged(self) -> list[str]:
        """
        The damage that was logged.
        """
        return [
            formatEvent(each)
            for each in self.events
            if each["log_namespace"] == damagelog.__name__
            or str(each["log_namespace"]).endswith("DamageLog")
        ]

    def filled(self, count: int = 10, size: int = 200, topics: str = "T") -> MessageStore:
        """
        A stopped store with a number of messages in each of some topics.
        """
        store = self.start(mappedFileSizeCommitLog=1 << 20)
        for number in range(count):
            for topic in topics:
                self.put(store, b"%d:" % number + b"x" * size, topic=topic, TAGS=f"t{number % 2}")
        self.successResultOf(store.stop())
        return store

    def reopened(self, **options: Any) -> MessageStore:
        """
        The store, whose files are changed once it has started.
        """
        if self.WAY == "plain":
            self.disk.direct = False
        else:
            self.disk.direct = True
            if self.WAY == "mapped":
                chosen.guardBus()
                self.addCleanup(chosen.releaseBus)
        store = self.start(mappedFileSizeCommitLog=1 << 20, **options)
        self.addCleanup(store.stop)
        self.damage()
        # The start has read some entries already.
        store.queues._ahead.clear()
        return store

    def damage(self) -> None:
        """
        Change the files.
        """
        while self.changes:
            path, position, data = self.changes.pop(0)
            with open(self.path(*path.split("/")), "r+b") as opened:
                opened.seek(position)
                opened.write(data)

    def change(self, path: str, position: int, data: bytes) -> None:
        """
        Have a part of a file overwritten.
        """
        self.changes.append((path, position, data))

    def flip(self, path: str, position: int, bit: int = 1) -> None:
        """
        Have a bit of a file flipped.
        """
        [before] = self.bytesOf(*path.split("/"))[position : position + 1]
        self.change(path, position, bytes([before ^ bit]))

    def record(self, number: int, topics: int = 1) -> tuple[int, int]:
        """
        Where the record of a message of the first topic begins in the log, and its size.
        """
        data, at = self.bytesOf("commitlog", FIRST), 0
        for _ in range(number * topics):
            at += int.from_bytes(data[at : at + 4], "big")
        return at, int.from_bytes(data[at : at + 4], "big")

    def pulled(self, store: MessageStore, most: int = 32, **filters: Any) -> list[int]:
        """
        The queue offsets of all messages, got as a consumer gets them that goes on where
        the pull says.
        """
        found, offset = [], store.minOffset("T", 0)
        while offset < store.maxOffset("T", 0):
            got = store.get("T", 0, offset, most, **filters)
            self.assertGreater(got.nextOffset, offset)
            messages = decodeRecords(got.data, checkCrc=True)
            self.assertEqual(got.count, len(messages))
            self.assertEqual(got.status is GetMessageStatus.FOUND, bool(messages))
            for each in messages:
                self.assertTrue(each.body.startswith(b"%d:" % each.queueOffset), each)
                self.assertTrue(offset <= each.queueOffset < got.nextOffset)
            found += [each.queueOffset for each in messages]
            offset = got.nextOffset
        return found


class RecordTests(DamageCase):
    """
    Records that are not the ones of their entries.
    """

    def check(self, expected: list[int], told: str) -> None:
        """
        Only some messages are served, however they are pulled, and the others are
        logged once.
        """
        store = self.reopened()
        for most in (32, 1, 3):
            self.assertEqual(expected, self.pulled(store, most))
        self.assertEqual(expected, self.pulled(store, accepts=lambda message: True))
        every = self.pulled(store, matches=lambda hashed: True)
        self.assertEqual(expected, every)
        missing = 10 - len(expected)
        self.assertEqual(missing, store.damage.count)
        self.assertEqual(missing, len(self.logged()))
        for line in self.logged():
            self.assertIn("in queue 0 of topic T is damaged", line)
            self.assertIn(told, line)

    def test_flippedQueueOffsetIsNotServed(self) -> None:
        """
        A record whose queue offset is not its entry's is left out.
        """
        self.filled()
        at, _ = self.record(4)
        self.flip(f"commitlog/{FIRST}", at + 25)
        self.check([0, 1, 2, 3, 5, 6, 7, 8, 9], f"at {at} in the commit log")

    def test_flippedHeadIsNotServed(self) -> None:
        """
        So is one with another size, magic code, queue, place, body length or topic.
        """
        for position in (3, 7, 15, 35, 87):
            self.setUp()
            self.filled()
            at, _ = self.record(4)
            self.flip(f"commitlog/{FIRST}", at + position)
            self.check([0, 1, 2, 3, 5, 6, 7, 8, 9], f"at {at} in the commit log")

    def test_flippedTopicIsNotServed(self) -> None:
        """
        So is one that names another topic.
        """
        self.filled()
        at, _size = self.record(4)
        topic = self.bytesOf("commitlog", FIRST).index(b"\x01T", at + 88)
        self.flip(f"commitlog/{FIRST}", topic + 1)
        self.check([0, 1, 2, 3, 5, 6, 7, 8, 9], "names the topic b'U'")

    def test_flippedBodyIsNotServed(self) -> None:
        """
        A body that does not match its CRC is not served by a store that did not write it.
        """
        self.filled()
        at, _ = self.record(4)
        self.flip(f"commitlog/{FIRST}", at + 150)
        self.check([0, 1, 2, 3, 5, 6, 7, 8, 9], "does not match its CRC")

    def test_zeroedSectorIsSteppedOver(self) -> None:
        """
        A sector of zeros costs the messages that lie in it, and no other.
        """
        self.filled()
        self.change(f"commitlog/{FIRST}", 1024, bytes(512))
        size = self.record(0)[1]
        lost = range(1024 // size, 1536 // size + 1)
        self.check([each for each in range(10) if each not in lost], "")

    def test_allZeroedGoesOn(self) -> None:
        """
        A pull that finds no sound message says so, and where to go on.
        """
        self.filled()
        self.change(f"commitlog/{FIRST}", 0, bytes(self.record(9)[0]))
        store = self.reopened()
        got = store.get("T", 0, 0, 4)
        self.assertEqual(GetMessageStatus.MESSAGE_WAS_REMOVING, got.status)
        self.assertEqual(b"", got.data)
        self.assertGreater(got.nextOffset, 0)
        self.assertEqual([9], self.pulled(store))

    def test_ownBodiesAreNotCompared(self) -> None:
        """
        Bodies that this process wrote are taken for sound; all else of them is not.
        """
        self.filled(2)
        store = self.reopened()
        self.put(store, b"2:own")
        at, _ = self.record(2)
        position = self.bytesOf("commitlog", FIRST).index(b"2:own") + 2
        self.change(f"commitlog/{FIRST}", position, b"OWN")
        self.damage()
        self.assertEqual(b"2:OWN", decodeRecord(store.get("T", 0, 2, 1).data).body)
        self.flip(f"commitlog/{FIRST}", at + 27)
        self.damage()
        self.assertEqual(GetMessageStatus.MESSAGE_WAS_REMOVING, store.get("T", 0, 2, 1).status)

    def test_lookedUpByIdOrKeyIsSound(self) -> None:
        """
        A damaged record is given by neither its offset nor its key, nor to timers.
        """
        store = self.start()
        appended = self.put(store, b"0:body", KEYS="k")
        self.put(store, b"1:body", KEYS="k")
        self.successResultOf(store.stop())
        position = self.bytesOf("commitlog", FIRST).index(b"0:body")
        self.flip(f"commitlog/{FIRST}", position + 3)
        store = self.start()
        self.addCleanup(store.stop)
        self.damage()
        self.assertIsNone(store.messageAt(appended.offset))
        records, _, _ = store.query("T", "k", 0, 2**62, 10)
        self.assertEqual([b"1:body"], [decodeRecord(each).body for each in records])
        places = [(at, size) for at, size, _ in store.entries("T", 0, 0, 2)]
        first, second = store.messages(places)
        self.assertIsNone(first)
        assert second is not None
        self.assertEqual(b"1:body", second.body)
        self.assertEqual(1, len(self.logged()))
        self.assertIn("at 0 in the commit log is damaged", self.logged()[0])

    def test_timeOfDamagedIsPassedOver(self) -> None:
        """
        A search by time goes by sound messages: a damaged one neither answers nor leads
        it astray.
        """
        store = self.start()
        for number in range(9):
            self.put(store, b"%d" % number)
            self.clock.advance(10)
        times = [store.storeTimestamp("T", 0, each) or 0 for each in range(9)]
        self.successResultOf(store.stop())
        # The one that a search by halves looks at first, and its neighbour.
        for number in (4, 5):
            at, _ = self.record(number)
            self.flip(f"commitlog/{FIRST}", at + 27, 128)
            self.change(f"commitlog/{FIRST}", at + 56, b"\x7f")
        store = self.start()
        self.addCleanup(store.stop)
        self.damage()
        self.assertIsNone(store.storeTimestamp("T", 0, 4))
        for number in (0, 1, 2, 3, 6, 7, 8):
            self.assertEqual(number, store.offsetByTime("T", 0, times[number]), number)
        self.assertIn(store.offsetByTime("T", 0, times[5]), (3, 4, 5, 6))


class EntryTests(DamageCase):
    """
    Entries that are damaged while their messages are not.
    """

    def entry(self, number: int, position: int, data: bytes) -> None:
        """
        Have a part of an entry overwritten.
        """
        self.change(f"consumequeue/T/0/{FIRST}", number * 20 + position, data)

    def check(self, damaged: int = 1) -> None:
        """
        All messages are served, and the damage is logged once.
        """
        store = self.reopened(mappedFileSizeConsumeQueue=200)
        everything = list(range(10))
        for most in (32, 1, 3):
            self.assertEqual(everything, self.pulled(store, most))
        self.assertEqual(everything, self.pulled(store, accepts=lambda message: True))
        self.assertEqual((damaged, damaged), (store.damage.count, len(self.logged())))
        for line in self.logged():
            self.assertIn("its message was found at", line)
        self.successResultOf(store.stop())

    def test_damagedPlaceIsFoundAgain(self) -> None:
        """
        A message is served though its entry names a place of nothing, of another message,
        or outside of the log.
        """
        self.filled()
        other, _ = self.record(2)
        files = self.bytesOf("consumequeue", "T", "0", FIRST)
        for place in (other, other + 1, 5, 1 << 19, 2**63 - 1, -1, -(2**63)):
            self.entry(0, 0, files)
            self.damage()
            self.entry(5, 0, place.to_bytes(8, "big", signed=True))
            self.events.clear()
            self.check()

    def test_damagedSizeIsFoundAgain(self) -> None:
        """
        So it is if its entry names another size; no answer has more than the records.
        """
        self.filled()
        files = self.bytesOf("consumequeue", "T", "0", FIRST)
        right = self.record(5)[1]
        legal = (right - 1, right + 1, 91, 2 * right)
        for size in (*legal, 1, 90, 142_000, 0x3FFFFFFE, 0x40000000, -1, 0x7FFFFFFE):
            self.entry(0, 0, files)
            self.damage()
            self.entry(5, 8, size.to_bytes(4, "big", signed=True))
            self.events.clear()
            self.check()

    def test_largeEntryGivesNoLargeAnswer(self) -> None:
        """
        The first record of a pull is bound by the largest that there can be, and by its
        own size.
        """
        self.filled()
        self.entry(5, 8, (2000).to_bytes(4, "big"))
        store = self.reopened()
        self.assertEqual(self.record(5)[1], len(store.get("T", 0, 5, 1).data))

    def test_damagedAmongOthersIsFoundAgain(self) -> None:
        """
        So it is where messages of other topics lie between.
        """
        self.filled(topics="TU")
        self.entry(5, 0, bytes(20)[:8])
        store = self.reopened()
        self.assertEqual(list(range(10)), self.pulled(store))

    def test_damagedRunIsFoundAgain(self) -> None:
        """
        So are those of several entries; each pull searches once.
        """
        self.filled()
        for number in (4, 5, 6):
            self.entry(number, 0, b"\x7f")
        self.check(3)

    def test_foundByItsOwnTag(self) -> None:
        """
        A message whose entry is damaged is matched by its own tag.
        """
        self.filled()
        self.entry(5, 0, b"\x7f" + bytes(19))
        store = self.reopened()
        wanted = tagsCode("t1")
        self.assertEqual(
            [1, 3, 5, 7, 9], self.pulled(store, matches=lambda hashed: hashed == wanted)
        )

    def test_searchIsBounded(self) -> None:
        """
        A search that reads all it may without finding the message leaves it out.
        """
        self.patch(entrysearch, "_MOST_BYTES", 100)
        self.filled(topics="TU")
        self.entry(5, 0, b"\x7f")
        store = self.reopened()
        self.assertEqual([0, 1, 2, 3, 4, 6, 7, 8, 9], self.pulled(store))
        self.assertIn("names a place outside of the log", self.logged()[0])

    def test_knownPlacesAreBounded(self) -> None:
        """
        No more places are remembered than there is room for.
        """
        self.patch(entrysearch, "_KNOWN", 1)
        self.filled()
        for number in (2, 5, 8):
            self.entry(number, 0, b"\x7f")
        self.check(3)


class HandleRecordTests(RecordTests):
    """
    The same with handles of the system's.
    """

    WAY = "handle"


class MappedRecordTests(RecordTests):
    """
    The same with mapped files.
    """

    WAY = "mapped"
    skip = None if compiled is not None else "the compiled module was not built"


class HandleEntryTests(EntryTests):
    """
    The same with handles of the system's.
    """

    WAY = "handle"


class FitTests(SynchronousTestCase):
    """
    Tests for L{fits}.
    """

    def test_asRecordFault(self) -> None:
        """
        A record fits if nothing is wrong with it, whichever of its bits is flipped; one
        with longer addresses is left to the other.
        """
        origin = Origin("T", 3)
        numbers = (3, 0, 7, 500, 0, 1, bytes(8), 1, HOST)
        sound = encodeRecord(encodeTopic("T"), b"body", b"TAGS\x01a", *numbers)
        size = len(sound)
        self.assertTrue(fits(b"xy" + sound, 2, size, 500, origin, 7, 501))
        self.assertFalse(fits(sound[:-1], 0, size, 500, origin, 7, 0))
        for position in range(size):
            for bit in (1, 16, 128):
                data = bytearray(sound)
                data[position] ^= bit
                for below in (500, 501):
                    fault = recordFault(bytes(data), 0, size, 500, origin, 7, checkBody=below > 500)
                    found = fits(bytes(data), 0, size, 500, origin, 7, below)
                    self.assertEqual(fault is None, found, (position, bit, fault))
        numbers = (3, 0, 7, 500, 0, 1, bytes(20), 1, HOST)
        longer = encodeRecord(encodeTopic("T"), b"body", b"", *numbers)
        self.assertFalse(fits(longer, 0, len(longer), 500, origin, 7, 501))
        self.assertIsNone(recordFault(longer, 0, len(longer), 500, origin, 7, checkBody=True))


class DamageLogTests(DamageCase):
    """
    Tests for L{DamageLog}.
    """

    def test_eachPlaceIsToldOnce(self) -> None:
        """
        A place that is met again is neither logged nor counted again.
        """
        told = DamageLog()
        for _ in range(3):
            told.message("T", 0, 5, 500, "no record")
            told.message("T", 1, 5, 600, "no record")
            told.record(500, "no record")
        self.assertEqual((3, 3), (told.count, len(self.logged())))
        self.assertEqual(
            "Message 5 in queue 0 of topic T is damaged and is not delivered: the record at 500"
            " in the commit log is not sound: no record",
            self.logged()[0],
        )

    def test_placesAreBounded(self) -> None:
        """
        Once there are too many places, they are counted, and no more are listed.
        """
        self.patch(damagelog, "_MOST", 2)
        told = DamageLog()
        for place in range(5):
            told.record(place, "no record")
        self.assertEqual((5, 3), (told.count, len(self.logged())))
        self.assertIn("no more are listed here", self.logged()[-1])
