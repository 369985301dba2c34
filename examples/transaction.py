# SPDX-License-Identifier: Apache-2.0
"""
Move money, and send a message about it if and only if it was moved::

    .venv/bin/python examples/transaction.py 127.0.0.1:9876
"""

import sqlite3
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txrocket import Message, MessageExt
from txrocket.client import (
    Cluster,
    LocalTransactionState,
    TransactionProducer,
    TransactionSendResult,
)


class Bank:
    """
    Two accounts, and the transfers between them.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        self.database = sqlite3.connect(path)
        self.database.execute("create table if not exists account (name primary key, amount)")
        self.database.execute("create table if not exists transfer (id primary key)")
        self.producer = TransactionProducer(cluster, "bank", self.check)

    def open(self, name: str, amount: int) -> None:
        """
        Open an account.
        """
        with self.database:
            self.database.execute("insert into account values (?, ?)", (name, amount))

    def amount(self, name: str) -> int:
        """
        The balance of an account.
        """
        row = self.database.execute("select amount from account where name = ?", (name,))
        amount: int = row.fetchone()[0]
        return amount

    async def move(self, giver: str, taker: str, amount: int) -> TransactionSendResult:
        """
        Move money, and send a message to the topic Transfers.
        """

        def execute(half: Message) -> LocalTransactionState:
            if self.amount(giver) < amount:
                return LocalTransactionState.ROLLBACK_MESSAGE
            with self.database as database:
                add = "update account set amount = amount + ? where name = ?"
                database.execute(add, (-amount, giver))
                database.execute(add, (amount, taker))
                # Recorded together with the money, so that the check can look it up.
                database.execute("insert into transfer values (?)", (half.properties["UNIQ_KEY"],))
            return LocalTransactionState.COMMIT_MESSAGE

        message = Message("Transfers", f"{giver} gave {taker} {amount}".encode())
        return await self.producer.sendInTransaction(message, execute)

    def check(self, message: MessageExt) -> LocalTransactionState:
        """
        Answer a broker's check of a transfer.
        """
        found = self.database.execute("select 1 from transfer where id = ?", (message.msgId,))
        if found.fetchone():
            return LocalTransactionState.COMMIT_MESSAGE
        # It may still be in progress; the broker asks again, and gives up in the end.
        return LocalTransactionState.UNKNOW


async def main(reactor: Any, nameServer: str) -> None:
    """
    A transfer that can be made, and one that cannot.
    """
    async with Cluster(nameServer, reactor) as cluster:
        bank = Bank(cluster, ":memory:")
        bank.open("alice", 100)
        bank.open("bob", 0)
        async with bank.producer:
            for amount in 70, 70:
                result = await bank.move("alice", "bob", amount)
                print(f"{amount}: {result.localTransactionState.name}")
        print(f"alice has {bank.amount('alice')}, bob has {bank.amount('bob')}")


if __name__ == "__main__":
    address = (*sys.argv[1:], "127.0.0.1:9876")[0]
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, address)))
