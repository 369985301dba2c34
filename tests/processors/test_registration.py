# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.nameserver.registration}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.logger import LogLevel

from tests.processors.namesrvcase import NameServerTests
from tests.remoting.doubles import lose
from txrocket.model import DataVersion, TopicConfig
from txrocket.processors.nameserver import registration
from txrocket.protocol.bodies import KVTable, RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.bodies.registerbroker import decodingRegisterBroker
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.fastjson import Gradual
from txrocket.protocol.headers import (
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

ADDRESS = "192.0.2.1:10911"
HEADER = RegisterBrokerRequestHeader("broker-a", ADDRESS, "east", "h:2", 0)


class RegisterTests(NameServerTests):
    """
    REGISTER_BROKER.
    """

    def test_plainAndCompressedBodiesAreAccepted(self) -> None:
        """
        Plain and compressed bodies are taken.
        """
        for compressed in (False, True):
            version = 1 + compressed
            answer = self.register(f"T{version}", version=version, compressed=compressed)
            self.assertEqual((answer.code, answer.extFields, answer.body), (0, {}, b""))
        self.assertEqual(set(self.routes.topicQueueTable), {"T1", "T2"})

    def test_registrationTimeIsRecorded(self) -> None:
        """
        It is noted when it was, in milliseconds.
        """
        self.clock.advance(1.5)
        self.register("T")
        self.assertEqual(self.routes.brokerLiveTable[ADDRESS].lastUpdateTimestamp, 1500)

    def test_slaveLearnsItsMaster(self) -> None:
        """
        A slave is answered where its master is.
        """
        self.register()
        answer = self.register(brokerId=1, address="192.0.2.2:10911")
        self.assertEqual(
            answer.decodeHeader(RegisterBrokerResponseHeader),
            RegisterBrokerResponseHeader("192.0.2.1:10912", ADDRESS),
        )

    def test_orderOfTopicsIsReturned(self) -> None:
        """
        A broker is told the order of topics, if there ever was one.
        """
        header = PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:8")
        self.ask(RequestCode.PUT_KV_CONFIG, header)
        self.assertEqual(decodeBody(KVTable, self.register().body), KVTable({"T": "broker-a:8"}))

    def test_wrongCrcIsRefused(self) -> None:
        """
        A body that does not match its CRC is refused; 0 is not checked.
        """
        body = b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":0}}}'
        header = RegisterBrokerRequestHeader("broker-a", ADDRESS, "east", "h:2", 0, False, 1)
        answer = self.ask(RequestCode.REGISTER_BROKER, header, body)
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("bodyCrc32", answer.remark or "")
        self.assertEqual(self.routes.brokerLiveTable, {})
        header.bodyCrc32 = 0
        self.assertEqual(self.ask(RequestCode.REGISTER_BROKER, header, body).code, 0)

    def test_noBody(self) -> None:
        """
        A broker without a body has no topics, in version 0.
        """
        for version in (36, 37):
            answer = self.ask(RequestCode.REGISTER_BROKER, HEADER, version=version)
            self.assertEqual(answer.code, 0)
            self.assertEqual(self.routes.brokerLiveTable[ADDRESS].dataVersion, DataVersion())

    def test_oldBroker(self) -> None:
        """
        A broker before V3_0_11 sends its topics and nothing around them, and what
        is known of filter servers stays.
        """
        self.register(servers=("f:1",))
        wrapper = TopicConfigSerializeWrapper({"T": TopicConfig("T")}, DataVersion(0, 2))
        body = encodeBody(wrapper)
        self.assertEqual(self.ask(RequestCode.REGISTER_BROKER, HEADER, body, version=36).code, 0)
        self.assertEqual(set(self.routes.topicQueueTable), {"T"})
        self.assertEqual(self.routes.filterServerTable, {ADDRESS: ("f:1",)})

    def test_malformedBodyIsRefused(self) -> None:
        """
        A body that is none is refused, and so is a name or an address that is
        empty; no broker is registered by that.
        """
        answers = [
            self.ask(RequestCode.REGISTER_BROKER, HEADER, b"{", version=version)
            for version in (36, 37)
        ]
        for empty in ("brokerName", "brokerAddr", "clusterName"):
            header = RegisterBrokerRequestHeader("broker-a", ADDRESS, "east", "h:2", 0)
            setattr(header, empty, "")
            answers.append(self.ask(RequestCode.REGISTER_BROKER, header))
            self.assertIn(f"{empty}: is empty", answers[-1].remark or "")
        self.assertEqual([each.code for each in answers], [ResponseCode.SYSTEM_ERROR] * 5)
        self.assertEqual(self.routes.brokerLiveTable, {})

    def test_sameVersionIsReadOnce(self) -> None:
        """
        Topics are read once for each version.
        """
        read: list[int] = []

        def counting(*args: Any) -> Gradual[RegisterBrokerBody]:
            body = yield from decodingRegisterBroker(*args)
            read.append(len(body.topicConfigSerializeWrapper.topicConfigTable))
            return body

        self.patch(registration, "decodingRegisterBroker", counting)
        for version in (1, 1, 2, 2):
            for compressed in (False, True):
                self.register("T", "U", version=version, compressed=compressed)
        self.assertEqual(read, [2, 0, 0, 0, 2, 0, 0, 0])

    def test_connectionLost(self) -> None:
        """
        When a broker's connection closes, it is dropped at once; that is watched
        once for each connection.
        """
        first, second = self.connect(), self.connect()
        for _ in range(3):
            self.register("T", wire=first)
        self.register("T", name="broker-b", address="192.0.2.2:1", wire=second)
        lose(first[0], ConnectionDone())
        self.assertEqual(set(self.routes.brokerAddrTable), {"broker-b"})
        lose(second[0], ConnectionDone())
        self.assertEqual(self.routes.brokerAddrTable, {})
        self.assertEqual(
            [each.partition(": its")[0] for each in self.logged(LogLevel.info)],
            [
                "master of broker-a in east at 192.0.2.1:10911 has registered",
                "master of broker-b in east at 192.0.2.2:1 has registered",
                "master of broker-a in east at 192.0.2.1:10911 is dropped",
                "master of broker-b in east at 192.0.2.2:1 is dropped",
            ],
        )

    def test_becomesMaster(self) -> None:
        """
        It is logged when a broker becomes something else.
        """
        self.register(brokerId=1)
        self.register(brokerId=0)
        self.assertEqual(
            self.logged(LogLevel.info),
            [
                "slave 1 of broker-a in east at 192.0.2.1:10911 has registered",
                "master of broker-a in east at 192.0.2.1:10911 has registered",
            ],
        )


class UnregisterTests(NameServerTests):
    """
    UNREGISTER_BROKER.
    """

    def test_unregisterIsRepeatable(self) -> None:
        """
        A broker is gone, and to say so again is no error.
        """
        self.register("T")
        header = UnRegisterBrokerRequestHeader("broker-a", ADDRESS, "east", 0)
        for _ in range(2):
            answer = self.ask(RequestCode.UNREGISTER_BROKER, header)
            self.assertEqual((answer.code, answer.extFields, answer.body), (0, {}, b""))
            self.assertEqual(self.routes.brokerLiveTable, {})
        self.assertEqual(
            self.logged(LogLevel.info)[1:],
            [
                (
                    "master of broker-a in east at 192.0.2.1:10911 has unregistered,"
                    " by a request of 192.0.2.7:10911"
                )
            ],
        )


class QueryDataVersionTests(NameServerTests):
    """
    QUERY_DATA_VERSION.
    """

    def query(self, version: DataVersion) -> tuple[bool, bytes]:
        """
        What a broker is answered: whether it has to register, and the body.
        """
        header = QueryDataVersionRequestHeader("broker-a", ADDRESS, "east", 0)
        answer = self.ask(RequestCode.QUERY_DATA_VERSION, header, encodeBody(version))
        self.assertEqual(answer.code, 0)
        return answer.decodeHeader(QueryDataVersionResponseHeader).changed, answer.body

    def test_knownVersionIsReturned(self) -> None:
        """
        The version that is known is in the body; a broker that is not known gets
        none.  A broker that is up to date counts as alive.
        """
        self.assertEqual(self.query(DataVersion()), (True, b""))
        self.register()
        known = b'{"counter":1,"timestamp":0}'
        self.assertEqual(self.query(DataVersion(0, 2)), (True, known))
        self.clock.advance(2)
        self.assertEqual(self.query(DataVersion(0, 1)), (False, known))
        self.assertEqual(self.routes.brokerLiveTable[ADDRESS].lastUpdateTimestamp, 2000)

    def test_noBody(self) -> None:
        """
        A version is called for.
        """
        header = QueryDataVersionRequestHeader("broker-a", ADDRESS, "east", 0)
        answer = self.ask(RequestCode.QUERY_DATA_VERSION, header)
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
