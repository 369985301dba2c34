# SPDX-License-Identifier: Apache-2.0
"""
Tests for what the compiled module refuses: arguments of a wrong type or size, numbers that do
not fit their fields, and tables that change while it works.  Each of these once read memory
that was not its own, left a state half changed, or differed from the way in Python.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import struct
import subprocess
import sys
from functools import partial
from importlib import import_module
from mmap import ACCESS_READ, mmap
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.bulk.support import START, TIME, V4, Queue, Queues, record, sent
from tests.bulk.test_bulk import collectable
from txrocket.bulk import PAIR
from txrocket.bulk import compiled as speed
from txrocket.errors import InvalidMessage
from txrocket.protocol.record import encodeTopic

# Makes memory end; not every Python has it.
_testcapi: Any = None
with contextlib.suppress(ImportError):
    _testcapi = import_module("_testcapi")

REFUSALS = (TypeError, KeyError, ValueError, InvalidMessage)
FIELDS = {"T": encodeTopic("T")}
EXT = b'"a":"P","b":"T","c":"","d":"4","e":"0","f":"0","g":"7","h":"0"'


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
    return speed.encodeRecords(sends, *(given | changes).values())


def frame(header: bytes, body: bytes = b"") -> bytes:
    """
    A request with a JSON header.
    """
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


class RefusedTests(SynchronousTestCase):
    """
    Arguments that each function refuses.
    """

    if speed is None:
        skip = "the compiled module was not built"

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
                speed.encodeRecords(  # type: ignore[union-attr]
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
            *(sent(born="x"), sent(flag=None), sent(times=1.5)),
        ):
            nexts: dict[Any, Any] = {}
            self.assertRaises(TypeError, records, [sent(), bad], nexts)
            self.assertEqual(nexts, {})

    def test_numberTooLargeRefused(self) -> None:
        """
        A number of a message that does not fit its field is an InvalidMessage.
        """
        for bad in (sent(2**31), sent(flag=2**31), sent(sysFlag=-(2**40)), sent(born=2**63)):
            self.assertRaises(InvalidMessage, records, [bad], {})

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
            self.assertRaises(REFUSALS, records, [sent()], {}, **changes)

    def test_noRoomNothingMade(self) -> None:
        """
        Where the file ends before the offset, or numbers are at their limits, no record is made.
        """
        for changes in ({"brim": 0}, {"brim": -(2**63)}, {"offset": 2**63 - 1}, {"mostBody": 1}):
            self.assertEqual(records([sent()], {}, **changes), (b"", [], {}))

    def test_fieldsMayChangeMeanwhile(self) -> None:
        """
        A table of topics that a finalizer empties while records are made does no harm.
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
            got = speed.encodeRecords(sends, fields, {}, 100, 1 << 30, 1000, TIME, hosts, V4)
            self.assertIn(got[0], (wanted[0], b""))

    def test_putsNotValidRefused(self) -> None:
        """
        Answers to fewer sends than there are puts, or to what was not put, are refused.
        """
        assert speed is not None
        put = (("T", 0), 5, 100, 91)
        for sends, puts in (
            *(([], [put]), ([sent()], [put, put]), ([()], [put]), ([1], [put])),
            *(([sent()], [()]), ([sent()], [None]), ([sent()], [(None, 1, 2)])),
            *(([sent()], [(("T", "x"), 1, 2)]), ([sent()], [(("T", 0), None, 2)])),
            *(([sent(opaque="1")], [put]), ([sent(opaque=2**31)], [put])),
            *(([sent()], [(("T", 0), 2**63, 2)]), ([sent()], [(("T", 0), 1, -(2**70))])),
        ):
            for binary in (False, True):
                self.assertRaises(
                    (TypeError, ValueError, OverflowError),
                    *(speed.encodeSendResponses, sends, puts, [(0, 9)], b"head", b"tail", binary),
                )
        encode: Any = partial(speed.encodeSendResponses, [sent()], [put])
        huge = bytes(65_536)
        self.assertRaises(ValueError, encode, [(0, 1)], huge, b"", True)
        self.assertRaises(ValueError, encode, [(0, 1)], b"", huge, False)
        for owners in ([(0, 0)], [(0, -1)], [(0,)], [None], [(0, "1")]):
            self.assertRaises(TypeError, encode, owners, b"", b"", True)

    def test_rowsNotValidRefused(self) -> None:
        """
        Rows of too few or too many values, or of values that are neither numbers nor texts,
        are refused, and so are pieces that are not bytes.
        """
        assert speed is not None
        pieces = b"[", b"]"
        for row in (
            *((), (1,), (1, 2, 3), None, [1, 2], (None, 0), (1.5, 0), (b"x", 0)),
            *((2**63, 0), (1, None), (1, -1), (1, 2**31), (1, 2**31 - 1), ("\ud800", 0)),
        ):
            self.assertRaises(
                (TypeError, ValueError, OverflowError), speed.encodeHeads, pieces, [row]
            )
        for broken in ((), ("[", "]"), (b"[", None)):
            self.assertRaises((TypeError, ValueError), speed.encodeHeads, broken, [(1, 0)])

    def test_startOutsideRefused(self) -> None:
        """
        A place before the first byte or behind the last one is a ValueError.
        """
        assert speed is not None
        data = frame(b'{"code":310,"extFields":{' + EXT + b"}}")
        size = len(data)
        for start, end in (
            *((-1, size), (-100, size), (-(2**63), size), (size + 1, size), (2**63 - 1, size)),
            *((0, size + 1), (0, -1), (5, 4), (0, 2**63 - 1)),
        ):
            self.assertRaises(ValueError, speed.decodePulls, data, start, end)
            call = (None, b"host", data, start, end)
            self.assertRaises(ValueError, speed.decodeSends, [call], {}, b"", False)
        known = {b"T": (("T", 0),)}
        found, _ = speed.decodeSends(
            [(None, b"host", data, 0, size)], known, b"CLUSTER\x01c", False
        )
        self.assertEqual(found.messages[0][1:4], (("T", 0), b"", b"CLUSTER\x01c"))
        self.assertEqual((found.hosts, found.owners), ([b"host"], [(0, 1)]))
        self.assertEqual(speed.decodePulls(data, size, size), [])

    def test_callsNotValidRefused(self) -> None:
        """
        Calls that are not five values of the right kinds are a TypeError.
        """
        assert speed is not None
        decode: Any = speed.decodeSends
        for call in (None, (), (None, b"", b"", 0), (None, "", b"", 0, 0), (None, b"", "", 0, 0)):
            self.assertRaises(TypeError, decode, [call], {}, b"", False)
        self.assertRaises(TypeError, decode, [(None, b"", b"", "0", 0)], {}, b"", False)

    def test_queuesNotTupleRefused(self) -> None:
        """
        Queues of a topic that are not in a tuple are a TypeError.
        """
        assert speed is not None
        data = frame(b'{"code":310,"extFields":{' + EXT + b"}}")
        for queues in (1, [("T", 0)], None):
            call = (None, b"host", data, 0, len(data))
            self.assertRaises(
                TypeError, speed.decodeSends, [call], {b"T": queues}, b"CLUSTER\x01c", False
            )

    def test_propertiesOfOneCallStayOutOfTheNext(self) -> None:
        """
        Properties are decoded in a room of the call's own: a frame without any has none.
        """
        assert speed is not None
        known = {b"T": (("T", 0),)}
        full = frame(b'{"code":310,"extFields":{' + EXT + b',"i":"k\\u0001v"}}')
        bare = frame(b'{"code":310,"extFields":{' + EXT + b"}}")
        data = full + bare
        found, _ = speed.decodeSends([(None, b"host", data, 0, len(data))], known, b"C\x01c", False)
        self.assertEqual([each[3] for each in found.messages], [b"k\x01v\x02C\x01c", b"C\x01c"])

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

    def test_queueOffsetAtTheEndRefused(self) -> None:
        """
        A queue whose next offset does not fit 64 bits is an OverflowError.
        """
        assert speed is not None
        full = Queue(filed=2**63 - 1, tail=bytearray(20))
        one = record(queueOffset=0)
        given: Any = (one, 0, START, {}, lambda key: full, ())
        self.assertRaises(OverflowError, speed.readRecords, *given)
        last = Queue(filed=2**63 - 1)
        one = record(queueOffset=2**63 - 1)
        found = speed.readRecords(one, 0, START, {}, lambda key: last, ())
        self.assertEqual(found[:2], (0, 0))

    def test_prefixNotAsciiRefused(self) -> None:
        """
        A prefix of ids outside ASCII is a ValueError; a size below 0 is an OverflowError.
        """
        assert speed is not None
        self.assertRaises(ValueError, speed.messageIds, "é", 0, (91,))
        self.assertRaises(OverflowError, speed.messageIds, "7F00", 0, (91, -1, 91))

    def test_slotMissingRefused(self) -> None:
        """
        A table that is too short for its slots is refused.
        """
        assert speed is not None
        pair = PAIR.pack(1, 1)
        for slots, table, dirty in ((50, 100, 50), (50, 200, 4), (0, 200, 50)):
            self.assertRaises(
                ValueError,
                *(speed.indexEntries, pair, 1, slots, 0),
                *(bytearray(table), bytearray(dirty), 10),
            )

    def test_wrongTypesRefused(self) -> None:
        """
        Arguments of other types are a TypeError.
        """
        assert speed is not None
        for function in (speed.readRecords, speed.batchRecords, speed.collectRecords):
            self.assertRaises(TypeError, function, 1)
        self.assertRaises(TypeError, speed.checkRecords, record())
        self.assertRaises(TypeError, speed.suspect, b"x", ("x",))
        self.assertRaises(TypeError, speed.suspect, b"x", ["x"])
        self.assertRaises(ValueError, speed.suspect, b"x", [1, 1])
        self.assertRaises(TypeError, speed.messageIds, "7F00", 0, [91])
        self.assertRaises(TypeError, speed.messageIds, "7F00", 0, ("x",))

    def test_queueNotValidRefused(self) -> None:
        """
        Queues without an end, and an invalid table of awaited queues, are refused.
        """
        assert speed is not None
        queues = Queues()
        for found in (1 / 2, Queue(filed=None), Queue(tail=None)):  # type: ignore[arg-type]
            self.assertRaises(
                (AttributeError, TypeError),
                *(speed.readRecords, record(), 0, START, {}, lambda key, found=found: found, ()),
            )
        given = (record(), 0, START, queues, queues.find, 1)
        self.assertRaises(TypeError, speed.readRecords, *given)


