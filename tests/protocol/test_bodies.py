# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.bodies}.

C{WRITTEN_BY_JAVA} was printed by the classes of rocketmq-common and
rocketmq-store 4.9.7 with their fastjson 1.2.69_noneautotype: an instance with
these members set, C{JSON.toJSONString(it).getBytes("UTF-8")}, in the time zone
UTC.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect
from twisted.trial.unittest import SynchronousTestCase

from tests.captures import Capture, captures
from txrocket import model
from txrocket.errors import MalformedBody
from txrocket.model import (
    BrokerData,
    ConsumeFromWhere,
    ConsumeType,
    DataVersion,
    MessageModel,
    MessageQueue,
    PlainAccessConfig,
    QueueData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
)
from txrocket.protocol import bodies, fastjson
from txrocket.protocol.bodies import (
    BODIES,
    BrokerStatsData,
    BrokerStatsItem,
    CheckClientRequestBody,
    ClusterInfo,
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerData,
    ConsumerRunningInfo,
    GetBrokerClusterAclConfigResponseBody,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    OffsetWrapper,
    ProducerData,
    QueryConsumeTimeSpanBody,
    ResetOffsetBody,
    TopicConfigSerializeWrapper,
    TopicList,
)
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.configtext import ConfigText

ROUTE = 105
DOCUMENT = Path(__file__).parents[2] / "docs" / "wire" / "bodies.rst"

TYPES: dict[str, type[msgspec.Struct]] = {
    name: each
    for module in (model, bodies)
    for name in module.__all__
    if isinstance(each := getattr(module, name), type) and issubclass(each, msgspec.Struct)
}

WRITTEN_BY_JAVA = [
    (
        "TopicConfigSerializeWrapper",
        (
            '{"dataVersion":{"counter":9223372036854775807,"timestamp":1794799117383},'
            '"topicConfigTable":{"TBW102":{"order":false,"perm":7,"readQueueNums":8,'
            '"topicFilterType":"SINGLE_TAG","topicName":"TBW102","topicSysFlag":0,'
            '"writeQueueNums":8}}}'
        ),
    ),
    (
        "SubscriptionGroupWrapper",
        (
            '{"dataVersion":{"counter":0,"timestamp":0},"subscriptionGroupTable":{"CID_A":'
            '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
            '"consumeFromMinEnable":true,"groupName":"CID_A",'
            '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
            '"whichBrokerWhenConsumeSlowly":1}}}'
        ),
    ),
    (
        "ConsumerOffsetSerializeWrapper",
        '{"offsetTable":{"TopicA@CID_A":{0:5,1:-1,15:9223372036854775807}}}',
    ),
    ("DelayOffsetSerializeWrapper", '{"offsetTable":{3:7,18:0}}'),
    (
        "ConsumeStatsList",
        (
            '{"brokerAddr":"127.0.0.1:10911","consumeStatsList":[{"CID_A":[{"consumeTps":0.05,'
            '"offsetTable":{{"brokerName":"broker-a","queueId":2,"topic":"TopicA"}:'
            '{"brokerOffset":5,"consumerOffset":2,"lastTimestamp":0}}}]}],"totalDiff":3}'
        ),
    ),
    (
        "QueryConsumeTimeSpanBody",
        (
            '{"consumeTimeSpanSet":[{"consumeTimeStamp":1794799117385,'
            '"consumeTimeStampStr":"2026-11-16#03:18:37:385","delayTime":1,'
            '"maxTimeStamp":1794799117384,"maxTimeStampStr":"2026-11-16#03:18:37:384",'
            '"messageQueue":{"brokerName":"broker-a","queueId":2,"topic":"TopicA"},'
            '"minTimeStamp":1794799117383,"minTimeStampStr":"2026-11-16#03:18:37:383"}]}'
        ),
    ),
    ("QueryCorrectionOffsetBody", '{"correctionOffsets":{0:9}}'),
    (
        "GetConsumerStatusBody",
        (
            '{"consumerTable":{"10.0.0.1@1":{{"brokerName":"broker-a","queueId":1,'
            '"topic":"TopicA"}:2}},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,'
            '"topic":"TopicA"}:1}}'
        ),
    ),
    (
        "ResetOffsetBodyForC",
        '{"offsetTable":[{"brokerName":"broker-a","offset":2,"queueId":1,"topic":"TopicA"}]}',
    ),
    (
        "ConsumeByWho",
        '{"consumedGroup":["CID_A"],"notConsumedGroup":[],"offset":4,"queueId":0,"topic":"TopicA"}',
    ),
    (
        "OffsetMovedEvent",
        (
            '{"consumerGroup":"CID_A","messageQueue":{"brokerName":"broker-a","queueId":2,'
            '"topic":"TopicA"},"offsetNew":3,"offsetRequest":9}'
        ),
    ),
    (
        "ClusterAclVersionInfo",
        (
            '{"allAclConfigDataVersion":{"/conf/plain_acl.yml":{"counter":0,"timestamp":1}},'
            '"brokerName":"broker-a"}'
        ),
    ),
    ("AclConfig", '{"globalWhiteAddrs":[]}'),
    (
        "RollbackStats",
        (
            '{"brokerName":"broker-a","brokerOffset":0,"consumerOffset":0,"queueId":0,'
            '"rollbackOffset":-1,"timestampOffset":0}'
        ),
    ),
    (
        "ConsumerRunningInfo",
        (
            '{"jstack":"main\\n\\tat x","mqTable":{},"properties":{},"statusTable":{},'
            '"subscriptionSet":[]}'
        ),
    ),
    (
        "QueryConsumeQueueResponseBody",
        (
            '{"maxQueueIndex":0,"minQueueIndex":0,"queueData":[{"bitMap":"[1]","eval":false,'
            '"extendDataJson":"{\\"a\\":1}","msg":"m","physicOffset":0,"physicSize":0,'
            '"tagsCode":0}]}'
        ),
    ),
    (
        "ConsumeMessageDirectlyResult",
        (
            '{"autoCommit":true,"consumeResult":"CR_THROW_EXCEPTION","order":false,'
            '"remark":"boom","spentTimeMills":0}'
        ),
    ),
    (
        "ConsumerConnection",
        (
            '{"connectionSet":[],"consumeType":"CONSUME_ACTIVELY","messageModel":"BROADCASTING",'
            '"subscriptionTable":{"TopicA":{"classFilterMode":false,"codeSet":[65,66],'
            '"expressionType":"TAG","subString":"A || B","subVersion":7,"tagsSet":["A","B"],'
            '"topic":"TopicA"}}}'
        ),
    ),
]


