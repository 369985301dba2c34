# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.registration}.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk, atOnce
from txrocket.broker.registration import Identity, NameServerRegistration
from txrocket.broker.settings import RegistrationSettings, TopicSettings
from txrocket.broker.tables.savedtable import TableFile
from txrocket.broker.tables.topics import Topics
from txrocket.config import Live
from txrocket.errors import ConnectFailed, RequestTimedOut
from txrocket.model import DataVersion, TopicConfig
from txrocket.protocol.bodies import KVTable, RegisterBrokerBody
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.bodies.registerbroker import decodeRegisterBroker
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.protocol.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import Remoting
from txrocket.store.jsontable import Table

A, B = "192.0.2.1:9876", "192.0.2.2:9876"
IDENTITY = Identity("c", "b", "192.0.2.9:10911", "192.0.2.9:10912")


class NameServers:
    """
    Requests to name servers, which the test answers.  All are connected.
    """

    def __init__(self) -> None:
        self._connections = {
            each: RemotingProtocol(Remoting(Clock()), accepted=False) for each in (A, B)
        }
        self.asked: list[tuple[str, RemotingCommand, float, Deferred[RemotingCommand]]] = []

    def request(
        self, address: str, command: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        answer: Deferred[RemotingCommand] = Deferred()
        self.asked.append((address, command, timeout, answer))
        return answer

    def up(self, address: str) -> RemotingProtocol | None:
        return self._connections[address]

    def take(self) -> list[tuple[str, RemotingCommand, float, Deferred[RemotingCommand]]]:
        """
        The requests since the last call.
        """
        asked, self.asked = self.asked, []
        return asked

    def answer(self, *bodies: bytes) -> list[RemotingCommand]:
        """
        Say yes to all that was asked.

        @param bodies: what else to say, to the first, the second and so on.
        """
        asked = self.take()
        for number, (_, _, _, answer) in enumerate(asked):
            answer.callback(responseCommand(body=bodies[number] if number < len(bodies) else b""))
        return [command for _, command, _, _ in asked]


class AnnouncementCase(SynchronousTestCase):
    """
    A broker and two name servers.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.servers = NameServers()
        path = os.path.join(self.mktemp(), "config", "topics.json")
        self.topics = Topics(
            TableFile(Table(Disk(), path), atOnce),
            ("c", "b"),
            Live(TopicSettings()),
            self.milliseconds,
        )
        self.registration = self.make()

    def milliseconds(self) -> int:
        """
        The time of the clock.
        """
        return int(self.clock.seconds() * 1000)

    def make(self, **settings: Any) -> NameServerRegistration:
        """
        A registration at the name servers.
        """
        peers: Any = self.servers
        own = RegistrationSettings(f"{A};{B}", **settings)
        return NameServerRegistration(self.clock, peers, IDENTITY, own, self.topics)

    def start(self) -> None:
        """
        Start, and have the name servers hear of it.
        """
        started = self.registration.start()
        self.servers.answer()
        self.successResultOf(started)
        self.addCleanup(self.registration.stop)

    def told(self, command: RemotingCommand) -> RegisterBrokerBody:
        """
        The content of a registration.
        """
        self.assertEqual(RequestCode.REGISTER_BROKER, command.code)
        return decodeBody(RegisterBrokerBody, command.body)


class RegisterTests(AnnouncementCase):
    """
    Telling all.
    """

    def test_startRegistersWithAll(self) -> None:
        """
        At the start the broker registers its identity with every name server, and the topics
        it has, with the checksum of that.
        """
        started = self.registration.start()
        asked = self.servers.take()
        self.assertEqual([A, B], [address for address, _, _, _ in asked])
        for _, command, timeout, answer in asked:
            header = command.decodeHeader(RegisterBrokerRequestHeader)
            crc = zlib.crc32(command.body) & 0x7FFFFFFF
            self.assertEqual(
                RegisterBrokerRequestHeader(
                    "b", "192.0.2.9:10911", "c", "192.0.2.9:10912", 0, False, crc
                ),
                header,
            )
            wrapper = self.told(command).topicConfigSerializeWrapper
            self.assertEqual(self.topics.table, wrapper.topicConfigTable)
            self.assertEqual(self.topics.version, wrapper.dataVersion)
            self.assertEqual(6.0, timeout)
            self.assertNoResult(started)
            answer.callback(responseCommand())
        self.successResultOf(started)

    def test_registrationMayBeCompressed(self) -> None:
        """
        It can be told deflated.
        """
        self.registration = self.make(compressedRegister=True)
        self.registration.start()
        command = self.servers.take()[0][1]
        self.assertTrue(command.decodeHeader(RegisterBrokerRequestHeader).compressed)
        body = decodeRegisterBroker(command.body, True)
        self.assertEqual(self.topics.table, body.topicConfigSerializeWrapper.topicConfigTable)

    def test_registrationIsRepeated(self) -> None:
        """
        It is told once more after ten seconds, because a name server may have
        been started together with the broker; then every half minute.
        """
        self.start()
        for seconds in (10, 30, 30):
            self.clock.advance(seconds - 0.1)
            self.assertEqual([], self.servers.take())
            self.clock.advance(0.1)
            self.assertEqual(2, len(self.servers.answer()))

    def test_periodIsBounded(self) -> None:
        """
        The period is not less than ten seconds and not more than sixty.
        """
        for period, seconds in ((1, 10), (600_000, 60)):
            self.registration = self.make(registerNameServerPeriod=period)
            self.start()
            self.clock.advance(10)
            self.servers.answer()
            self.clock.advance(seconds - 0.1)
            self.assertEqual([], self.servers.take())
            self.clock.advance(0.1)
            self.assertEqual(2, len(self.servers.answer()))
            self.registration.stop()
            self.servers.answer()

    def test_changesOfATurnRegisterOnce(self) -> None:
        """
        A change is told at once, many changes of one turn together.
        """
        self.start()
        self.topics.put(TopicConfig("T"))
        self.topics.put(TopicConfig("U"))
        self.assertEqual([], self.servers.asked)
        self.clock.advance(0)
        commands = self.servers.answer()
        self.assertEqual(2, len(commands))
        for each in commands:
            table = self.told(each).topicConfigSerializeWrapper.topicConfigTable
            self.assertLessEqual({"T", "U"}, set(table))
        self.clock.advance(0)
        self.assertEqual([], self.servers.asked)

    def test_changeAwaitsAllNameServers(self) -> None:
        """
        The author of a change can wait until all name servers have it or have failed;
        without a change there is nothing to wait for.
        """
        self.successResultOf(self.registration.whenTold())
        self.start()
        self.successResultOf(self.registration.whenTold())
        self.topics.put(TopicConfig("T"))
        told, also = self.registration.whenTold(), self.registration.whenTold()
        self.clock.advance(0)
        (_, _, _, first), (_, _, _, second) = self.servers.take()
        self.topics.put(TopicConfig("U"))
        later = self.registration.whenTold()
        first.callback(responseCommand())
        self.assertNoResult(told)
        second.errback(ConnectFailed(B, "refused"))
        self.successResultOf(told)
        self.successResultOf(also)
        self.assertNoResult(later)
        self.clock.advance(0)
        self.servers.answer()
        self.successResultOf(later)

    def test_permissionAppliesToAllTopics(self) -> None:
        """
        A broker that may not be written to says so for each of its topics, under
        a new version, without which name servers would not look.
        """
        self.start()
        before = self.topics.version.counter
        self.registration.permit(4)
        self.clock.advance(0)
        for each in self.servers.answer():
            wrapper = self.told(each).topicConfigSerializeWrapper
            self.assertEqual({4}, {config.perm for config in wrapper.topicConfigTable.values()})
            self.assertEqual(before + 1, wrapper.dataVersion.counter)
        self.registration.permit(6)
        self.clock.advance(0)
        wrapper = self.told(self.servers.answer()[0]).topicConfigSerializeWrapper
        self.assertEqual(self.topics.table, wrapper.topicConfigTable)
        self.registration.permit(6)
        self.clock.advance(0)
        self.assertEqual([], self.servers.asked)

    def test_permissionBeforeStartIsToldAtStart(self) -> None:
        """
        A permission from before the start is told at the start, and the topics are left
        alone: they may not be loaded yet.
        """
        self.registration.permit(2)
        self.assertEqual(0, self.topics.version.counter)
        self.registration.start()
        wrapper = self.told(self.servers.answer()[0]).topicConfigSerializeWrapper
        self.assertEqual({2}, {config.perm for config in wrapper.topicConfigTable.values()})

    def test_orderOfNameServerIsSet(self) -> None:
        """
        Topics that a name server has an order for are noted; one that says
        nothing of orders changes nothing.
        """
        self.topics.put(TopicConfig("T"))
        started = self.registration.start()
        self.servers.answer(encodeBody(KVTable({"T": "b:4"})))
        self.successResultOf(started)
        self.assertTrue(self.topics.table["T"].order)
        self.clock.advance(10)
        self.servers.answer()
        self.assertTrue(self.topics.table["T"].order)


class AskTests(AnnouncementCase):
    """
    Telling only what has changed.
    """

    def setUp(self) -> None:
        super().setUp()
        self.registration = self.make(forceRegister=False)
        self.start()

    def ask(self, *changed: bool) -> None:
        """
        Let the time come, and have the name servers say whether they know all.
        """
        self.clock.advance(self.registration._loop.interval or 10)
        asked = self.servers.take()
        self.assertEqual(2, len(asked))
        for (_, command, _, answer), each in zip(asked, changed, strict=True):
            self.assertEqual(RequestCode.QUERY_DATA_VERSION, command.code)
            self.assertEqual(
                QueryDataVersionRequestHeader("b", "192.0.2.9:10911", "c", 0),
                command.decodeHeader(QueryDataVersionRequestHeader),
            )
            self.assertEqual(self.topics.version, decodeBody(DataVersion, command.body))
            answer.callback(responseCommand(header=QueryDataVersionResponseHeader(each)))

    def test_knownVersionIsNotSent(self) -> None:
        """
        A name server that knows all is told nothing, one that does not is told.
        """
        self.ask(False, True)
        self.assertEqual([B], [address for address, _, _, _ in self.servers.asked])
        self.told(self.servers.answer()[0])
        self.ask(False, False)
        self.assertEqual([], self.servers.asked)

    def test_returnedNameServerCountsAsUp(self) -> None:
        """
        A name server that is there again and still knows all counts as there.
        """
        self.clock.advance(10)
        with capturedLogs() as events:
            (_, _, _, first), (_, _, _, second) = self.servers.take()
            first.errback(ConnectFailed(A, "refused"))
            second.callback(responseCommand(header=QueryDataVersionResponseHeader(False)))
            self.ask(False, False)
        self.assertEqual(
            [(LogLevel.error, A), (LogLevel.info, A)],
            [(each["log_level"], each["address"]) for each in events],
        )


class FailureTests(AnnouncementCase):
    """
    Name servers that do not answer.
    """

    def test_failingNameServerDelaysNoOther(self) -> None:
        """
        One that fails keeps no other from being told; that it does is said once,
        and once more when it is there again.
        """
        with capturedLogs() as events:
            started = self.registration.start()
            for seconds in (10, 30):
                (_, _, _, first), (_, _, _, second) = self.servers.take()
                first.errback(RequestTimedOut(A, "late"))
                second.callback(responseCommand())
                self.clock.advance(seconds)
            self.successResultOf(started)
            self.assertEqual([A], [each["address"] for each in events])
            self.servers.answer()
        self.assertEqual([LogLevel.error, LogLevel.info], [each["log_level"] for each in events])

    def test_errorResponseIsAFailure(self) -> None:
        """
        An answer that is no yes is a failure too, as is one that cannot be read.
        """
        for answer in (responseCommand(1, "no"), responseCommand(body=b"{")):
            self.registration = self.make()
            started = self.registration.start()
            with capturedLogs() as events:
                self.servers.take()[0][3].callback(answer)
            self.assertEqual([A], [each["address"] for each in events])
            self.assertNoResult(started)
            self.registration.stop()
            self.servers.take()

    def test_unexpectedErrorIsLogged(self) -> None:
        """
        Should telling fail by a bug, that is logged.
        """
        self.start()
        self.registration.identity = None  # type: ignore[assignment]
        self.clock.advance(10)
        self.assertEqual(2, len(self.flushLoggedErrors(AttributeError)))
        self.registration.identity = IDENTITY


class StopTests(AnnouncementCase):
    """
    Saying goodbye.
    """

    def test_stopUnregistersFromAll(self) -> None:
        """
        All name servers hear that the broker goes; one that does not is waited
        for three seconds and no more.
        """
        self.start()
        stopped = self.registration.stop()
        (_, command, timeout, first), (_, _, _, second) = self.servers.take()
        self.assertEqual(RequestCode.UNREGISTER_BROKER, command.code)
        self.assertEqual(
            UnRegisterBrokerRequestHeader("b", "192.0.2.9:10911", "c", 0),
            command.decodeHeader(UnRegisterBrokerRequestHeader),
        )
        self.assertEqual(3.0, timeout)
        first.errback(RequestTimedOut(A, "late"))
        self.assertNoResult(stopped)
        second.callback(responseCommand(1, "never heard of it"))
        self.successResultOf(stopped)

    def test_stopEndsRegistration(self) -> None:
        """
        After that nothing more is told, whatever was about to be.
        """
        self.start()
        self.topics.put(TopicConfig("T"))
        told = self.registration.whenTold()
        self.registration.stop()
        self.successResultOf(told)
        self.servers.answer()
        self.topics.put(TopicConfig("U"))
        self.clock.advance(100)
        self.assertEqual([], self.servers.asked)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_earlyStopLeavesNoTimer(self) -> None:
        """
        A stop before the second telling leaves nothing on the clock; so does one
        without a start.
        """
        self.registration.stop()
        self.start()
        self.registration.stop()
        self.assertEqual([], self.clock.getDelayedCalls())
