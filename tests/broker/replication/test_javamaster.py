# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.replication.tables.javamaster}.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.replication.test_tables import Log
from txrocket.broker.replication.tables.javamaster import JavaMasterTables
from txrocket.broker.replication.tables.sink import TableSink
from txrocket.errors import RemoteSystemError
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, responseCommand
from txrocket.testing.memory.cluster import MemoryCluster

MASTER = "192.0.2.9:10911"

# As RocketMQ 4.9.7 writes its tables.
BODIES: dict[int, bytes] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: (
        b'{"dataVersion":{"counter":4,"timestamp":1700000000000},"topicConfigTable":{"T":{"order":'
        b'false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T",'
        b'"topicSysFlag":0,"writeQueueNums":4}}}'
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"T@G":{0:7,1:3}}}',
    RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{3:17}}',
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        b'{"dataVersion":{"counter":2,"timestamp":1700000000000},"subscriptionGroupTable":{"G":{'
        b'"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"groupName":"G","notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":9,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
    ),
    RequestCode.GET_BROKER_RUNTIME_INFO: b'{"table":{"commitLogMaxOffset":"1000"}}',
}


class Errors:
    """
    A logger of errors.
    """

    def __init__(self, events: list[object]) -> None:
        self._events = events

    def error(self, text: str, **values: object) -> None:
        """
        Keep an error.
        """
        self._events.append(values["error"])


class JavaMasterTests(SynchronousTestCase):
    """
    A slave that asks a master for its tables.
    """

    def setUp(self) -> None:
        self.cluster = MemoryCluster(nameServers=0)
        self.cluster.start()
        self.addCleanup(self.cluster.stop)
        parts = self.cluster.broker().parts
        self.tables, self.delivery = parts.tables, parts.delivery
        self.log = Log()
        sink = TableSink(
            self.tables, self.delivery, self.log, lambda topic: None, lambda role: None
        )
        self.asked: list[tuple[str, int]] = []
        self.bodies: dict[int, bytes] = dict(BODIES)
        self.wanted = True
        self.java = JavaMasterTables(self.cluster.clock, self.ask, sink, lambda: self.wanted)
        self.addCleanup(self.java.follow, "")

    def ask(
        self, address: str, request: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        """
        The master.
        """
        self.asked.append((address, request.code))
        self.assertEqual(3.0, timeout)
        body = self.bodies.get(request.code)
        return (
            fail(RemoteSystemError("late")) if body is None else succeed(responseCommand(body=body))
        )

    def test_tablesAreAskedForInJavasOrderAndTime(self) -> None:
        """
        The master is asked after three seconds, and then every ten.
        """
        self.java.follow(MASTER)
        self.cluster.advance(2.9)
        self.assertEqual([], self.asked)
        self.cluster.advance(0.2)
        self.assertEqual([(MASTER, code) for code in BODIES], self.asked)
        self.cluster.advance(9.5)
        self.assertEqual(5, len(self.asked))
        self.cluster.advance(0.5)
        self.assertEqual(10, len(self.asked))

    def test_tablesAreTaken(self) -> None:
        """
        The slave has the master's topics and groups afterwards, with their versions, and its
        own system topics.
        """
        own = set(self.tables.topics.own)
        self.java.follow(MASTER)
        self.cluster.advance(4.0)
        self.assertEqual({*own, "T"}, set(self.tables.topics.table))
        self.assertEqual(4, self.tables.topics.version.counter)
        self.assertEqual(9, self.tables.groups.table["G"].retryMaxTimes)

    def test_offsetsWaitForTheLog(self) -> None:
        """
        Offsets count once the slave's log has come to where the master's was.
        """
        self.java.follow(MASTER)
        self.cluster.advance(4.0)
        self.assertEqual(-1, self.tables.offsets.query("G", "T", 0))
        self.log.grow(1000)
        self.assertEqual({0: 7, 1: 3}, self.tables.offsets.of("G", "T"))
        self.assertEqual({3: 17}, self.delivery.delayLevels.offsets)

    def test_offsetsNeverGoBack(self) -> None:
        """
        A master that comes back with older offsets takes none back.
        """
        self.log.grow(1000)
        self.tables.offsets.commit("G", "T", 0, 20, "here")
        self.java.follow(MASTER)
        self.cluster.advance(4.0)
        self.assertEqual({0: 20, 1: 3}, self.tables.offsets.of("G", "T"))

    def test_aMasterThatSendsItsTablesIsNotAsked(self) -> None:
        """
        A master of ours is not asked.
        """
        self.wanted = False
        self.java.follow(MASTER)
        self.cluster.advance(30.0)
        self.assertEqual([], self.asked)

    def test_nobodyIsAskedWithoutAMaster(self) -> None:
        """
        A slave that follows no master any more asks nobody.
        """
        self.java.follow(MASTER)
        self.cluster.advance(4.0)
        self.java.follow("")
        self.asked.clear()
        self.cluster.advance(30.0)
        self.assertEqual([], self.asked)

    def test_aFailureIsLoggedOnce(self) -> None:
        """
        A master that does not answer, or answers nonsense, is logged once and asked again.
        """
        events: list[object] = []
        self.patch(self.java, "_log", Errors(events))
        self.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = b"nonsense"
        self.java.follow(MASTER)
        self.cluster.advance(14.0)
        del self.bodies[RequestCode.GET_ALL_TOPIC_CONFIG]
        self.cluster.advance(10.0)
        self.assertEqual(1, len(events), events)
        self.bodies.update(BODIES)
        self.cluster.advance(10.0)
        self.assertIn("T", self.tables.topics.table)