def bodyType(capture: Capture) -> Any:
    """
    The type of a captured frame's body; None if BODIES does not have it.
    """
    request, response = BODIES.get(capture.requestCode, (None, None))
    return response if capture.kind == "response" else request


CAPTURED = [each for each in captures() if each.body and bodyType(each) is not None]


def by4_9_7(capture: Capture) -> bool:
    """
    Whether Java wrote the frame, in version 4.9.7.
    """
    # In a binary header Java is number 0; 407 is V4_9_7's ordinal.
    return capture.header["language"] in ("JAVA", 0) and capture.header["version"] == 407


def queueKey(members: dict[Any, Any]) -> MessageQueue:
    """
    Represents an object key, with its members in their order.
    """
    return MessageQueue(**members)


def withSortedSets(kind: inspect.Type, value: Any) -> Any:
    """
    Sort the sets of a parsed body, and nothing else, as our writer does.
    """
    if isinstance(kind, inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    if isinstance(kind, inspect.StructType):
        fields = {each.encode_name: each.type for each in kind.fields}
        return {name: withSortedSets(fields[name], member) for name, member in value.items()}
    if isinstance(kind, inspect.DictType):
        return {key: withSortedSets(kind.value_type, item) for key, item in value.items()}
    if isinstance(kind, inspect.VarTupleType):
        return [withSortedSets(kind.item_type, item) for item in value]
    if isinstance(kind, inspect.FrozenSetType):
        items = [withSortedSets(kind.item_type, item) for item in value]
        return sorted(items, key=lambda item: fastjson.write(item).decode())
    return value


def strategy(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """
    All values of a type.
    """
    match kind:
        case inspect.StructType():
            members = {each.name: strategy(each.type) for each in kind.fields}
            return st.builds(kind.cls, **members)
        case inspect.DictType():
            # A map with this key is a reference, in fastjson too.
            keys = strategy(kind.key_type).filter(lambda key: key != "$ref")
            return st.dictionaries(keys, strategy(kind.value_type), max_size=2)
        case inspect.VarTupleType():
            return st.lists(strategy(kind.item_type), max_size=2).map(tuple)
        case inspect.FrozenSetType():
            return st.frozensets(strategy(kind.item_type), max_size=2)
        case inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case inspect.UnionType():
            return st.one_of([strategy(each) for each in kind.types])
        case inspect.IntType():
            return st.integers(kind.ge, kind.le)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.StrType():
            return st.text(max_size=8)
    return st.none()


ANY_BODY = st.sampled_from(sorted(TYPES.values(), key=lambda each: each.__name__)).flatmap(
    lambda each: strategy(inspect.type_info(each))
)


class CapturedTests(SynchronousTestCase):
    """
    Captured bodies.
    """

    def test_capturesCoverManyBodies(self) -> None:
        """
        The captured frames have bodies of many types, from Java and C++ clients.
        """
        self.assertGreater(len({bodyType(each) for each in CAPTURED}), 18)
        self.assertIn("CPP", {each.header["language"] for each in CAPTURED})

    def test_capturedBodiesAreDecoded(self) -> None:
        """
        Every captured body can be decoded as its type.
        """
        for each in CAPTURED:
            kind = bodyType(each)
            self.assertIsInstance(decodeBody(kind, each.body), kind)

    def test_javaTextRoundTripsWithoutTypes(self) -> None:
        """
        Java's text, parsed and written without types, gives the same bytes.
        """
        count = 0
        for each in CAPTURED:
            if by4_9_7(each) and bodyType(each) is not ConfigText:
                value = fastjson.parse(each.body, queueKey)
                self.assertEqual(fastjson.write(value), each.body)
                count += 1
        self.assertGreater(count, 60)

    def test_javaBodiesRoundTrip(self) -> None:
        """
        Java's bodies, decoded and encoded, give the same bytes apart from the order
        within sets.
        """
        count = 0
        for each in CAPTURED:
            kind = bodyType(each)
            if not by4_9_7(each):
                continue
            standard = each.requestCode == ROUTE
            encoded = encodeBody(decodeBody(kind, each.body), standard=standard)
            if kind is ConfigText:
                self.assertEqual(encoded, each.body)
                continue
            tree = withSortedSets(inspect.type_info(kind), fastjson.parse(each.body, queueKey))
            self.assertEqual(encoded, fastjson.write(tree))
            count += 1
        self.assertGreater(count, 60)

    @given(st.sampled_from(CAPTURED), st.data())
    def test_damagedBodyRaisesOnlyMalformedBody(
        self, capture: Capture, data: st.DataObject
    ) -> None:
        """
        A damaged body is decoded or raises MalformedBody, never another error.
        """
        body = capture.body[:4096]
        at = data.draw(st.integers(0, len(body)))
        end = data.draw(st.integers(at, min(at + 8, len(body))))
        patch = data.draw(
            st.binary(max_size=4)
            | st.sampled_from([b"{", b"}", b"[", b"]", b"null", b'""', b"1", b"-", b"9" * 30])
            | st.sampled_from([b'{"$ref":"$"}', b'{"$ref":"$.offsetTable"}', b"1e999", b"\\ud800"])
        )
        with contextlib.suppress(MalformedBody):
            decodeBody(bodyType(capture), body[:at] + patch + body[end:])


class AnnotatedTests(SynchronousTestCase):
    """
    Some captured bodies, member by member.
    """

    def body(self, code: int, kind: str, **header: Any) -> bytes:
        """
        The first captured body of a code.
        """
        return next(
            each.body
            for each in CAPTURED
            if each.requestCode == code
            and each.kind == kind
            and all(each.header[name] == value for name, value in header.items())
        )

    def test_cppHeartbeatIsDecoded(self) -> None:
        """
        The C++ client sends enum ordinals, a version in quotes, no tags, codes or
        producers, and a newline.
        """
        heartbeat = decodeBody(HeartbeatData, self.body(34, "request", language="CPP"))
        self.assertEqual(heartbeat.clientID, "28284-127.0.0.1@DEFAULT")
        self.assertEqual(heartbeat.producerDataSet, frozenset())
        (consumer,) = heartbeat.consumerDataSet
        self.assertEqual(
            consumer,
            ConsumerData(
                groupName="hc_cpp_batch_G_1e26b32ba",
                consumeType=ConsumeType.CONSUME_PASSIVELY,  # 1
                messageModel=MessageModel.CLUSTERING,  # 1
                consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,  # 0
                subscriptionDataSet=frozenset(
                    SubscriptionData(topic, "*", subVersion=1794800039150)  # "1794800039150"
                    for topic in (
                        "%RETRY%hc_cpp_batch_G_1e26b32ba",
                        "hc_cpp_batch_T_1e26b32ba",
                    )
                ),
            ),
        )

    def test_javaHeartbeatIsDecoded(self) -> None:
        """
        The Java client sends enums by name and all members.
        """
        heartbeat = decodeBody(HeartbeatData, self.body(34, "request", language=0))
        self.assertEqual(
            heartbeat.producerDataSet, frozenset({ProducerData("CLIENT_INNER_PRODUCER")})
        )
        (consumer,) = heartbeat.consumerDataSet
        self.assertIs(consumer.consumeFromWhere, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        self.assertFalse(consumer.unitMode)
        self.assertEqual(len(consumer.subscriptionDataSet), 2)

    def test_routeIsDecoded(self) -> None:
        """
        A route has the master's address under the quoted id 0, and its queues.
        """
        route = decodeBody(TopicRouteData, self.body(ROUTE, "response", language=0))
        self.assertEqual(
            route,
            TopicRouteData(
                queueDatas=(QueueData("harness-a", 8, 8, perm=7, topicSysFlag=0),),
                brokerDatas=(BrokerData("HarnessCluster", "harness-a", {0: "127.0.0.1:21911"}),),
            ),
        )

    def test_clusterInfoIsDecoded(self) -> None:
        """
        The cluster has the master's address under the unquoted id 0.
        """
        body = self.body(106, "response")
        self.assertIn(b'{0:"127.0.0.1:21911"}', body)
        broker = BrokerData("HarnessCluster", "harness-a", {0: "127.0.0.1:21911"})
        self.assertEqual(
            decodeBody(ClusterInfo, body),
            ClusterInfo({"harness-a": broker}, {"HarnessCluster": frozenset({"harness-a"})}),
        )

    def test_queuesAsKeysAreDecoded(self) -> None:
        """
        A group's progress has queues as keys.
        """
        stats = decodeBody(bodies.ConsumeStats, self.body(208, "response"))
        self.assertEqual(stats.consumeTps, 0.0)
        self.assertEqual(
            stats.offsetTable[MessageQueue("hcadm_T_e25d148e", "harness-a", 3)],
            OffsetWrapper(brokerOffset=6, consumerOffset=6, lastTimestamp=1794799118766),
        )

    def test_runningInfoIsDecoded(self) -> None:
        """
        The running info of a consumer has queues and topics in order, and settings as
        text.
        """
        info = decodeBody(ConsumerRunningInfo, self.body(307, "response"))
        self.assertEqual(list(info.mqTable), sorted(info.mqTable))
        self.assertEqual(info.properties["PROP_CLIENT_VERSION"], "V4_9_7")
        self.assertEqual(info.statusTable["hcadm_T_e25d148e"].consumeOKTPS, 2.4)
        self.assertEqual(
            [each.topic for each in info.subscriptionSet],
            ["%RETRY%hcadm_G_e25d148e", "hcadm_T_e25d148e"],
        )

    def test_unconfiguredListIsNone(self) -> None:
        """
        In ACL accounts, a list that is not configured is None, not empty.
        """
        accounts = decodeBody(GetBrokerClusterAclConfigResponseBody, self.body(54, "response"))
        assert accounts.plainAccessConfigs is not None
        self.assertEqual(
            accounts.plainAccessConfigs[0],
            PlainAccessConfig(
                accessKey="RocketMQ",
                secretKey="12345678",
                defaultGroupPerm="SUB",
                defaultTopicPerm="DENY",
                topicPerms=("topicA=DENY",),
                groupPerms=None,
            ),
        )

    def test_settingsAreLines(self) -> None:
        """
        Settings are lines of text.
        """
        body = self.body(25, "request")
        self.assertEqual(body, b"fileReservedTime=73\n")
        self.assertEqual(decodeBody(ConfigText, body), {"fileReservedTime": "73"})


class CodecTests(SynchronousTestCase):
    """
    Tests for L{encodeBody} and L{decodeBody}.
    """

    def test_javaClassesRoundTrip(self) -> None:
        """
        Bodies without a capture are decoded and encoded as by Java's classes.
        """
        for name, text in WRITTEN_BY_JAVA:
            body = decodeBody(TYPES[name], text.encode())
            self.assertEqual(encodeBody(body).decode(), text)

    def test_nullDoubleIsZero(self) -> None:
        """
        Java writes NaN as null, which is read as 0.0.
        """
        text = b'{"statsDay":{"avgpt":null,"sum":-9223372036854775808,"tps":1.23456789E7}}'
        self.assertEqual(
            decodeBody(BrokerStatsData, text),
            BrokerStatsData(statsDay=BrokerStatsItem(-(2**63), 12345678.9, 0.0)),
        )
        nan = BrokerStatsData(statsDay=BrokerStatsItem(-(2**63), 12345678.9, float("nan")))
        self.assertEqual(encodeBody(nan), text)

    @given(ANY_BODY)
    def test_encodedBodyIsDecoded(self, body: msgspec.Struct) -> None:
        """
        Every value of every type is decoded as it was encoded.
        """
        self.assertEqual(decodeBody(type(body), encodeBody(body)), body)

    @given(strategy(inspect.type_info(TopicRouteData)))
    def test_standardRouteRoundTrips(self, route: TopicRouteData) -> None:
        """
        The standard form of a route is JSON in ASCII, and decodes to the same route.
        """
        encoded = encodeBody(route, standard=True)
        self.assertTrue(encoded.isascii())
        msgspec.json.decode(encoded)
        self.assertEqual(decodeBody(TopicRouteData, encoded), route)

    @given(st.sampled_from(sorted(TYPES)), st.binary())
    def test_anyBytesRaiseOnlyMalformedBody(self, name: str, data: bytes) -> None:
        """
        Any bytes are decoded or raise MalformedBody.
        """
        with contextlib.suppress(MalformedBody):
            decodeBody(TYPES[name], data)

    @given(st.sampled_from(sorted(TYPES)), ANY_BODY)
    def test_bodyOfOtherTypeRaisesOnlyMalformedBody(self, name: str, body: msgspec.Struct) -> None:
        """
        A body of one type, decoded as another, is decoded or raises MalformedBody.
        """
        with contextlib.suppress(MalformedBody):
            decodeBody(TYPES[name], encodeBody(body))

    def test_deepNestingIsMalformed(self) -> None:
        """
        Deep nesting in an unknown member is MalformedBody, not a RecursionError.
        """
        # The limit depends on the interpreter, but this is too deep for all.
        levels = 100_000
        data = b'{"x":' + b"[" * levels + b"]" * levels + b"}"
        error = self.assertRaises(MalformedBody, decodeBody, KVTable, data)
        self.assertIn("KVTable: nested deeper", str(error))

    def test_errorNamesBodyAndMember(self) -> None:
        """
        The error names the body, the member and what was expected.
        """
        for kind, text, words in [
            (
                LockBatchRequestBody,
                '{"mqSet":[{"topic":"t","brokerName":"b","queueId":"x"}]}',
                ("LockBatchRequestBody", "$.mqSet", "queueId", "int"),
            ),
            (KVTable, '{"table":[]}', ("KVTable", "$.table", "object")),
            (HeartbeatData, "{}", ("HeartbeatData", "clientID", "missing")),
            (HeartbeatData, "[]", ("HeartbeatData", "object")),
            (HeartbeatData, "", ("HeartbeatData", "a value was expected at character 0")),
            (
                ResetOffsetBody,
                '{"offsetTable":{{"topic":1,"queueId":[]}:1}}',
                ("ResetOffsetBody", "Expected"),
            ),
            (ResetOffsetBody, '{"offsetTable":{"x":1}}', ("ResetOffsetBody", "$.offsetTable")),
        ]:
            error = str(self.assertRaises(MalformedBody, decodeBody, kind, text.encode()))
            for word in words:
                self.assertIn(word, error)

    def test_numbersHaveJavasRange(self) -> None:
        """
        A number has the range of Java's member.
        """
        for number in (2**31, -(2**31) - 1):
            text = f'{{"groupName":"g","retryMaxTimes":{number}}}'.encode()
            self.assertRaises(MalformedBody, decodeBody, SubscriptionGroupConfig, text)
        text = f'{{"timestamp":{2**63}}}'.encode()
        self.assertRaises(MalformedBody, decodeBody, DataVersion, text)
        text = b'{"timestamp":' + b"9" * 10_000 + b"}"
        self.assertRaises(MalformedBody, decodeBody, DataVersion, text)

    def test_fastjsonDeviationsAreAccepted(self) -> None:
        """
        Numbers and booleans in strings, null and empty members, numbers in place of text
        and unknown members are accepted as by fastjson.
        """
        self.assertEqual(
            decodeBody(
                TopicConfig,
                b'{"topicName":"t","readQueueNums":"8","writeQueueNums":null,"perm":"",'
                b'"order":"true","topicFilterType":null,"topicSysFlag":2.0,"unknown":{"a":[]}}',
            ),
            TopicConfig("t", 8, 16, 6, topicSysFlag=2, order=True),
        )
        self.assertEqual(
            decodeBody(ConsumerRunningInfo, b'{"properties":{"a":1,"b":true,"c":null}}').properties,
            {"a": "1", "b": "true"},
        )
        self.assertEqual(decodeBody(TopicList, b'{"topicList":null}'), TopicList())
        self.assertEqual(
            decodeBody(TopicConfigSerializeWrapper, b'{"dataVersion":null}'),
            TopicConfigSerializeWrapper(),
        )

    def test_quotedNullIsText(self) -> None:
        """
        The word null in quotes is text, where text is expected.
        """
        body = decodeBody(bodies.QueryConsumeQueueResponseBody, b'{"filterData":"null"}')
        self.assertEqual(body.filterData, "null")

    def test_enumByNameCaseOrOrdinal(self) -> None:
        """
        An enum is accepted by name in any case and by ordinal. As in fastjson, an unknown
        name is None and an unknown ordinal is an error.
        """
        for value, expected in [
            ('"CLUSTERING"', MessageModel.CLUSTERING),
            ('"Clustering"', MessageModel.CLUSTERING),  # the Go client
            ("1", MessageModel.CLUSTERING),
            ("0", MessageModel.BROADCASTING),
            ('"LITE_SELECTIVE"', None),
            ('""', None),
            ("null", None),
        ]:
            text = f'{{"groupName":"g","messageModel":{value}}}'.encode()
            self.assertEqual(decodeBody(ConsumerData, text).messageModel, expected)
        for value in ("7", "-1", "true", "[]", "{}"):
            text = f'{{"groupName":"g","messageModel":{value}}}'.encode()
            self.assertRaises(MalformedBody, decodeBody, ConsumerData, text)

    def test_goClientsStringsAreDecoded(self) -> None:
        """
        The Go client sends the codes of tags as strings, and a result by its ordinal.
        """
        subscription = decodeBody(
            SubscriptionData,
            b'{"classFilterMode":false,"topic":"t","subString":"A","tagsSet":["A"],'
            b'"codeSet":["65"],"subVersion":1,"expressionType":"TAG"}',
        )
        self.assertEqual(subscription.codeSet, frozenset({65}))
        result = decodeBody(ConsumeMessageDirectlyResult, b'{"consumeResult":4,"remark":""}')
        self.assertIs(result.consumeResult, CMResult.CR_THROW_EXCEPTION)

    def test_referenceIsReplacedByValue(self) -> None:
        """
        A value that Java writes as a reference is decoded as the value.
        """
        queue = '{"brokerName":"b","queueId":1,"topic":"t"}'
        text = (
            f'{{"consumeTimeSpanSet":[{{"messageQueue":{queue}}},'
            '{"messageQueue":{"$ref":"$.consumeTimeSpanSet[0].messageQueue"}}]}'
        )
        spans = decodeBody(QueryConsumeTimeSpanBody, text.encode()).consumeTimeSpanSet
        self.assertEqual([each.messageQueue for each in spans], [MessageQueue("t", "b", 1)] * 2)

    def test_missingStructIsNone(self) -> None:
        """
        A member that is a value of its own may be missing.
        """
        self.assertEqual(
            decodeBody(CheckClientRequestBody, b'{"clientId":"c","group":"g"}'),
            CheckClientRequestBody("c", "g", None),
        )
        self.assertEqual(
            encodeBody(ConsumerConnection()), b'{"connectionSet":[],"subscriptionTable":{}}'
        )


class DocumentTests(SynchronousTestCase):
    """
    The page about bodies.
    """

    def test_pageHasEveryBody(self) -> None:
        """
        docs/wire/bodies.rst has every body with every member, and every request code that
        carries one.
        """
        text = DOCUMENT.read_text(encoding="utf-8")
        for name, kind in TYPES.items():
            start = text.index(f"\n{name}\n{'~' * len(name)}\n")
            section = text[start:].split("\n\n.. _", 1)[0]
            for member in kind.__struct_fields__:
                self.assertIn(f"``{member}``", section)
        for code in BODIES:
            self.assertIn(f"     - {code}\n", text)
