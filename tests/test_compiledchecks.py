# SPDX-License-Identifier: Apache-2.0
"""
Tests for what the compiled helper refuses: arguments of a wrong type or size, numbers that do
not fit their fields, and tables that change while it works.  Each of these once read memory
that was not its own, left a state half changed, or differed from the way in Python.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import struct
from importlib import import_module
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.test_compiled import START, TIME, V4, Queue, Queues, record
from txrocket.compiled import speed
from txrocket.protocol.record import encodeTopic
from txrocket.store.files import Files, SyncFailed
from txrocket.store.follow import file

# Makes memory end; not every Python has it.
_testcapi: Any = None
with contextlib.suppress(ImportError):
    _testcapi = import_module("_testcapi")

FIELDS = {"T": encodeTopic("T")}
EXT = b'"a":"P","b":"T","c":"","d":"4","e":"0","f":"0","g":"7","h":"0"'


def sent(queueId: int = 0, **changes: Any) -> tuple[Any, ...]:
    """
    A message as C{decodeSends} gives it.
    """
    names = ["opaque", "key", "body", "properties", "born", "flag", "sysFlag", "times", "end"]
    values = dict(zip(names, (1, ("T", queueId), b"body", b"a\x01b", 7, 0, 0, 0, 99), strict=True))
    return tuple((values | changes).values())


def records(sends: list[Any], nexts: dict[Any, Any], **changes: Any) -> Any:
    """
    Make records of messages.
    """
    assert speed is not None
    given = {
        "fields": FIELDS,
        "nexts": nexts,
        "offset": 100,
        "brim": 10_000,
        "mostBody": 1000,
        "timestamp": TIME,
        "hosts": [V4] * len(sends),
        "storeHost": V4,
    }
    return speed.sendRecords(sends, *(given | changes).values())


def frame(header: bytes, body: bytes = b"") -> bytes:
    """
    A request with a JSON header.
    """
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


class RefusedTests(SynchronousTestCase):
    """
    What each function refuses.
    """

    if speed is None:
        skip = "the compiled helper was not built"

    def test_laterMessageFailsNumbersStay(self) -> None:
        """
        If one of several messages cannot be made a record, no queue's next number changes.
        """
        for nexts in (
            {("T", 0): 5, ("T", 1): "six"},
            {("T", 0): 5, ("T", 1): 2**63 - 1},
            {("T", 0): 5, ("T", 1): 2**70},
            {("T", 0): 5, ("T", 1): -1},
        ):
            before = dict(nexts)
            sends = [sent(0), sent(2), sent(0), sent(1)]
            self.assertRaises((TypeError, OverflowError), records, sends, nexts)
            self.assertEqual(nexts, before)

    def test_memoryEndsNumbersStay(self) -> None:
        """
        Wherever memory ends while records are made, either all numbers change or none.
        """
        if _testcapi is None:
            self.skipTest("this Python has no _testcapi, which makes memory end")
        key = [(("T", each),) for each in (0, 1, 2, 0)]
        sends = [sent(key=each) for (each,) in key]
        refused = 0
        for last in range(150):
            nexts = {("T", 0): 1 << 40}
            failed = False
            _testcapi.set_nomemory(last, last + 1)
            try:
                speed.sendRecords(  # type: ignore[union-attr]
                    *(sends, FIELDS, nexts, 100, 10_000, 1000, TIME, [V4] * 4, V4)
                )
            except MemoryError:
                failed = True
            finally:
                _testcapi.remove_mem_hooks()
            if failed:
                refused += 1
                self.assertEqual(nexts, {("T", 0): 1 << 40})
            else:
                wanted = {("T", 0): (1 << 40) + 2, ("T", 1): 1, ("T", 2): 1}
                self.assertEqual(nexts, wanted)
        self.assertGreater(refused, 10)

    def test_numbersGivenInOrder(self) -> None:
        """
        Messages get their queues' next numbers in turn, whichever queues stand beside them.
        """
        nexts = {("T", 0): 5}
        sends = [sent(each) for each in (0, 0, 1, 0, 2, 2, 1)]
        # The same queue by another object, as after the table of topics was made anew.
        sends.append(sent(key=("T" * 1, int("2"))))
        _, puts, totals = records(sends, nexts)
        numbers = [(key[1], number) for key, number, *_ in puts]
        wanted = [(0, 5), (0, 6), (1, 0), (0, 7), (2, 0), (2, 1), (1, 1), (2, 2)]
        self.assertEqual(numbers, wanted)
        self.assertEqual(nexts, {("T", 0): 8, ("T", 1): 2, ("T", 2): 3})
        self.assertEqual(totals["T"][0], 8)

    def test_sendIsNotValidRefused(self) -> None:
        """
        A message without its parts, or with parts of another type, is a TypeError, no crash.
        """
        bad: Any
        for bad in (
            *((), 1, None, [], sent()[:7], sent(key=None), sent(key=()), sent(key=("T",))),
            *(sent(key=(b"T", 0)), sent(key=("T", "0")), sent(body="x"), sent(properties=None)),
            *(sent(properties=bytes(32_768)), sent(born="x"), sent(flag=None), sent(times=1.5)),
        ):
            nexts: dict[Any, Any] = {}
            self.assertRaises(TypeError, records, [sent(), bad], nexts)
            self.assertEqual(nexts, {})

    def test_numberTooLargeRefused(self) -> None:
        """
        A number of a message that does not fit its field is an OverflowError.
        """
        for bad in (sent(2**31), sent(flag=2**31), sent(sysFlag=-(2**40)), sent(born=2**63)):
            self.assertRaises(OverflowError, records, [bad], {})

    def test_tablesNotValidRefused(self) -> None:
        """
        A topic's field that is not bytes, missing addresses and a negative offset are refused.
        """
        changes: dict[str, Any]
        for changes in (
            *({"fields": {"T": "T"}}, {"fields": {}}, {"fields": {"T": bytes(129)}}),
            *({"hosts": []}, {"hosts": [V4[:5]]}, {"hosts": [None]}, {"storeHost": b""}),
            *({"offset": -1}, {"offset": -(2**63)}),
        ):
            self.assertRaises((TypeError, KeyError, ValueError), records, [sent()], {}, **changes)

    def test_noRoomNothingMade(self) -> None:
        """
        Where the file ends before the offset, or numbers are at their limits, no record is made.
        """
        for changes in ({"brim": 0}, {"brim": -(2**63)}, {"offset": 2**63 - 1}, {"mostBody": 1}):
            self.assertEqual(records([sent()], {}, **changes), (b"", [], {}))

    def test_fieldsChangeMeanwhile(self) -> None:
        """
        A table of topics that is emptied by a finalizer while records are made does no harm.
        """

        class Clears:
            def __init__(self, *tables: Any) -> None:
                self.me, self.tables = self, tables

            def __del__(self) -> None:
                for table in self.tables:
                    table.clear()

        wanted = records([sent(each % 3) for each in range(200)], {}, brim=1 << 30)
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(1, 1, 1)
        for _ in range(5):
            fields = {"T": encodeTopic("T")}
            sends = [sent(each % 3) for each in range(200)]
            hosts = [bytes(V4) for _ in sends]
            Clears(fields, sends, hosts)
            assert speed is not None
            # Empty if the finalizer ran before the call.
            got = speed.sendRecords(sends, fields, {}, 100, 1 << 30, 1000, TIME, hosts, V4)
            self.assertIn(got[0], (wanted[0], b""))

    def test_putsNotValidRefused(self) -> None:
        """
        Answers to fewer sends than there are puts, or to what was not put, are refused.
        """
        assert speed is not None
        put = (("T", 0), 5, 100, 91, b"", None)
        for sends, puts in (
            *(([], [put]), ([sent()], [put, put]), ([()], [put]), ([1], [put])),
            *(([sent()], [()]), ([sent()], [None]), ([sent()], [(None, 1, 2)])),
            *(([sent()], [(("T", "x"), 1, 2)]), ([sent()], [(("T", 0), None, 2)])),
            *(([sent(opaque="1")], [put]), ([sent(opaque=2**31)], [put])),
            *(([sent()], [(("T", 0), 2**63, 2)]), ([sent()], [(("T", 0), 1, -(2**70))])),
        ):
            for binary in (False, True):
                for apart in (False, True):
                    self.assertRaises(
                        (TypeError, ValueError, OverflowError),
                        *(speed.sendAnswers, sends, puts, b"head", b"tail", binary, apart),
                    )
        huge = bytes(65_536)
        self.assertRaises(ValueError, speed.sendAnswers, [sent()], [put], huge, b"", True)
        self.assertRaises(ValueError, speed.sendAnswers, [sent()], [put], b"", huge, False)

    def test_startOutsideRefused(self) -> None:
        """
        A place before the first byte or behind the last one is a ValueError.
        """
        assert speed is not None
        data = frame(b'{"code":310,"extFields":{' + EXT + b"}}")
        for start in (-1, -100, -(2**63), len(data) + 1, 2**63 - 1):
            self.assertRaises(ValueError, speed.decodePulls, data, start, 1 << 20)
            self.assertRaises(ValueError, speed.decodeSends, data, start, 1 << 20, {}, b"")
        for limit in (3, 0, -1, -(2**63)):
            self.assertRaises(ValueError, speed.decodePulls, data, 0, limit)
            self.assertRaises(ValueError, speed.decodeSends, data, 0, limit, {}, b"")
        known = {b"T": (("T", 0),)}
        found = speed.decodeSends(data, 0, 1 << 20, known, b"CLUSTER\x01c")
        self.assertEqual(found[1][0][1:4], (("T", 0), b"", b"CLUSTER\x01c"))
        self.assertEqual(speed.decodePulls(data, len(data), 1 << 20), [])

    def test_queuesNotTupleRefused(self) -> None:
        """
        Queues of a topic that are not in a tuple are a TypeError.
        """
        assert speed is not None
        data = frame(b'{"code":310,"extFields":{' + EXT + b"}}")
        for queues in (1, [("T", 0)], None):
            self.assertRaises(
                TypeError, speed.decodeSends, data, 0, 1 << 20, {b"T": queues}, b"CLUSTER\x01c"
            )

    def test_propertiesOfOneCallStayOutOfTheNext(self) -> None:
        """
        Properties are decoded in a room of the call's own: a frame without any has none.
        """
        assert speed is not None
        known = {b"T": (("T", 0),)}
        full = frame(b'{"code":310,"extFields":{' + EXT + b',"i":"k\\u0001v"}}')
        bare = frame(b'{"code":310,"extFields":{' + EXT + b"}}")
        _, found = speed.decodeSends(full + bare, 0, 1 << 20, known, b"C\x01c")
        self.assertEqual([each[3] for each in found], [b"k\x01v\x02C\x01c", b"C\x01c"])

    def test_sizesOverflowRefused(self) -> None:
        """
        Sizes whose sum does not fit are refused before they are added.
        """
        assert speed is not None
        for sizes in ([1, 2**63 - 1], [2**63 - 1, 1], [-(2**63)], [1, -(2**63)], [0]):
            self.assertRaises(ValueError, speed.suspect, b"xxx", sizes)

    def test_slotsTooManyRefused(self) -> None:
        """
        A count of slots or of entries that does not fit 32 bits is a ValueError.
        """
        assert speed is not None
        pair = bytes(12)
        for count, slots, seconds, run in (
            *((1, 2**32, 0, 1), (1, 2**63 - 1, 0, 2**62), (2**31, 4, 0, 1), (-1, 4, 0, 1)),
            *((1, 4, 2**31, 1), (1, 4, 0, -1), (1, 4, 0, 0), (2**63 - 1, 4, 0, 1)),
        ):
            table, dirty = bytearray(16), bytearray(4)
            self.assertRaises(
                ValueError, speed.indexEntries, pair, count, slots, seconds, table, dirty, run
            )
            self.assertEqual(bytes(table), bytes(16))

    def test_emptyTopicHashed(self) -> None:
        """
        The key of a record whose topic is empty is hashed as everywhere: "#" and the key.
        """
        assert speed is not None
        one = record("", properties=b"KEYS\x01k")
        queues = Queues()
        filed = speed.fileRecords(one, START, queues, queues.find, ())
        _, pairs = file([(("", 0), 5, START, len(one), b"KEYS\x01k", None)])
        self.assertEqual((filed[1], filed[2]), (1, pairs))

    def test_offsetAtTheEndNotFiled(self) -> None:
        """
        A record whose end does not fit 64 bits, or with a negative offset, is left to Python.
        """
        assert speed is not None
        for offset in (2**63 - 1, 2**63 - 50, -1, -(2**63)):
            queues = Queues()
            one = record(offset=offset)
            self.assertEqual(speed.fileRecords(one, offset, queues, queues.find, ())[:2], (0, 0))
            self.assertEqual(speed.soundRecords(one, 0, offset, 1 << 20), 0)

    def test_queueOffsetAtTheEndRefused(self) -> None:
        """
        A queue whose next offset does not fit 64 bits is an OverflowError.
        """
        assert speed is not None
        full = Queue(filed=2**63 - 1, tail=bytearray(20))
        one = record(queueOffset=0)
        self.assertRaises(OverflowError, speed.fileRecords, one, START, {}, lambda key: full, ())
        last = Queue(filed=2**63 - 1)
        one = record(queueOffset=2**63 - 1)
        self.assertEqual(speed.fileRecords(one, START, {}, lambda key: last, ())[:2], (0, 0))

    def test_prefixNotAsciiRefused(self) -> None:
        """
        A prefix of ids outside ASCII is a ValueError; a size below 0 is an OverflowError.
        """
        assert speed is not None
        self.assertRaises(ValueError, speed.batchIds, "é", 0, (91,))
        self.assertRaises(OverflowError, speed.batchIds, "7F00", 0, (91, -1, 91))


class SyncTests(SynchronousTestCase):
    """
    Which errors of a sync are told, and how.
    """

    if speed is None:
        skip = "the compiled helper was not built"

    def path(self, name: str = "file") -> str:
        """
        A new file.
        """
        folder = self.mktemp()
        os.makedirs(folder)
        path = os.path.join(folder, name)
        with open(os.fsencode(path), "wb"):
            pass
        return path

    def test_pathNotUtf8Synced(self) -> None:
        """
        A path with bytes that are not UTF-8 is synced as Python opens it.
        """
        assert speed is not None
        path = self.path("a\udcff")
        self.assertEqual(speed.syncPaths([path]), 0)
        self.assertEqual(speed.syncPaths([os.fsencode(path)]), 0)

    def test_nulInPathRefused(self) -> None:
        """
        A path with a NUL is a ValueError: the part before it is another file.
        """
        assert speed is not None
        self.assertRaises(ValueError, speed.syncPaths, [self.path() + "\0x"])

    def test_openFailsNoSyncFailed(self) -> None:
        """
        A file that cannot be opened is an OSError; only a sync that failed is a SyncFailed.
        """
        folder = os.path.dirname(self.path())
        error = self.assertRaises(IsADirectoryError, Files().syncPaths, [folder])
        self.assertEqual((error.errno, error.filename), (errno.EISDIR, folder))
        self.assertNotIsInstance(error, SyncFailed)
        # Such as a pipe, which can be opened but not synced.
        pipe = self.path() + "-pipe"
        os.mkfifo(pipe)
        self.assertRaises(SyncFailed, Files().syncPaths, [pipe])

    def test_noHandlesLeftNoSyncFailed(self) -> None:
        """
        Too many open files are an OSError that says so, by the compiled way as by Python's.
        """
        import resource

        path = self.path()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(open(path, "rb"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (opened.fileno(), hard))
            try:
                error = self.assertRaises(OSError, Files().syncPaths, [path])
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(error.errno, errno.EMFILE)
        self.assertNotIsInstance(error, SyncFailed)
