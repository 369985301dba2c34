# SPDX-License-Identifier: Apache-2.0
"""
Move money from one bank to another, each with its own database.  No money is lost and none
is created, even if one of the two programs is killed at any moment::

    .venv/bin/python examples/transfer.py give 127.0.0.1:9876 giver.db
    .venv/bin/python examples/transfer.py take 127.0.0.1:9876 taker.db

Kill them and start them again as often as you like: the money that has left one bank
arrives at the other.
"""

import random
import sqlite3
import sys
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater, react

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, LocalTransactionState, PushConsumer, TransactionProducer
from txrocket.errors import RocketError

TOPIC = "Transfers"

#: The giver's first balance, and the number of transfers at a time.
CAPITAL = 1_000_000
AT_A_TIME = 4


class Bank:
    """
    An account, and the transfers from it or to it.
    """

    def __init__(self, path: str, capital: int) -> None:
        self.database = sqlite3.connect(path)
        with self.database as database:
            database.execute("create table if not exists transfer (id primary key, amount)")
            database.execute("create table if not exists account (amount check (amount >= 0))")
            if not database.execute("select * from account").fetchall():
                database.execute("insert into account values (?)", (capital,))

    @property
    def amount(self) -> int:
        """
        The balance of the account.
        """
        (amount,) = self.database.execute("select amount from account").fetchone()
        return int(amount)


class Giver(Bank):
    """
    The bank that money leaves.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        super().__init__(path, CAPITAL)
        self.producer = TransactionProducer(cluster, "givers", self.check, topics=[TOPIC])

    async def give(self, amount: int) -> LocalTransactionState:
        """
        Transfer money, if there is enough.
        """
        message = Message(TOPIC, str(amount).encode())
        result = await self.producer.sendInTransaction(
            message, lambda half: self.execute(half.properties["UNIQ_KEY"], amount)
        )
        return result.localTransactionState

    def execute(self, transfer: str, amount: int) -> LocalTransactionState:
        """
        The local transaction.
        """
        try:
            with self.database as database:
                database.execute("insert into transfer values (?, ?)", (transfer, amount))
                database.execute("update account set amount = amount - ?", (amount,))
        except sqlite3.IntegrityError:
            # The balance is too low, or a check has refused the transfer meanwhile.
            return LocalTransactionState.ROLLBACK_MESSAGE
        return LocalTransactionState.COMMIT_MESSAGE

    def check(self, message: MessageExt) -> LocalTransactionState:
        """
        Answer a broker's check of a transfer.  If the transfer does not exist by now, it is
        refused, and the refusal is stored, so that it cannot be made any more.
        """
        with self.database as database:
            database.execute("insert or ignore into transfer values (?, 0)", (message.msgId,))
        found = self.database.execute("select amount from transfer where id = ?", (message.msgId,))
        (amount,) = found.fetchone()
        if amount:
            return LocalTransactionState.COMMIT_MESSAGE
        return LocalTransactionState.ROLLBACK_MESSAGE


class Taker(Bank):
    """
    The bank that money arrives at.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        super().__init__(path, 0)
        self.consumer = PushConsumer(
            cluster,
            "takers",
            self.take,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self.consumer.subscribe(TOPIC)

    def take(self, message: MessageExt) -> None:
        """
        Receive a transfer, perhaps not for the first time.
        """
        amount = int(message.body)
        with self.database as database:
            added = database.execute(
                "insert or ignore into transfer values (?, ?)", (message.msgId, amount)
            )
            if added.rowcount:
                database.execute("update account set amount = amount + ?", (amount,))


async def give(reactor: Any, nameServer: str, path: str) -> None:
    """
    Transfer money until there is none left.
    """

    async def transfers(giver: Giver) -> None:
        while giver.amount:
            try:
                await giver.give(random.randint(1, 100))
            except RocketError as error:
                print(f"the broker is away: {error}", flush=True)
                await deferLater(reactor, 1)

    async with Cluster(nameServer, reactor) as cluster:
        giver = Giver(cluster, path)
        async with giver.producer:
            print(f"giving, and {giver.amount} left", flush=True)
            await gatherResults(
                [Deferred.fromCoroutine(transfers(giver)) for _ in range(AT_A_TIME)]
            )


async def take(reactor: Any, nameServer: str, path: str) -> None:
    """
    Receive transfers.
    """
    async with Cluster(nameServer, reactor) as cluster:
        taker = Taker(cluster, path)
        async with taker.consumer:
            print(f"taking, and {taker.amount} taken", flush=True)
            await Deferred()


if __name__ == "__main__":
    role, address, database = sys.argv[1:]
    program = {"give": give, "take": take}[role]
    react(lambda reactor: Deferred.fromCoroutine(program(reactor, address, database)))
