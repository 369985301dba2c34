# SPDX-License-Identifier: Apache-2.0
"""
What the tests of transactions have in common: producers that send halves, are asked
about them and answer, and a broker that crashes between any two steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.processors.support import BrokerTests, Client
from tests.store.support import abandon
from txrocket.broker.clients.registry import ClientChannelInfo as Member
from txrocket.broker.delivery.reroute import Reroutes
from txrocket.broker.transaction.opmessages import HALF_TOPIC, OP_TOPIC
from txrocket.message import MessageExt
from txrocket.processors.messages.endtransaction import EndTransactionProcessor
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import ONEWAY_FLAG, RemotingCommand
from txrocket.protocol.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from txrocket.protocol.messageid import decodeMessageId
from txrocket.protocol.record import decodeRecord
from txrocket.protocol.record.fields import joinProperties
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.remoting import FunctionProcessor

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0

CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class Half(NamedTuple):
    """
    A half, as its producer knows it.
    """

    queueOffset: int
    commitLogOffset: int


class Asked(NamedTuple):
    """
    A question.
    """

    header: CheckTransactionStateRequestHeader
    message: MessageExt

    @property
    def half(self) -> Half:
        """
        Which half it is about.
        """
        return Half(self.header.tranStateTableOffset, self.header.commitLogOffset)


class TransactionTests(BrokerTests):
    """
    The base: a broker that asks about transactions, and C{self.producer}, of group P,
    connected to it.
    """

    def setUp(self) -> None:
        super().setUp()
        self.topic()

    def build(self) -> None:
        super().build()
        stats: Any = self.stats
        self.offsets.load()
        self.checks = self.parts.delivery.transactionChecks
        processor = EndTransactionProcessor(
            self.store, self.durability, self.transactions, Reroutes(self.delays.reroute), stats.put
        )
        for code, function in processor.codes().items():
            self.remoting.registerProcessor(code, FunctionProcessor(function), InlineExecutor())
        self.checks.start()
        self.producer = self.join("P")

    def join(self, group: str) -> Client:
        """
        A further producer of a group.
        """
        client = self.connect()
        self.producers.register(group, Member(f"c{id(client)}", client.peer, "JAVA", 407), 0)
        return client

    def crash(self) -> None:
        """
        The broker ends as by kill -9, and is started again.
        """
        self.checks.stop()
        abandon(self.store)
        self.build()
        self.clock.advance(0)

    # --- halves --------------------------------------------------------------

    def half(self, body: bytes = b"x", queueId: int = 0, **properties: str) -> Half:
        """
        Send one.
        """
        answer = self.sent(
            body,
            queueId=queueId,
            sysFlag=4,
            bornTimestamp=self.now(),
            properties=joinProperties(
                {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": body.decode(), **properties}
            ),
        )
        self.assertEqual(answer.code, 0, answer.remark)
        fields = answer.extFields
        return Half(int(fields["queueOffset"]), decodeMessageId(fields["msgId"])[2])

    def ending(self, half: Half, state: int, flag: int = 0, **changes: Any) -> RemotingCommand:
        """
        The request that ends a transaction.
        """
        header = EndTransactionRequestHeader("P", half.queueOffset, half.commitLogOffset, state, "")
        for name, value in changes.items():
            setattr(header, name, value)
        return self.client.request(RequestCode.END_TRANSACTION, header, flag=flag)

    def end(self, half: Half, state: int, **changes: Any) -> RemotingCommand:
        """
        End a transaction, and get an answer.
        """
        return self.answerTo(self.ending(half, state, **changes))

    def tell(self, half: Half, state: int, **changes: Any) -> None:
        """
        End a transaction oneway, as producers do.
        """
        self.client.write(self.ending(half, state, ONEWAY_FLAG, **changes))
        self.clock.advance(0)
        self.assertEqual(self.client.answers(), [])

    # --- checks --------------------------------------------------------------

    def turn(self) -> None:
        """
        Let the broker do what it has begun.
        """
        for _ in range(20):
            self.clock.advance(0)

    def passed(self, seconds: float = 0) -> list[Asked]:
        """
        Let time pass, have all undecided halves looked at.

        @return: what the producer was asked.
        """
        self.clock.advance(seconds)
        self.checks.check()
        self.turn()
        return self.questions(self.producer)

    def questions(self, producer: Client) -> list[Asked]:
        """
        What a producer was asked since this was last called.
        """
        found = []
        for request in producer.answers():
            self.assertEqual(request.code, RequestCode.CHECK_TRANSACTION_STATE)
            self.assertTrue(request.isOneway)
            header = request.decodeHeader(CheckTransactionStateRequestHeader)
            found.append(Asked(header, decodeRecord(request.body, checkCrc=True)))
        return found

    def ops(self) -> list[tuple[int, bool]]:
        """
        All ops: the half that each is about, and whether it is a decision.
        """
        return [
            (int(each.body), "TRANSACTION_CHECK_TIMES" not in each.properties)
            for each in self.stored(OP_TOPIC)
        ]

    def pending(self) -> list[bytes]:
        """
        The ids of the undecided halves.
        """
        return [each.msgId.encode() for each in self.transactions.pending(1000)]

    def halves(self) -> list[MessageExt]:
        """
        All in the topic of halves, decided or not.
        """
        return self.stored(HALF_TOPIC)
