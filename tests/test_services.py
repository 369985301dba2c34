# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.services}: that a broker's parts work with one another.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import attrs
from twisted.internet.defer import Deferred
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.broker.brokers import Caller, WholeBrokerTests
from tests.processors.support import BROUGHT, SUSPEND, pullHeader, sendHeader
from txrocket.broker.interfaces import (
    IBrokerProcessor,
    IMessageFilter,
    ISendHook,
    SendMessageContext,
)
from txrocket.errors import ConfigError
from txrocket.message import MessageExt
from txrocket.model import SubscriptionGroupConfig
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.record import decodeRecords
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.server.environment import Environment
from txrocket.services import Plugins, broker
from txrocket.store.settings import FlushDiskType

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE

HEARTBEAT = (
    '{{"clientID":"{0}","consumerDataSet":[{{"groupName":"G","consumeType":"CONSUME_PASSIVELY",'
    '"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    '"subscriptionDataSet":[{{"topic":"T","subString":"*","subVersion":1}}],"unitMode":false}}],'
    '"producerDataSet":[{{"groupName":"P"}}]}}'
)


class ServicesTests(WholeBrokerTests):
    """
    The base: asking a broker, and being answered in the same turn.
    """

    def ask(
        self, caller: Caller, code: int, header: object = None, body: bytes = b""
    ) -> RemotingCommand:
        """
        The one answer to a request.
        """
        caller.ask(code, header, body)  # type: ignore[arg-type]
        self.turn()
        [answer] = [each for each in caller.answers() if each.isResponse]
        return answer


class IdentityTests(ServicesTests):
    """
    The identity of a broker.
    """

    def test_defaultIdentityIsTheMachines(self) -> None:
        """
        Its name is the machine's, its address the one at which others reach it, and
        what it stores names that address.
        """
        with (
            mock.patch.object(socket, "gethostname", return_value="machine"),
            mock.patch("txrocket.services.core.localAddress", return_value="192.0.2.44"),
        ):
            configuration = self.configuration(brokerName="", brokerIP1="")
            made = broker(self.around(), configuration)
        identity = made.registration.identity
        self.assertEqual((identity.name, identity.cluster), ("machine", "DefaultCluster"))
        self.assertEqual(
            (identity.address, identity.haAddress), ("192.0.2.44:10911", "192.0.2.44:10912")
        )
        self.assertEqual(identity.brokerId, 0)

    def test_settingsChooseIdentity(self) -> None:
        """
        Or what its settings say; where slaves would go may be another address.
        """
        made = self.make(brokerIP1="192.0.2.1", brokerIP2="192.0.2.2", listenPort="30911")
        identity = made.registration.identity
        self.assertEqual(
            (identity.address, identity.haAddress), ("192.0.2.1:30911", "192.0.2.2:30912")
        )

    def test_ipv6AddressIsBracketed(self) -> None:
        """
        An IPv6 address stands in brackets, and ids hold all of it.
        """
        self.start(brokerIP1="2001:db8::1")
        caller = self.call()
        answer = self.ask(caller, SEND, sendHeader())
        expected = "20010DB8000000000000000000000001" + f"{10911:08X}" + "0" * 16
        self.assertEqual(answer.extFields["msgId"], expected)

    def test_hostNameIsResolvedForRecords(self) -> None:
        """
        Clients may be told a name, where records hold its address.
        """
        made = self.start(brokerIP1="localhost")
        self.assertEqual(made.registration.identity.address, "localhost:10911")
        answer = self.ask(self.call(), SEND, sendHeader())
        self.assertTrue(answer.extFields["msgId"].startswith("7F000001"))

    def test_invalidAddressIsRefused(self) -> None:
        """
        An invalid address is an error that names the setting.
        """
        with mock.patch.object(socket, "gethostbyname", side_effect=OSError("unknown")):
            error = self.assertRaises(ConfigError, self.make, brokerIP1="no.such.host")
        self.assertEqual(str(error), "brokerIP1=no.such.host: unknown")
        error = self.assertRaises(ConfigError, self.make, brokerIP1="::no")
        self.assertIn("brokerIP1=::no", str(error))
        error = self.assertRaises(ConfigError, self.make, namesrvAddr="host")
        self.assertIn("namesrvAddr=host", str(error))

    def test_zeroPortIsReplaced(self) -> None:
        """
        Port 0 becomes a free one, with another free one two below and one above.
        """
        with mock.patch("txrocket.services.core.freePort", return_value=40911) as chosen:
            self.start(listenPort="0")
        chosen.assert_called_once_with(2, 1)
        self.assertEqual([each.number for each in self.ports], [40911, 40909, 40912])


