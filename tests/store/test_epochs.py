# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.store.replica.epochs}.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.store.disk import Disk, full, ioError
from txrocket.errors import DiskFull, StoreCorrupt, StoreError, StoreFailed
from txrocket.store.replica.epochs import (
    EPOCH_FILE,
    Epoch,
    EpochFile,
    commonEnd,
    decodeEpochs,
    encodeEpochs,
)

_PATH = f"/store/{EPOCH_FILE}"

# As RocketMQ 5.3.3 writes it.
_JAVA = b"2\n773307083\n7-7000\n8-8000\n"
_TWO = [Epoch(7, 7000), Epoch(8, 8000)]


def _history(moves: list[tuple[int, int, int]]) -> list[list[int]]:
    """
    The logs of three brokers, a number for each byte: the epoch of its master.

    @param moves: which broker leads next, how many bytes of the last leader it has, and how
        many it writes.
    """
    logs: list[list[int]] = [[], [], []]
    last = 0
    for epoch, (number, have, count) in enumerate(moves, 1):
        if number != last:
            logs[number] = logs[last][: max(len(logs[last]) - have, 0)]
        logs[number] = logs[number] + [epoch] * count
        last = number
    return logs


def _epochs(log: list[int]) -> list[Epoch]:
    """
    The epochs of a log.
    """
    return [Epoch(epoch, at) for at, epoch in enumerate(log) if at == 0 or log[at - 1] != epoch]


class CommonEndTests(SynchronousTestCase):
    """
    Up to where two logs agree.
    """

    @given(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4)), max_size=8),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 9),
    )
    def test_bytesBeforeItAgree(
        self, moves: list[tuple[int, int, int]], first: int, second: int, lost: int
    ) -> None:
        """
        Whatever masters have written, the bytes before the common end are the same in both
        logs, also if one has lost its last bytes, and those behind it are not.
        """
        logs = _history(moves)
        mine, theirs = logs[first], logs[second]
        epochs = _epochs(mine)
        mine = mine[: max(len(mine) - lost, 0)]
        common = commonEnd(epochs, len(mine), _epochs(theirs), len(theirs))
        agree = next(
            (at for at, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other),
            min(len(mine), len(theirs)),
        )
        if common is None:
            self.assertEqual(0, agree)
        else:
            self.assertEqual(agree, common)

    def test_cases(self) -> None:
        """
        The newest epoch with the same start decides, and the shorter end of it.
        """
        one, two, three = Epoch(1, 0), Epoch(2, 500), Epoch(3, 700)
        for mine, mineEnd, theirs, theirsEnd, expected in (
            ([one, two], 800, [one, two, three], 900, 700),
            ([one, two], 600, [one, two, three], 900, 600),
            ([one, two, three], 900, [one, two], 800, 700),
            ([one, two], 800, [one, Epoch(3, 500)], 900, 500),
            ([one, two], 800, [one, Epoch(2, 400)], 900, 400),
            ([one], 300, [one], 300, 300),
            ([one, two], 500, [one, two], 900, 500),
            # An epoch whose bytes are lost says nothing.
            ([one, two], 300, [one, two], 900, 300),
            ([one, two], 450, [one, Epoch(3, 400)], 900, 400),
            ([Epoch(1, 100)], 800, [one], 900, None),
            ([], 0, [one], 900, None),
            ([one], 900, [], 0, None),
        ):
            found = commonEnd(mine, mineEnd, theirs, theirsEnd)
            self.assertEqual(expected, found, (mine, mineEnd, theirs, theirsEnd))
            self.assertEqual(expected, commonEnd(theirs, theirsEnd, mine, mineEnd))


class FormatTests(SynchronousTestCase):
    """
    The text of the file.
    """

    def test_asRocketMQ(self) -> None:
        """
        It is that of RocketMQ 5, with its checksum.
        """
        self.assertEqual(_JAVA, encodeEpochs(_TWO))
        self.assertEqual(_TWO, decodeEpochs(_JAVA))

    @given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=20))
    def test_roundTrip(self, pairs: list[tuple[int, int]]) -> None:
        """
        What was written is read, if epochs and starts grow; else it is refused.
        """
        epochs = [Epoch(*each) for each in pairs]
        grow = all(
            later.epoch > earlier.epoch and later.start > earlier.start
            for earlier, later in pairwise(epochs)
        )
        if grow:
            self.assertEqual(epochs, decodeEpochs(encodeEpochs(epochs)))
        else:
            self.assertRaises(ValueError, decodeEpochs, encodeEpochs(epochs))

    def test_checksumOfZeroNotChecked(self) -> None:
        """
        A checksum of 0 matches everything, as in RocketMQ, and so may be written by hand.
        """
        self.assertEqual(_TWO, decodeEpochs(b"2\n0\n7-7000\n8-8000\n"))
        self.assertEqual([], decodeEpochs(b"0\n0\n"))

    def test_damageFound(self) -> None:
        """
        Any byte that is another one is found, and so is a file that was cut.
        """
        for at in range(len(_JAVA)):
            with self.assertRaises(ValueError, msg=f"cut at {at}"):
                decodeEpochs(_JAVA[:at])
            for value in (0, 10, 45, 48, 57, 255):
                if value != _JAVA[at]:
                    with self.assertRaises(ValueError, msg=f"{value} at {at}"):
                        decodeEpochs(_JAVA[:at] + bytes([value]) + _JAVA[at + 1 :])


