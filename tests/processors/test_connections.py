# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.clients.connections}.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.peers import Connected, consumer
from tests.captures import captures
from tests.processors.replay import Server, fieldsOf, fieldsOfOurs, requests, responseTo
from tests.remoting.doubles import frame
from tests.store.support import Disk, atOnce
from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.clients.producers import Producers
from txrocket.broker.clients.queuelocks import QueueLocks
from txrocket.broker.clients.registry import ClientChannelInfo
from txrocket.broker.parts import Clients
from txrocket.broker.plugins import Plugins, checkPlugins
from txrocket.broker.pull.subscriptions import Subscriptions
from txrocket.broker.settings import GroupSettings, PullSettings
from txrocket.broker.tables.groups import Groups
from txrocket.broker.tables.savedtable import TableFile
from txrocket.config import Live
from txrocket.model import SubscriptionData
from txrocket.processors.clients.connections import ClientProcessor
from txrocket.processors.cooperate import cooperator
from txrocket.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    ProducerConnection,
    ProducerTableInfo,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.store.jsontable import Table


class ProcessorTests(SynchronousTestCase):
    """
    The base: a processor and its clients.
    """

    def setUp(self) -> None:
        self.consumers = Consumers(Clock(), lambda group: True)
        self.producers = Producers()
        table = Table(Disk(), f"{self.mktemp()}/config/subscriptionGroup.json")
        groups = Groups(TableFile(table, atOnce), Live(GroupSettings()), lambda: 0)
        self.settings = Live(PullSettings(enablePropertyFilter=True))
        self.subscriptions = Subscriptions(
            groups,
            self.consumers,
            checkPlugins(Plugins()).expressionTypes,
            self.settings,
        )
        clock = Clock()
        clients = Clients(self.producers, self.consumers, QueueLocks(), self.subscriptions)
        processor = ClientProcessor(clients, cooperator(clock))
        self.server = Server(processor.codes(), clock)

    def ask(self, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        """
        The answer to a request.
        """
        answer = self.server.send(frame(code, 7, body, fields=fields))
        assert answer is not None
        return answer


class ClientTests(ProcessorTests):
    """
    L{ClientProcessor}.
    """

    def test_consumerIds(self) -> None:
        """
        The members of a group are listed; for a group without any, the answer is
        SYSTEM_ERROR and names it.
        """
        for each in ("a", "b"):
            self.consumers.register(consumer("G"), Connected().client(each), 0)
        answer = self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="G")
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        body = decodeBody(GetConsumerListByGroupResponseBody, answer.body)
        self.assertEqual(body.consumerIdList, ("a", "b"))
        answer = self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="none")
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(answer.remark, "no consumer of the group none is connected")

    def test_noProducers(self) -> None:
        """
        For a group without producers the answer is SYSTEM_ERROR and names it.
        """
        answer = self.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="none")
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(answer.remark, "no producer of the group none is connected")

    def test_fieldsMissing(self) -> None:
        """
        Who asks about a group must name it.
        """
        for code, field in (
            (RequestCode.GET_CONSUMER_LIST_BY_GROUP, "consumerGroup"),
            (RequestCode.GET_CONSUMER_CONNECTION_LIST, "consumerGroup"),
            (RequestCode.GET_PRODUCER_CONNECTION_LIST, "producerGroup"),
        ):
            answer = self.ask(code)
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn(field, answer.remark or "")

    def check(self, subscription: SubscriptionData | None) -> tuple[int, str | None]:
        """
        What CHECK_CLIENT_CONFIG is answered with.
        """
        body = encodeBody(CheckClientRequestBody("c1", "G", subscription))
        answer = self.ask(RequestCode.CHECK_CLIENT_CONFIG, body)
        return answer.code, answer.remark

    def test_checkTags(self) -> None:
        """
        Any broker filters by tags, and nothing can be wrong with nothing.
        """
        self.assertEqual(self.check(SubscriptionData("T", "a || b")), (ResponseCode.SUCCESS, None))
        self.assertEqual(self.check(None), (ResponseCode.SUCCESS, None))

    def test_checkSql(self) -> None:
        """
        An SQL92 expression is one or is not, at a broker with
        C{enablePropertyFilter}; another evaluates none, as Java's, whatever it is.
        """
        good = SubscriptionData("T", "a > 1", expressionType="SQL92")
        bad = SubscriptionData("T", "a >", expressionType="SQL92")
        self.assertEqual(self.check(good), (ResponseCode.SUCCESS, None))
        self.assertEqual(self.check(bad)[0], ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        self.settings.now = PullSettings()
        for each in (good, bad):
            code, remark = self.check(each)
            self.assertEqual(code, ResponseCode.SYSTEM_ERROR)
            self.assertIn("does not filter messages by SQL92", remark or "")
            self.assertIn("enablePropertyFilter is false", remark or "")
        self.assertEqual(self.check(SubscriptionData("T", "a")), (ResponseCode.SUCCESS, None))

    def test_checkUnknown(self) -> None:
        """
        A type of expressions that no filter evaluates is refused with the names of those
        that are.
        """
        code, remark = self.check(SubscriptionData("T", "a > 1", expressionType="SQL93"))
        self.assertEqual(code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("it filters by SQL92, TAG", remark or "")

    def test_checkBad(self) -> None:
        """
        An expression that is none is refused with the code of Java's answer to one,
        and names the same place.
        """
        theirs = next(each for each in captures() if each.header["code"] == 23)
        self.assertEqual(theirs.requestCode, RequestCode.CHECK_CLIENT_CONFIG)
        self.assertIn("at line 1, column 4.", theirs.header["remark"])
        code, remark = self.check(SubscriptionData("T", "a == 1", expressionType="SQL92"))
        self.assertEqual(code, theirs.header["code"])
        self.assertEqual(
            remark,
            "SQL92 expression, line 1, column 4: =, where a property or a value was expected",
        )


class CapturedTests(ProcessorTests):
    """
    Requests of Java's and C++ clients and of Java's tools, answered as Java
    answered them: with the clients that it knew, at their addresses.
    """

    def connect(
        self, clientId: str, address: str, language: str, version: int
    ) -> ClientChannelInfo:
        """
        A client that Java knew.
        """
        return ClientChannelInfo(clientId, Connected(address).peer, language, version)

    def replay(self, code: int, count: int) -> None:
        """
        Compare every answer to a captured request with its captured answer.
        """
        compared = 0
        for theirs in requests(code, "broker", "vip"):
            expected = responseTo(theirs)
            if expected is not None:
                compared += 1
                self.setUp()
                self.prepare(code, theirs.header.get("extFields") or {}, expected.body)
                ours = self.server.send(theirs.frame)
                assert ours is not None
                self.assertEqual(fieldsOfOurs(ours), fieldsOf(expected))
        self.assertEqual(compared, count)

    def prepare(self, code: int, fields: dict[str, str], body: bytes) -> None:
        """
        Connect the clients of a captured answer.
        """
        if code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            for clientId in decodeBody(GetConsumerListByGroupResponseBody, body).consumerIdList:
                self.consumers.register(
                    consumer(fields["consumerGroup"]), self.connect(clientId, "", "JAVA", 407), 0
                )
        elif code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            told = decodeBody(ConsumerConnection, body)
            data = ConsumerData(
                fields["consumerGroup"],
                told.consumeType,
                told.messageModel,
                told.consumeFromWhere,
                frozenset(told.subscriptionTable.values()),
            )
            for each in told.connectionSet:
                assert each.clientId and each.clientAddr and each.language
                self.consumers.register(
                    data,
                    self.connect(each.clientId, each.clientAddr, each.language, each.version),
                    0,
                )
        elif code == RequestCode.GET_PRODUCER_CONNECTION_LIST:
            for each in decodeBody(ProducerConnection, body).connectionSet:
                assert each.clientId and each.clientAddr and each.language
                self.producers.register(
                    fields["producerGroup"],
                    self.connect(each.clientId, each.clientAddr, each.language, each.version),
                    0,
                )
        elif code == RequestCode.GET_ALL_PRODUCER_INFO:
            for group, infos in decodeBody(ProducerTableInfo, body).data.items():
                for info in infos:
                    assert info.clientId and info.remoteIP and info.language
                    self.producers.register(
                        group,
                        self.connect(info.clientId, info.remoteIP[1:], info.language, info.version),
                        info.lastUpdateTimestamp,
                    )

    def test_capturedConsumerIds(self) -> None:
        """
        GET_CONSUMER_LIST_BY_GROUP, on both ports.
        """
        self.replay(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 6)

    def test_capturedConsumers(self) -> None:
        """
        GET_CONSUMER_CONNECTION_LIST.
        """
        self.replay(RequestCode.GET_CONSUMER_CONNECTION_LIST, 2)

    def test_capturedProducers(self) -> None:
        """
        GET_PRODUCER_CONNECTION_LIST.
        """
        self.replay(RequestCode.GET_PRODUCER_CONNECTION_LIST, 2)

    def test_capturedAllProducers(self) -> None:
        """
        GET_ALL_PRODUCER_INFO.
        """
        self.replay(RequestCode.GET_ALL_PRODUCER_INFO, 2)

    def test_capturedChecks(self) -> None:
        """
        CHECK_CLIENT_CONFIG, by a broker that evaluates the expression.
        """
        self.replay(RequestCode.CHECK_CLIENT_CONFIG, 6)

    def test_capturedLists(self) -> None:
        """
        Requests for a group's members whose answers were not captured are understood
        all the same: C++'s, and those of consumers that pull.
        """
        replayed = requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP, "broker", "vip")
        self.assertEqual(len(replayed), 14)
        for theirs in replayed:
            self.setUp()
            group = theirs.header["extFields"]["consumerGroup"]
            self.consumers.register(consumer(group), Connected().client("me"), 0)
            ours = self.server.send(theirs.frame)
            assert ours is not None
            self.assertEqual(ours.body, b'{"consumerIdList":["me"]}')

    def test_capturedNobody(self) -> None:
        """
        GET_CONSUMER_CONNECTION_LIST for a group without members: Java's code and a
        remark that names the group.
        """
        theirs = [
            each
            for each in captures()
            if each.requestCode == RequestCode.GET_CONSUMER_CONNECTION_LIST
            and each.header["code"] == ResponseCode.CONSUMER_NOT_ONLINE
        ]
        self.assertEqual(len(theirs), 2)
        for each in theirs:
            group = each.header["remark"].split("[")[1].split("]")[0]
            ours = self.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
            ours.opaque = each.header["opaque"]
            self.assertEqual(fieldsOfOurs(ours), fieldsOf(each))
            self.assertIn(group, ours.remark or "")