def collect(listed: bytes, source: Any) -> Any:
    """
    Collect records of queue 3 of topic T.
    """
    assert speed is not None
    limits = (0, 1 << 20, 1 << 20, 1000, 1 << 20, None, b"T", 3, 0, 1 << 20, 1 << 40)
    return speed.collectRecords(listed, source, *limits)


class BusTests(SynchronousTestCase):
    """
    Mapped files that cannot be read.
    """

    if speed is None:
        skip = "the compiled module was not built"

    def test_truncatedFileIsLeftToPython(self) -> None:
        """
        If a mapped file has become shorter, as on a failing disk, the missing part is left
        to the Python code, as often as it happens, and the process goes on.
        """
        assert speed is not None
        speed.guardBus()
        self.addCleanup(speed.releaseBus)
        data, listed = collectable(100)
        with open(self.mktemp(), "w+b") as opened:
            opened.write(data)
            opened.flush()
            mapped = mmap(opened.fileno(), len(data), access=ACCESS_READ)
            self.addCleanup(mapped.close)
            self.assertEqual((data, 100, 100), collect(listed, mapped))
            opened.truncate(4096)
            for _ in range(3):
                self.assertIsNone(collect(listed, mapped))
                self.assertEqual(1, collect(listed[:20], mapped)[1])

    def bus(self, *lines: str) -> subprocess.CompletedProcess[bytes]:
        """
        Run a program in which C{gone()} reads what is not in its file any more.
        """
        program = (
            "import faulthandler, mmap, os, signal, tempfile",
            "from txrocket.bulk import compiled as speed",
            "file = tempfile.TemporaryFile()",
            "file.truncate(4096)",
            "mapped = mmap.mmap(file.fileno(), 4096)",
            "file.truncate(0)",
            "gone = lambda: mapped[0]",
            "listed = bytes(8) + (100).to_bytes(4, 'big') + bytes(8)",
            (
                "collect = lambda: speed.collectRecords("
                "listed, mapped, 0, 999, 999, 9, 999, None, b'T', 0, 0, 999, 0)"
            ),
            *lines,
        )
        return subprocess.run(
            [sys.executable, "-c", "\n".join(program)],
            check=False,
            capture_output=True,
            timeout=60,
        )

    def test_busErrorElsewhereEndsProcess(self) -> None:
        """
        A bus error elsewhere ends the process as ever, with the guard and without it.
        """
        guarded = ("speed.guardBus()", "assert collect() is None")
        for lines in (("assert not speed.isGuarded()",), guarded):
            ended = self.bus(*lines, "gone()")
            self.assertEqual(-signal.SIGBUS, ended.returncode, ended.stderr)

    def test_faulthandlerTellsBusOnce(self) -> None:
        """
        In a program with faulthandler, from before or after the guard, a bus error is told
        once and ends the program.
        """
        enable = "faulthandler.enable()"
        guard, pull = "speed.guardBus()", "assert collect() is None"
        for lines in ((enable, guard, pull), (guard, enable, pull), (guard, pull, enable, pull)):
            ended = self.bus(*lines, "gone()")
            self.assertEqual(-signal.SIGBUS, ended.returncode, ended.stderr)
            told = ended.stderr.count(b"Fatal Python error: Bus error")
            self.assertIn(told, (1, 2, 3), ended.stderr)

    def test_busSentEndsAsEver(self) -> None:
        """
        A SIGBUS that another process sends is not lost: it ends a process that has no
        handler, and reaches one that has.
        """
        sent = "os.kill(os.getpid(), signal.SIGBUS)"
        ended = self.bus("speed.guardBus()", sent, "print('still here')")
        self.assertEqual((-signal.SIGBUS, b""), (ended.returncode, ended.stdout))
        ended = self.bus(
            "signal.signal(signal.SIGBUS, lambda *told: print('heard'))",
            "speed.guardBus()",
            sent,
        )
        self.assertEqual((0, b"heard\n"), (ended.returncode, ended.stdout))

    def test_busReleased(self) -> None:
        """
        The handler that the guard found is back once it is released, unless another was
        set since then.
        """
        state = "print(signal.getsignal(signal.SIGBUS) is own, speed.isGuarded())"
        ended = self.bus(
            "own = lambda *told: print('heard')",
            "signal.signal(signal.SIGBUS, own)",
            "speed.guardBus(); speed.guardBus(); speed.releaseBus(); speed.releaseBus()",
            state,
            "os.kill(os.getpid(), signal.SIGBUS)",
        )
        self.assertEqual((0, b"True False\nheard\n"), (ended.returncode, ended.stdout))
