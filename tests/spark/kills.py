# SPDX-License-Identifier: Apache-2.0
"""
A program with streams that is killed again and again.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter

from tests.patience import goOn
from tests.spark.programs import Program, startedProgram
from tests.spark.running import SessionCase
from tests.spark.sessions import messagesOf, numbersOf

# TXROCKET_SEED=... makes the same moments again, as far as a machine does.
SEED = int(os.environ.get("TXROCKET_SEED", random.randrange(2**32)))
KILLS = int(os.environ.get("TXROCKET_SPARK_KILLS", "10"))

# The seconds that a program may be silent.
PATIENCE = 180.0

# Spark gives a Python process of a stream ten seconds to start, which is no setting.  On a
# machine with much else to do it takes longer.
TOO_SLOW = "Python worker failed to connect back"


class KillTests(SessionCase):
    """
    The whole program is killed, Spark's machine and all.
    """

    def start(self, until: str, *, once: bool) -> Program:
        """
        Start the program.

        @param until: the word to wait for.
        """
        told = json.dumps({**self.told, "once": "yes" if once else ""})
        program = startedProgram(
            ["-m", "tests.spark.relay", told], self.folder, until, PATIENCE, excused=TOO_SLOW
        )
        self.addCleanup(program.kill)
        goOn()
        return program

    def untilSent(self, source: str, sink: str) -> None:
        """
        Wait until the next batch is being sent.
        """

        def there() -> int:
            return sum(self.client.maxOffset(each) for each in queues)

        queues = self.client.queues(sink)
        before = there()
        self.send(source, range(self.count, self.count + 200))
        self.count += 200
        deadline = time.monotonic() + PATIENCE
        while there() == before:
            self.assertLess(time.monotonic(), deadline)
            # The streams need the processor more than this test.
            time.sleep(0.01)

    def test_killedStreamDeliversEachMessageOnce(self) -> None:
        """
        However often it is killed, and whenever: in the end every message is once in the
        table, and in the other topic at least once, with one id each.
        """
        source, sink = self.topic(), self.topic()
        self.folder = folder = os.path.abspath(self.mktemp())
        os.makedirs(folder)
        self.told = {
            "nameServers": self.nameServers,
            "source": source,
            "sink": sink,
            "table": f"{folder}/table",
            "checkpoints": f"{folder}/checkpoints",
        }
        chance = random.Random(SEED)
        self.count = 0
        for number in range(KILLS):
            self.send(source, range(self.count, self.count + 200))
            self.count += 200
            # While it starts, while it works, and in the middle of a batch.
            program = self.start("started" if number % 3 == 0 else "working", once=False)
            if number % 3 == 2:
                self.untilSent(source, sink)
            else:
                time.sleep(chance.uniform(0.0, 6.0))
            program.kill()
        self.assertEqual(self.start("finished", once=True).wait(60), 0, f"TXROCKET_SEED={SEED}")
        expected = list(range(self.count))
        table = numbersOf(self.spark.read.parquet(self.told["table"]))
        self.assertEqual(table, expected, f"TXROCKET_SEED={SEED}")
        found = messagesOf(self.client, sink)
        self.assertEqual(sorted({int(each.body) for each in found}), expected)
        byId = {each.msgId: int(each.body) for each in found}
        self.assertEqual(sorted(byId.values()), expected, f"TXROCKET_SEED={SEED}")
        for each in found:
            self.assertEqual(byId[each.msgId], int(each.body))
        twice = sum(count > 1 for count in Counter(each.msgId for each in found).values())
        print(f"{len(expected)} messages, {twice} of them sent more than once", end=" ")