class EpochFileTests(SynchronousTestCase):
    """
    The file.
    """

    def setUp(self) -> None:
        """
        Begin without one.
        """
        self.disk = Disk()
        self.epochs = EpochFile(self.disk, _PATH)

    def loaded(self, disk: Disk | None = None) -> list[Epoch]:
        """
        What another process finds.
        """
        epochs = EpochFile(disk or self.disk, _PATH)
        epochs.load()
        return list(epochs.entries)

    def write(self, path: str, data: bytes) -> None:
        """
        Change a file.
        """
        handle = self.disk.open(path)
        self.disk.truncate(handle, 0)
        self.disk.pwrite(handle, data, 0)

    def test_missingIsEmpty(self) -> None:
        """
        Without a file there are no epochs.
        """
        self.epochs.load()
        self.assertEqual(((), None), (self.epochs.entries, self.epochs.last))

    def test_appended(self) -> None:
        """
        Epochs that were appended are found by the next process, in the file and its copy.
        """
        for epoch, start in _TWO:
            self.epochs.append(epoch, start)
        self.assertEqual(_TWO[1], self.epochs.last)
        self.assertEqual(_TWO, self.loaded())
        for path in (_PATH, f"{_PATH}.bak"):
            self.assertEqual(_JAVA, self.disk.file(path).data)

    def test_sameStartReplaces(self) -> None:
        """
        An epoch that starts where others do, or before them, takes their place; the same one
        again changes nothing.
        """
        for epoch, start in ((1, 0), (2, 100), (3, 100), (3, 100), (4, 200), (5, 150)):
            self.epochs.append(epoch, start)
        self.assertEqual([(1, 0), (3, 100), (5, 150)], self.loaded())

    def test_lowerEpochRefused(self) -> None:
        """
        An epoch that is not higher than the last one is refused, and nothing is changed.
        """
        self.epochs.append(3, 100)
        for epoch, start in ((2, 200), (3, 200), (3, 50), (0, 100)):
            self.assertRaises(StoreError, self.epochs.append, epoch, start)
        self.assertRaises(StoreError, self.epochs.append, 1 << 31, 200)
        self.assertRaises(StoreError, self.epochs.append, 4, -1)
        self.assertEqual([(3, 100)], self.loaded())

    def test_cut(self) -> None:
        """
        Epochs that start at the cut or behind it are forgotten, also all of them.
        """
        for epoch in range(5):
            self.epochs.append(epoch, epoch * 100)
        for offset, count in ((401, 5), (400, 4), (250, 3), (1, 1), (0, 0)):
            self.epochs.cutAt(offset)
            self.assertEqual(count, len(self.loaded()))

    def test_damagedFileReplacedByCopy(self) -> None:
        """
        If the file is damaged or missing, the copy is used, and the file is written again.
        """
        for epoch, start in _TWO:
            self.epochs.append(epoch, start)
        self.write(_PATH, b"2\n1\n7-7000\n8-8000\n")
        self.assertEqual(_TWO, self.loaded())
        self.assertEqual(_JAVA, self.disk.file(_PATH).data)
        self.disk.remove(_PATH)
        self.assertEqual(_TWO, self.loaded())

    def test_bothDamagedRefused(self) -> None:
        """
        If both are damaged, the error tells what to do.
        """
        self.epochs.append(7, 7000)
        for path in (_PATH, f"{_PATH}.bak"):
            self.write(path, b"rubbish")
        error = self.assertRaises(StoreCorrupt, self.loaded)
        self.assertIn("remove both", str(error))

    def test_diskFull(self) -> None:
        """
        Without room nothing is changed, and an epoch can be appended later.
        """
        self.epochs.append(7, 7000)
        for error, kind in ((full(), DiskFull), (ioError(), StoreFailed)):
            self.disk.before = partial(self.refuse, error)
            self.assertRaises(kind, self.epochs.append, 8, 8000)
            self.assertEqual([(7, 7000)], list(self.epochs.entries))
        self.disk.before = lambda operation, path: None
        self.epochs.append(8, 8000)
        self.assertEqual(_TWO, self.loaded())

    @staticmethod
    def refuse(error: OSError, operation: str, path: str) -> None:
        """
        Let each write fail.
        """
        if operation == "pwrite":
            raise error

    def test_powerLoss(self) -> None:
        """
        After a power loss at any moment, the epochs are those before or those after the change
        that was under way; after it, they are those after it.
        """
        states: list[tuple[list[Epoch], list[Epoch]]] = []
        before: list[Epoch] = []
        after: list[Epoch] = []
        random = Random(1)

        def look(operation: str, path: str) -> None:
            for _ in range(5):
                found = self.loaded(self.disk.crash(random))
                self.assertIn(found, (before, after))
                states.append((before, found))

        self.disk.before = look
        for epoch in range(1, 30):
            before = list(self.epochs.entries)
            start = random.randrange(1000)
            after = [*(each for each in before if each.start < start), Epoch(epoch, start)]
            self.epochs.append(epoch, start)
            self.assertEqual(after, self.loaded(self.disk.crash(random)))
        self.assertTrue(any(old == found for old, found in states))
        self.assertTrue(any(old != found for old, found in states))
