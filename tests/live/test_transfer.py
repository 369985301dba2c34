# SPDX-License-Identifier: Apache-2.0
"""
The example of a transfer, whose programs are killed again and again, and so is the
broker.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from random import Random

from twisted.internet.task import Clock, deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from examples.transfer import CAPITAL, Giver, Taker
from tests.client.messages import pulled
from tests.live.servers import Child, LiveTestCase, reactor
from txrocket.broker.service import Broker
from txrocket.client import Cluster, LocalTransactionState
from txrocket.testing import ChildCluster
from txrocket.testing.trial import realCluster

KILLS = int(os.environ.get("TXROCKET_KILLS", "12"))
SEED = int(os.environ.get("TXROCKET_SEED") or Random().randrange(10**6))

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE

PROGRAM = Path(__file__).parent.parent.parent / "examples" / "transfer.py"

# How long it may take until the last transfers have arrived, in seconds.
PATIENCE = 300.0

SETTINGS: dict[str, str | int] = {
    # So that the test need not take minutes; the producer is seldom there.
    "transactionTimeOut": 300,
    "transactionCheckInterval": 200,
    "transactionCheckMax": 1000,
    "brokerIP1": "127.0.0.1",
}


class BankTests(SynchronousTestCase):
    """
    The two banks, by themselves.
    """

    def setUp(self) -> None:
        cluster = Cluster("192.0.2.1:9876", Clock())
        self.giver = Giver(cluster, ":memory:")
        self.taker = Taker(cluster, ":memory:")

    def test_repeatedTransferCountsOnce(self) -> None:
        """
        A transfer leaves the one and arrives at the other, once, however often it comes.
        """
        self.assertIs(self.giver.execute("a", 100), COMMIT)
        self.assertIs(self.giver.check(pulled(0, UNIQ_KEY="a")), COMMIT)
        for _ in range(3):
            self.taker.take(pulled(0, b"100", UNIQ_KEY="a"))
        self.assertEqual((self.giver.amount, self.taker.amount), (CAPITAL - 100, 100))

    def test_checkedTransferIsRefused(self) -> None:
        """
        One that was asked about before it was made cannot be made any more.
        """
        self.assertIs(self.giver.check(pulled(0, UNIQ_KEY="a")), ROLLBACK)
        self.assertIs(self.giver.execute("a", 100), ROLLBACK)
        self.assertEqual(self.giver.amount, CAPITAL)

    def test_overdraftIsRefused(self) -> None:
        """
        More than the balance is not given.
        """
        self.assertIs(self.giver.execute("a", CAPITAL + 1), ROLLBACK)
        self.assertIs(self.giver.check(pulled(0, UNIQ_KEY="a")), ROLLBACK)
        self.assertEqual(self.giver.amount, CAPITAL)


class TransferTests(LiveTestCase):
    """
    Two banks.
    """

    timeout = 300 + 60 * KILLS

    def setUp(self) -> None:
        super().setUp()
        self.chance = Random(SEED)

    def program(self, role: str) -> Child:
        """
        One of the two programs.
        """
        command = [sys.executable, str(PROGRAM), role, self.address, f"{role}.db"]
        return self.spawn(command, b"ing, and ")

    def rows(self, role: str) -> dict[str, int]:
        """
        The transfers that a bank has noted, but for those that were refused.
        """
        with sqlite3.connect(self.folder / f"{role}.db", timeout=30) as database:
            found = database.execute("select id, amount from transfer where amount > 0").fetchall()
        return {str(transfer): int(amount) for transfer, amount in found}

    def amount(self, role: str) -> int:
        """
        The balance of a bank's account.
        """
        with sqlite3.connect(self.folder / f"{role}.db", timeout=30) as database:
            (amount,) = database.execute("select amount from account").fetchone()
        return int(amount)

    def undecided(self, broker: Broker) -> int:
        """
        How many halves a broker still asks about, at most.
        """
        topic = "RMQ_SYS_TRANS_HALF_TOPIC"
        decided = broker.tables.offsets.query("CID_RMQ_SYS_TRANS", topic, 0)
        return broker.store.maxOffset(topic, 0) - decided

    async def settled(self, broker: Broker | None = None) -> None:
        """
        Wait until everything that was given is taken, with a giver that only answers.

        @param broker: where nothing may be undecided then.
        """
        end = reactor.seconds() + PATIENCE
        async with Cluster(self.address, reactor) as cluster:
            giver = Giver(cluster, str(self.folder / "give.db"))
            async with giver.producer:
                while (
                    self.amount("give") + self.amount("take") < CAPITAL
                    or self.rows("give") != self.rows("take")
                    or (broker is not None and self.undecided(broker))
                ):
                    self.assertLess(
                        reactor.seconds(), end, f"the sums do not agree, TXROCKET_SEED={SEED}"
                    )
                    await deferLater(reactor, 0.1)
            giver.database.close()
        self.assertEqual(self.rows("give"), self.rows("take"))
        self.assertEqual(self.amount("give") + self.amount("take"), CAPITAL)

    async def test_killedProgramsKeepSums(self) -> None:
        """
        However often the giver is killed, also while it starts, and now and then the taker:
        in the end each transfer has arrived once, and the sums agree.
        """
        servers = await realCluster(self, reactor, settings=SETTINGS)
        self.address = servers.nameServers[0]
        taker = await self.started(self.program("take"))
        for number in range(KILLS):
            giver = self.program("give")
            if number % 10 != 9:
                await self.started(giver)
            await deferLater(reactor, self.chance.uniform(0, 0.3))
            await giver.end("KILL")
            self.assertEqual(giver.faults, [])
            if number % 7 == 6:
                await taker.end("KILL")
                self.assertEqual(taker.faults, [])
                taker = await self.started(self.program("take"))
        await self.settled(servers.broker())
        # How many there are depends on the machine.
        self.assertGreater(len(self.rows("take")), KILLS // 10)

    async def test_killedBrokerKeepsSums(self) -> None:
        """
        However often the broker is killed, and its name server with it, in the end the sums
        agree.
        """
        cluster = ChildCluster(settings=SETTINGS, folder=str(self.folder))
        self.addCleanup(deferToThread, cluster.stop)
        await deferToThread(cluster.start)
        self.address = cluster.nameServers[0]
        taker = await self.started(self.program("take"))
        giver = await self.started(self.program("give"))
        for _ in range(KILLS // 3):
            await deferLater(reactor, self.chance.uniform(0.1, 2))
            await deferToThread(cluster.kill)
            await deferToThread(cluster.start)
        await deferLater(reactor, 1)
        await giver.end("KILL")
        await self.settled()
        self.assertEqual(giver.faults + taker.faults, [])
        # How many there are depends on the machine.
        self.assertGreater(len(self.rows("take")), KILLS // 10)
