# SPDX-License-Identifier: Apache-2.0
"""
Halves that a broker of Java's has left, taken over: C{fixtures/javahalves.rst}.
"""

from __future__ import annotations

import lzma
import os
from pathlib import Path

from tests.processors.transactioncase import COMMIT, TransactionTests
from tests.store.support import abandon
from txrocket.broker.transaction.opmessages import GROUP, HALF_TOPIC, OP_TOPIC
from txrocket.message import MessageExt

LOG = Path(__file__).parent.parent / "fixtures" / "javahalves.xz"

SIZE = 1 << 20

UNDECIDED = ["unknown-forever", "unknown-immune", "unknown-forever2"]


class JavaHalvesTests(TransactionTests):
    """
    A folder of Java's.
    """

    storeOptions = {"mappedFileSizeCommitLog": SIZE, "mappedFileSizeConsumeQueue": 20_000}

    def setUp(self) -> None:
        super().setUp()
        self.offsets.commit(GROUP, HALF_TOPIC, 0, 26, "Java")
        self.offsets.commit(GROUP, OP_TOPIC, 0, 4, "Java")
        self.successResultOf(self.offsets.save())
        self.checks.stop()
        abandon(self.store)
        folder = Path(self.root, "commitlog")
        folder.mkdir(exist_ok=True)
        log = folder / f"{0:020}"
        log.write_bytes(lzma.decompress(LOG.read_bytes()))
        os.truncate(log, SIZE)
        self.build()
        # A little after the last of it was written.
        last = self.halves()[-1].storeTimestamp / 1000
        self.clock.advance(last + 1 - self.clock.seconds())
        self.producer = self.join("JP")

    def bodiesOf(self, *messages: MessageExt) -> list[str]:
        """
        The texts of messages.
        """
        return [each.body.decode() for each in messages]

    def test_javasHalvesAreTakenOver(self) -> None:
        """
        Undecided halves of Java's are undecided here, with as many checks, and no others;
        the producer is checked.
        """
        pending = self.transactions.pending(9)
        self.assertEqual([each.queueOffset for each in pending], [26, 27, 28])
        self.assertEqual([each.checks for each in pending], [7, 7, 7])
        self.assertEqual({(each.topic, each.group) for each in pending}, {("TT", "JP")})
        asked = self.passed(6)
        self.assertEqual(self.bodiesOf(*[each.message for each in asked]), UNDECIDED)
        for each in asked:
            self.assertEqual(each.message.properties["TRANSACTION_CHECK_TIMES"], "8")
            self.tell(each.half, COMMIT, producerGroup="JP")
        self.assertEqual((self.pending(), self.passed(60)), ([], []))

    def test_missingOffsetsAreRebuilt(self) -> None:
        """
        Without Java's offsets it is known what was decided, too; but a half that Java has
        moved is still where it was, for all that its log says.
        """
        self.offsets.removeGroup(GROUP)
        self.successResultOf(self.offsets.save())
        self.crash()
        pending = self.undecided()
        self.assertEqual(set(pending[:5]), {*UNDECIDED, "unknown-thencommit"})
        self.assertEqual(set(pending[5:]), set(UNDECIDED))

    def undecided(self) -> list[str]:
        """
        The bodies of undecided halves.
        """
        halves = self.halves()
        return [halves[each.queueOffset].body.decode() for each in self.transactions.pending(100)]

    def test_recordsEqualJavas(self) -> None:
        """
        Our halves, committed messages and ops have the properties of Java's, except WAIT,
        which Java never reads.  Copies do too, except the place of the original, which Java
        notes only for a waiting half.
        """
        java, (committed,) = self.everything(), self.stored("TT", 3)
        self.checks.stop()
        abandon(self.store)
        self.root = self.mktemp()
        self.build()
        self.producer = self.join("JP")
        halves = {}
        for queueId, body in ((3, b"commit1"), (2, b"unknown-thencommit")):
            halves[body] = self.half(
                body, queueId, PGROUP="JP", KEYS=f"key{body.decode()}", TAGS="tag"
            )
        self.end(halves[b"commit1"], COMMIT, producerGroup="JP")
        (asked,) = self.passed(60)
        self.tell(asked.half, COMMIT, producerGroup="JP")
        ours = self.everything()
        for kind in (
            *((HALF_TOPIC, "commit1", "0"), (HALF_TOPIC, "unknown-thencommit", "0")),
            *((HALF_TOPIC, "unknown-thencommit", "1"), (OP_TOPIC, "0", "0")),
        ):
            self.assertEqual(ours[kind], java[kind], kind)
        (message,) = self.stored("T", 3)
        self.assertEqual({*message.properties, "WAIT"}, {*committed.properties})
        self.assertEqual((message.sysFlag, message.flag), (committed.sysFlag, committed.flag))
        self.assertEqual(committed.preparedTransactionOffset, 0)
        self.assertEqual(message.preparedTransactionOffset, halves[b"commit1"].commitLogOffset)

    def everything(self) -> dict[tuple[str, str, str], set[str]]:
        """
        The names of the properties of all messages, by topic, body and number of checks.
        """
        found = {}
        for topic in (HALF_TOPIC, OP_TOPIC):
            for each in self.stored(topic):
                checks = each.properties.get("TRANSACTION_CHECK_TIMES", "0")
                names = {*each.properties} - {"WAIT", "TRAN_PREPARED_QUEUE_OFFSET"}
                found[topic, each.body.decode(), checks] = names
        return found
