# SPDX-License-Identifier: Apache-2.0
"""
The captured requests to RocketMQ 4.9.7's name server, byte for byte, to ours, in
the state that its answer speaks of: our answer is the same.

Only remarks are words of our own, and there are no times, ids or addresses of ours
in what a name server answers: everything else is equal.
"""

from __future__ import annotations

from tests.captures import Capture, captures
from tests.processors.namesrvcase import NameServerTests
from tests.processors.replay import fieldsOf, fieldsOfOurs, requests, responseTo
from txrocket.model import BrokerData, DataVersion, QueueData, TopicConfig, TopicRouteData
from txrocket.nameserver.brokerinfo import BrokerEntry, Registration
from txrocket.protocol.bodies import ClusterInfo, KVTable, TopicList
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, decodeCommand
from txrocket.protocol.headers import PutKVConfigRequestHeader

BROKER = BrokerEntry("HarnessCluster", "harness-a", 0, "127.0.0.1:21911")

# Asked of the name server, with an answer that was captured as well.  There are
# none of QUERY_DATA_VERSION, GET_KVLIST_BY_NAMESPACE, GET_TOPICS_BY_CLUSTER, the
# system's and the units' topics, and of GET_NAMESRV_CONFIG only requests.
CODES = {
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
}


def decode(capture: Capture) -> RemotingCommand:
    """
    The command of a captured frame.
    """
    return decodeCommand(capture.frame, 4, len(capture.frame))


def asked() -> list[Capture]:
    """
    All captured requests to the name server.
    """
    return [each for each in captures() if each.receiver == "ns" and each.kind == "request"]


def answered() -> list[tuple[Capture, Capture]]:
    """
    Those whose answer was captured as well, and that.
    """
    pairs = [(each, responseTo(each)) for each in asked()]
    return [(each, response) for each, response in pairs if response is not None]


class CapturedTests(NameServerTests):
    """
    Our answers to what RocketMQ's programs asked.
    """

    def known(self, *topics: TopicConfig, broker: BrokerEntry = BROKER) -> None:
        """
        A broker is registered, on another connection.
        """
        told = Registration("192.0.2.2:21912", DataVersion(), topics, ())
        self.routes.register(broker, told, self.connect()[0], 0)

    def put(self, namespace: str, key: str, value: str) -> None:
        """
        A value is set.
        """
        header = PutKVConfigRequestHeader(namespace, key, value)
        self.assertEqual(self.ask(RequestCode.PUT_KV_CONFIG, header).code, 0)

    def prepare(self, request: RemotingCommand, expected: RemotingCommand) -> None:
        """
        Bring the server into the state that the captured answer tells of.
        """
        fields, body = request.extFields, expected.body
        match request.code:
            case RequestCode.GET_KV_CONFIG if expected.code == 0:
                self.put(fields["namespace"], fields["key"], expected.extFields["value"])
            case RequestCode.DELETE_KV_CONFIG:
                self.put(fields["namespace"], fields["key"], "any")
            case RequestCode.REGISTER_BROKER:
                for key, value in decodeBody(KVTable, body).table.items():
                    self.put("ORDER_TOPIC_CONFIG", key, value)
            case RequestCode.GET_ROUTEINFO_BY_TOPIC if expected.code == 0:
                route = decodeBody(TopicRouteData, body)
                (queues,), (data,) = route.queueDatas, route.brokerDatas
                self.known(topicOf(fields["topic"], queues), broker=brokerOf(data))
            case RequestCode.GET_BROKER_CLUSTER_INFO:
                for data in decodeBody(ClusterInfo, body).brokerAddrTable.values():
                    self.known(broker=brokerOf(data))
            case RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
                names = decodeBody(TopicList, body).topicList
                self.known(*[TopicConfig(each) for each in names])
            case RequestCode.WIPE_WRITE_PERM_OF_BROKER | RequestCode.ADD_WRITE_PERM_OF_BROKER:
                (count,) = expected.extFields.values()
                self.known(*[TopicConfig(f"T{number}") for number in range(int(count))])
            case RequestCode.UNREGISTER_BROKER | RequestCode.DELETE_TOPIC_IN_NAMESRV:
                self.known(TopicConfig(fields.get("topic", "T")))

    def replay(self, capture: Capture) -> RemotingCommand:
        """
        What our server answers to captured bytes.
        """
        self.peer.dataReceived(capture.frame)
        # Long lists are written bit by bit.
        self.clock.pump([0] * 10)
        (answer,) = self.wire.drain()
        return answer

    def test_same(self) -> None:
        """
        Code, fields, body, number and form of each answer are those that Java gave.
        """
        self.assertEqual({each.requestCode for each, _ in answered()}, CODES)
        for request, response in answered():
            self.start()
            self.prepare(decode(request), decode(response))
            self.assertEqual(fieldsOfOurs(self.replay(request)), fieldsOf(response))

    def test_byteForByte(self) -> None:
        """
        Where Java's answer is in no order of a hash table, the body is the same to
        the byte.
        """
        compared = 0
        for request, response in answered():
            if response.body and request.requestCode != 206:
                self.start()
                self.prepare(decode(request), decode(response))
                self.assertEqual(self.replay(request).body, response.body)
                compared += 1
        self.assertEqual(compared, 8)

    def test_refusals(self) -> None:
        """
        Topics and keys that are not there get the code that Java gave, and a remark
        where Java has one, without fields and body.
        """
        refused = [
            each
            for each in captures()
            if each.sender == "ns" and each.kind == "response" and each.header["code"] != 0
        ]
        self.assertEqual({each.header["code"] for each in refused}, {17, 22})
        for response in refused:
            # These answers were captured without their requests: any other of the
            # kind will do, for nothing is known here.
            request = decode(
                next(
                    each
                    for each in requests(response.requestCode, "ns")
                    if each.form == response.form
                )
            )
            request.opaque = response.header["opaque"]
            self.peer.dataReceived(request.encode())
            (answer,) = self.wire.drain()
            self.assertEqual(fieldsOfOurs(answer), fieldsOf(response))

    def test_all(self) -> None:
        """
        Every request that was captured is served, also those whose answer was not.
        """
        codes = {each.requestCode for each in asked()}
        self.assertEqual(codes, CODES | {RequestCode.GET_NAMESRV_CONFIG})
        for each in requests(RequestCode.GET_NAMESRV_CONFIG, "ns"):
            self.assertEqual(self.replay(each).code, 0)


def topicOf(name: str, queues: QueueData) -> TopicConfig:
    """
    The topic that a route tells of.
    """
    return TopicConfig(
        name,
        queues.readQueueNums,
        queues.writeQueueNums,
        queues.perm,
        topicSysFlag=queues.topicSysFlag,
    )


def brokerOf(data: BrokerData) -> BrokerEntry:
    """
    The broker that a route tells of.
    """
    ((brokerId, address),) = data.brokerAddrs.items()
    return BrokerEntry(data.cluster, data.brokerName, brokerId, address)