@implementer(ISendHook)
class Shouting:
    """
    A hook.
    """

    def beforeSend(self, sending: SendMessageContext) -> None:
        sending.body = sending.body.upper()

    def afterSend(self, sending: SendMessageContext, response: RemotingCommand) -> None:
        pass


@implementer(IMessageFilter)
class Longer:
    """
    A filter: messages whose property C{n} is longer than a number.
    """

    expressionType = "LONGER"

    def compile(self, expression: str) -> Callable[[MessageExt], bool]:
        limit = int(expression)
        return lambda message: len(message.properties.get("n", "")) > limit


@implementer(IBrokerProcessor)
class Greeting:
    """
    A processor.
    """

    def __init__(self, blocking: bool) -> None:
        self.blocking = blocking

    def codes(self) -> Mapping[int, Process]:
        return {90_001: self.greet}

    def greet(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        return responseCommand(body=b"hello " + request.body)


class PluginTests(ServicesTests):
    """
    What is plugged into a broker.
    """

    def test_testPluginsProvideInterfaces(self) -> None:
        """
        The plugins of the tests provide the interfaces.
        """
        verifyObject(ISendHook, Shouting())
        verifyObject(IMessageFilter, Longer())
        verifyObject(IBrokerProcessor, Greeting(True))

    def test_hookSeesMessages(self) -> None:
        """
        A hook sees all messages.
        """
        self.start(Plugins(sendHooks=[Shouting()]))
        caller = self.call()
        self.ask(caller, SEND, sendHeader(), b"hello")
        answer = self.ask(caller, PULL, pullHeader())
        self.assertEqual([each.body for each in decodeRecords(answer.body)], [b"HELLO"])

    def test_filterIsFoundByName(self) -> None:
        """
        A filter is found by its name, if filters are enabled; its user gets its error for a
        bad expression.
        """
        self.start(Plugins(filters=[Longer()]), enablePropertyFilter="true")
        caller = self.call()
        for text in ("x", "xxx"):
            self.ask(caller, SEND, sendHeader(properties=f"n\x01{text}"), text.encode())
        header = pullHeader(subscription="2", expressionType="LONGER")
        answer = self.ask(caller, PULL, header)
        self.assertEqual([each.body for each in decodeRecords(answer.body)], [b"xxx"])
        header = pullHeader(subscription="two", expressionType="LONGER")
        answer = self.ask(caller, PULL, header)
        self.assertEqual(answer.code, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        self.assertIn("LONGER expression for T: invalid literal", answer.remark or "")

    def test_blockingProcessorRunsInThread(self) -> None:
        """
        A processor serves codes of its own: in the reactor, or in a thread if it
        blocks.
        """

        class Noted(InlineExecutor):
            pass

        for blocking, executor in ((False, InlineExecutor), (True, Noted)):
            made = broker(
                attrs.evolve(self.around(), executor=lambda name, size, queueLimit: Noted()),
                self.configuration(storePathRootDir=self.mktemp()),
                Plugins(processors=[Greeting(blocking)]),
            )
            self.assertIs(type(made.remoting.processorTable[90_001].executor), executor)
        self.start(Plugins(processors=[Greeting(False)]))
        answer = self.ask(self.call(), 90_001, None, b"you")
        self.assertEqual(answer.body, b"hello you")


class LiveSettingsTests(ServicesTests):
    """
    Settings that are changed while a broker runs, and the parts that read them.
    """

    def setUp(self) -> None:
        super().setUp()
        self.settings = self.configuration()
        self.broker = broker(self.around(), self.settings)
        self.broker.startService()
        self.caller = self.call()
        self.turn()

    def tearDown(self) -> None:
        self.broker.stopService()
        self.turn(5)

    def change(self, **changes: str) -> None:
        """
        Change settings.
        """
        self.settings.update(changes, 0)
        self.turn()

    def send(self, **changes: Any) -> RemotingCommand:
        """
        The answer to a message.
        """
        return self.ask(self.caller, SEND, sendHeader(**changes), b"x")

    def test_permissionAndTraceApply(self) -> None:
        """
        C{brokerPermission} and C{traceOn}: senders, consumers and name servers.
        """
        self.send()
        self.change(brokerPermission="2", traceOn="false")
        self.assertEqual(self.send().extFields["TRACE_ON"], "false")
        answer = self.ask(self.caller, PULL, pullHeader())
        self.assertEqual(answer.code, ResponseCode.NO_PERMISSION)

    def test_transactionSettingsApply(self) -> None:
        """
        C{rejectTransactionMessage}: senders; C{transactionTimeOut} and
        C{transactionCheckMax}: the checks.
        """
        half = "TRAN_MSG\x01true\x02PGROUP\x01P"
        self.assertEqual(self.send(properties=half).code, ResponseCode.SUCCESS)
        self.change(
            rejectTransactionMessage="true", transactionTimeOut="1", transactionCheckMax="2"
        )
        self.assertEqual(self.send(properties=half).code, ResponseCode.NO_PERMISSION)
        asked = 0
        for _ in range(4):
            self.caller.ask(RequestCode.HEART_BEAT, None, HEARTBEAT.format("p").encode())
            self.turn(60)
            codes = [each.code for each in self.caller.answers() if not each.isResponse]
            asked += codes.count(RequestCode.CHECK_TRANSACTION_STATE)
        self.assertEqual(asked, 2)

    def test_startTimeApplies(self) -> None:
        """
        C{startAcceptSendRequestTimeStamp}: senders.
        """
        self.change(startAcceptSendRequestTimeStamp=str(2**60))
        self.assertEqual(self.send().code, ResponseCode.SYSTEM_ERROR)

    def test_autoCreateTopicApplies(self) -> None:
        """
        C{autoCreateTopicEnable}: topics.
        """
        self.change(autoCreateTopicEnable="false")
        self.assertEqual(self.send(topic="new").code, ResponseCode.TOPIC_NOT_EXIST)

    def test_autoCreateGroupApplies(self) -> None:
        """
        C{autoCreateSubscriptionGroup}: groups.
        """
        self.send()
        self.change(autoCreateSubscriptionGroup="false")
        answer = self.ask(self.caller, PULL, pullHeader(consumerGroup="new"))
        self.assertEqual(answer.code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)

    def test_pullSettingsApply(self) -> None:
        """
        C{longPollingEnable}, C{pullThreadPoolQueueCapacity} and
        C{enablePropertyFilter}: pulls, those that are held, and their filters.
        """
        self.send()
        self.change(longPollingEnable="false", shortPollingTimeMills="100")
        header = pullHeader(queueOffset=1, sysFlag=SUSPEND | BROUGHT)
        self.caller.ask(PULL, header)
        self.turn(0.1)
        [answer] = self.caller.answers()
        self.assertEqual(answer.code, ResponseCode.PULL_NOT_FOUND)
        self.change(pullThreadPoolQueueCapacity="1")
        self.caller.ask(PULL, header)
        self.assertEqual(self.ask(self.caller, PULL, header).code, ResponseCode.SYSTEM_BUSY)
        self.turn(0.1)
        self.caller.answers()
        header = pullHeader(subscription="x", expressionType="OWN")
        answer = self.ask(self.caller, PULL, header)
        self.assertIn("enablePropertyFilter is false", answer.remark or "")
        self.change(enablePropertyFilter="true")
        answer = self.ask(self.caller, PULL, header)
        self.assertIn("does not filter messages by OWN", answer.remark or "")

    def test_flushDiskTypeApplies(self) -> None:
        """
        C{flushDiskType}: the store.
        """
        self.change(flushDiskType="SYNC_FLUSH")
        self.assertIs(self.broker.store.settings.flushDiskType, FlushDiskType.SYNC_FLUSH)
        self.assertEqual(self.send().code, ResponseCode.SUCCESS)


class EnvironmentTests(ServicesTests):
    """
    What a broker is given.
    """

    def test_environmentNeedsNoStart(self) -> None:
        """
        An environment without start and stop works as well.
        """
        names = [each.name for each in attrs.fields(Environment)]
        given = {each: getattr(self.around(), each) for each in names}
        del given["start"], given["stop"]
        made = broker(Environment(**given), self.configuration())
        made.startService()
        stopped = made.stopService()
        self.turn()
        self.successResultOf(stopped)


class TogetherTests(ServicesTests):
    """
    Parts that tell one another.
    """

    def heartbeat(self, clientId: str) -> Caller:
        """
        A consumer comes.
        """
        caller = self.call()
        caller.ask(RequestCode.HEART_BEAT, None, HEARTBEAT.format(clientId).encode())
        self.turn()
        return caller

    def notices(self, caller: Caller) -> list[int]:
        """
        The requests of the broker to a client.
        """
        return [each.code for each in caller.answers() if not each.isResponse]

    def test_newMemberNotifiesGroup(self) -> None:
        """
        The members of a group are told when one comes, unless the group or the
        broker says otherwise.
        """
        made = self.start()
        first = self.heartbeat("a")
        first.answers()
        self.heartbeat("b")
        self.assertEqual(self.notices(first), [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED])
        made.tables.groups.put(SubscriptionGroupConfig("G", notifyConsumerIdsChangedEnable=False))
        self.heartbeat("c")
        self.assertEqual(self.notices(first), [])

    def test_noMembersTold(self) -> None:
        """
        C{notifyConsumerIdsChangedEnable} is for all groups of a broker.
        """
        self.start(notifyConsumerIdsChangedEnable="false")
        first = self.heartbeat("a")
        first.answers()
        self.heartbeat("b")
        self.assertEqual(self.notices(first), [])

    def test_pullUsesHeartbeatsSubscription(self) -> None:
        """
        A pull means the subscription of its group's heartbeat.
        """
        self.start()
        caller = self.heartbeat("a")
        caller.answers()
        self.ask(caller, SEND, sendHeader(), b"x")
        answer = self.ask(caller, PULL, pullHeader(sysFlag=0, subVersion=1))
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        answer = self.ask(caller, PULL, pullHeader(sysFlag=0, subVersion=2))
        self.assertEqual(answer.code, ResponseCode.SUBSCRIPTION_NOT_LATEST)

    def test_silentClientIsRemoved(self) -> None:
        """
        A client that is silent for two minutes is forgotten.
        """
        self.start()
        caller = self.heartbeat("a")
        caller.answers()
        for _ in range(13):
            self.turn(10)
            # Not idle, but no heartbeat either.
            caller.ask(PULL, pullHeader("none"))
            self.turn()
        self.assertTrue(caller.wire.disconnecting)

    def test_newTopicIsRegisteredAtOnce(self) -> None:
        """
        Name servers get a new topic at once.
        """
        self.start(namesrvAddr="192.0.2.1:9876")
        self.turn()
        before = len(self.nameServer.asked)
        self.ask(self.call(), SEND, sendHeader("new"), b"x")
        self.assertEqual(self.nameServer.asked[before:], [RequestCode.REGISTER_BROKER])

    def test_responsesOfASyncAreWrittenTogether(self) -> None:
        """
        Answers that wait for the same sync are written together.
        """
        turn = self.start(flushDiskType="SYNC_FLUSH").remoting.turn
        caller = self.call()
        self.ask(caller, SEND, sendHeader())
        caller.wire.writes.clear()
        jobs: list[tuple[Callable[[], None], Deferred[None]]] = []

        def inThread(job: Callable[[], None]) -> Deferred[None]:
            done: Deferred[None] = Deferred()
            jobs.append((job, done))
            return done

        self.inThread = inThread
        turn.driven = True
        for _ in range(3):
            caller.ask(SEND, sendHeader(), b"x")
        turn.end()
        [(job, done)] = jobs
        job()
        done.callback(None)
        turn.end()
        self.assertEqual(len(caller.wire.writes), 1)
        self.assertEqual([each.code for each in caller.answers()], [0, 0, 0])
