# SPDX-License-Identifier: Apache-2.0
"""
The captured frames through L{txrocket.protocol.command} and L{txrocket.protocol.headers}:
frames of RocketMQ's own programs are decoded, and Java's are encoded to the same bytes.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import fields as structFields
from twisted.trial.unittest import SynchronousTestCase

from tests.captures import Capture, captures
from txrocket.protocol.codes import LanguageCode, RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, decodeCommand, requestCommand
from txrocket.protocol.connection import RemotingConnection
from txrocket.protocol.headers import (
    HEADERS,
    GetRouteInfoRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocket.protocol.headers.fields import Header

# Responses that the capturing program filed under a wrong request, all on one
# connection, by that request's code and the pair; with the header of their real request.
MISFILED = {
    # No fields and no body, like the response to UPDATE_CONSUMER_OFFSET.
    (11, "21911-48880-584"): None,
    # The body is GET_CONSUMER_LIST_BY_GROUP's.
    (14, "21911-48880-519"): None,
    # Fields, remark and records of a pull.
    (34, "21911-48880-530"): PullMessageResponseHeader,
}

# A request of clients from RocketMQ 5 on, which a 4.9.7 broker does not support.
UNKNOWN_CODE = 361

# Java 4.9.7 and 5.3.2.  The Node client also calls itself Java, of version 121.
JAVA_VERSIONS = (407, 477)

# The codes whose response to a pull has fields.
PULLED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def decode(capture: Capture) -> RemotingCommand:
    """
    Decode a captured frame.
    """
    return decodeCommand(capture.frame, 4, len(capture.frame))


def text(value: object) -> str:
    """
    A field's value as Java reads it: bare numbers and booleans are text.
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def extFields(capture: Capture) -> dict[str, str]:
    """
    The fields as the capturing program decoded them.
    """
    return {name: text(value) for name, value in (capture.header.get("extFields") or {}).items()}


def typed(capture: Capture) -> type[Header] | None:
    """
    The header class of a capture; None if it has none.
    """
    if capture.kind != "response":
        return HEADERS[capture.requestCode].request
    if (key := (capture.requestCode, capture.pair)) in MISFILED:
        return MISFILED[key]
    carrying = PULLED if capture.requestCode == RequestCode.PULL_MESSAGE else (0,)
    return HEADERS[capture.requestCode].response if capture.header["code"] in carrying else None


class CapturedTests(SynchronousTestCase):
    """
    All captured frames.
    """

    def test_fixtureHas549Frames(self) -> None:
        """
        There are 549 frames in both formats. A smaller fixture would weaken all tests
        below.
        """
        self.assertEqual(len(captures()), 549)
        self.assertEqual(sum(each.form == "binary" for each in captures()), 105)

    def test_membersMatchCapture(self) -> None:
        """
        Every member of every command is what the capturing program, which shares no code
        with this one, decoded.
        """
        for each in captures():
            command, header = decode(each), each.header
            language = header["language"]
            if each.form == "binary":
                language = LanguageCode(language).name
            self.assertEqual(
                (command.code, command.language, command.version, command.opaque, command.flag),
                (header["code"], language, header["version"], header["opaque"], header["flag"]),
            )
            self.assertEqual(command.remark, header.get("remark"))
            self.assertEqual(command.extFields, extFields(each))
            self.assertEqual(command.body, each.body)
            self.assertEqual(command.isResponse, each.kind == "response")
            self.assertEqual(command.isOneway, each.kind == "oneway")
            self.assertEqual(command.serializeType, each.form == "binary")

    def test_misfiledResponsesAnswerOtherRequests(self) -> None:
        """
        The three responses that are filed under the wrong request exist, and have the
        content of other responses.
        """
        found = {
            (each.requestCode, each.pair): decode(each)
            for each in captures()
            if each.kind == "response" and (each.requestCode, each.pair) in MISFILED
        }
        self.assertEqual(set(found), set(MISFILED))
        nothing, members, pulled = (found[key] for key in MISFILED)
        self.assertEqual((nothing.extFields, nothing.body), ({}, b""))
        self.assertEqual(members.extFields, {})
        self.assertIn("consumerIdList", json.loads(members.body))
        self.assertEqual(pulled.remark, "FOUND")
        self.assertEqual(
            set(pulled.extFields), set(PullMessageResponseHeader.__struct_encode_fields__)
        )

    def test_typedHeadersLoseNothing(self) -> None:
        """
        Every captured request, and every response with a code that has fields, decodes to
        its typed header without loss. A field that was not sent has the declared default,
        and undeclared fields stay in extFields.
        """
        kinds = set()
        for each in captures():
            if each.requestCode == UNKNOWN_CODE or (kind := typed(each)) is None:
                continue
            kinds.add(kind)
            command = decode(each)
            header = command.decodeHeader(kind)
            self.assertEqual(header, decodedTwice(command, kind))
            self.checkNoLoss(header, extFields(each))
            self.assertEqual(command.extFields, extFields(each))
        self.assertEqual(len(kinds), 54)

    def checkNoLoss(self, header: Header, sent: dict[str, str]) -> None:
        """
        Compare a typed header with the fields that it was decoded from.
        """
        again = header.toFields()
        for declared in structFields(type(header)):
            value = getattr(header, declared.name)
            if declared.encode_name not in sent:
                self.assertEqual(value, declared.default)
                continue
            was = sent[declared.encode_name]
            if isinstance(value, bool):
                self.assertEqual(value, was in ("true", "1"))
                self.assertEqual(again[declared.encode_name], text(value))
            else:
                self.assertEqual(again[declared.encode_name], was)

    def test_fieldsOfHooksAreUndeclared(self) -> None:
        """
        Fields that hooks and newer peers add to a header are in no declaration.
        """
        declared = {
            name
            for headers in HEADERS.values()
            for kind in headers
            if kind is not None
            for name in kind.__struct_encode_fields__
        }
        extra = {name for each in captures() for name in extFields(each)} - declared
        self.assertLessEqual(
            {"AccessKey", "Signature", "OnsChannel", "ReqT", "TRACE_ON", "MSG_REGION"}, extra
        )

    def test_commandsWithoutHeaderHaveNoFields(self) -> None:
        """
        Requests and responses that are declared without fields have only fields of hooks.
        """
        for each in captures():
            if each.requestCode == UNKNOWN_CODE or typed(each) is not None:
                continue
            if each.kind != "response" or each.header["code"] == ResponseCode.SUCCESS:
                hooks = {"AccessKey", "Signature", "OnsChannel", "ReqT"}
                self.assertLessEqual(set(extFields(each)), hooks)

    def test_javaFramesRoundTrip(self) -> None:
        """
        Frames of Java 4.9.7 and 5.3.2 are encoded to the same bytes, whether or not the
        map of fields was accessed.
        """
        count = 0
        for each in captures():
            if not fromJava(each):
                continue
            count += 1
            command = decode(each)
            self.assertEqual(command.encode(), each.frame)
            dict(command.extFields)
            self.assertEqual(command.encode(), each.frame)
        self.assertEqual(count, 505)

    def test_otherFramesKeepMembers(self) -> None:
        """
        Frames of C++, Go and Node, which have another order, are encoded with the same
        members and the same body.
        """
        count = 0
        for each in captures():
            if fromJava(each):
                continue
            count += 1
            for touched in (False, True):
                command = decode(each)
                if touched:
                    dict(command.extFields)
                frame = command.encode()
                size = int.from_bytes(frame[5:8], "big")
                header: dict[str, Any] = json.loads(frame[8 : 8 + size])
                self.assertEqual(header.pop("serializeTypeCurrentRPC"), "JSON")
                header["extFields"] = {
                    name: text(value) for name, value in header["extFields"].items()
                }
                self.assertEqual(header, {**each.header, "extFields": extFields(each)})
                self.assertEqual(frame[8 + size :], each.body)
        self.assertEqual(count, 44)

    def test_joinedFramesAreOneStream(self) -> None:
        """
        All frames in both formats, joined, are one stream of commands.
        """
        connection = RemotingConnection()
        commands = connection.feed(b"".join(each.frame for each in captures()))
        self.assertIsNone(connection.fault)
        self.assertEqual(connection.held, 0)
        self.assertEqual(commands, [decode(each) for each in captures()])


def decodedTwice(command: RemotingCommand, kind: type[Header]) -> Header:
    """
    Decode the typed header from the map of fields instead of the JSON text.
    """
    dict(command.extFields)
    return command.decodeHeader(kind)


def fromJava(capture: Capture) -> bool:
    """
    Whether Java's own remoting wrote a frame.
    """
    header = capture.header
    return header["language"] in ("JAVA", 0) and header["version"] in JAVA_VERSIONS


# --- some of them, field by field ------------------------------------------

SEND_V2 = (
    b"\x00\x00\x01\x9d"  # length of what follows: 413
    b"\x00"  # serialize type: JSON
    b"\x00\x01\x96"  # header length: 406
    b'{"code":310,'  # SEND_MESSAGE_V2
    b'"extFields":{'
    b'"a":"hc_j49v_ordered_P_mwipt4h7",'  # producerGroup
    b'"b":"hc_j49v_ordered_T_mwipt4h7",'  # topic
    b'"c":"TBW102",'  # defaultTopic
    b'"d":"4",'  # defaultTopicQueueNums
    b'"e":"0",'  # queueId
    b'"f":"0",'  # sysFlag
    b'"g":"1794800386832",'  # bornTimestamp
    b'"h":"0",'  # flag
    b'"i":"UNIQ_KEY\\u0001FD0000000000000000000000000000021C3130946E094E089B0B0000'
    b'\\u0002WAIT\\u0001true\\u0002TAGS\\u0001O0",'  # properties
    b'"j":"0",'  # reconsumeTimes
    b'"k":"false",'  # unitMode
    b'"m":"false",'  # batch; l, maxReconsumeTimes, is null and left out
    b'"n":"harness-a"},'  # bname
    b'"flag":0,'  # a request that wants an answer
    b'"language":"JAVA",'
    b'"opaque":88,'
    b'"serializeTypeCurrentRPC":"JSON",'
    b'"version":407}'  # V4_9_7
    b"0:0"  # the message's body
)

QUERY_OFFSET = (
    b"\x00\x00\x00\x8b"  # length of what follows: 139
    b"\x01"  # serialize type: binary
    b"\x00\x00\x87"  # header length: 135
    b"\x00\x0e"  # code: QUERY_CONSUMER_OFFSET
    b"\x00"  # language: JAVA
    b"\x01\x97"  # version: V4_9_7
    b"\x00\x00\x01\x2f"  # opaque: 303
    b"\x00\x00\x00\x00"  # flag: a request that wants an answer
    b"\x00\x00\x00\x00"  # remark: none
    b"\x00\x00\x00\x72"  # length of the fields: 114
    b"\x00\x07queueId"
    b"\x00\x00\x00\x011"
    b"\x00\x05bname"
    b"\x00\x00\x00\x09harness-a"
    b"\x00\x05topic"
    b"\x00\x00\x00\x19hc_j49b_oneway_T_mwipzv3d"
    b"\x00\x0dconsumerGroup"
    b"\x00\x00\x00\x19hc_j49b_oneway_G_mwipzv3d"
)

QUERY_OFFSET_ANSWER = (
    b"\x00\x00\x00\x26"  # length of what follows: 38
    b"\x01"  # serialize type: binary, as the request's
    b"\x00\x00\x22"  # header length: 34
    b"\x00\x00"  # code: SUCCESS
    b"\x00"  # language: JAVA
    b"\x01\x97"  # version: V4_9_7
    b"\x00\x00\x01\x2f"  # opaque: the request's
    b"\x00\x00\x00\x01"  # flag: a response
    b"\x00\x00\x00\x00"  # remark: none
    b"\x00\x00\x00\x0d"  # length of the fields: 13
    b"\x00\x06offset"
    b"\x00\x00\x00\x010"
)

NOT_LATEST = (
    b"\x00\x00\x00\x3f"  # length of what follows: 63
    b"\x01"  # serialize type: binary
    b"\x00\x00\x3b"  # header length: 59
    b"\x00\x19"  # code: SUBSCRIPTION_NOT_LATEST
    b"\x00"  # language: JAVA
    b"\x01\x97"  # version: V4_9_7
    b"\x00\x00\x01\xf1"  # opaque: 497
    b"\x00\x00\x00\x01"  # flag: a response
    b"\x00\x00\x00\x26"  # length of the remark: 38
    b"the consumer's subscription not latest"
    b"\x00\x00\x00\x00"  # length of the fields: none
)

NO_ROUTE = (
    b"\x00\x00\x01\x07"  # length of what follows: 263
    b"\x00"  # serialize type: JSON
    b"\x00\x01\x03"  # header length: 259
    b'{"code":17,'  # TOPIC_NOT_EXIST; there are no fields, and so no extFields
    b'"flag":1,'  # a response
    b'"language":"JAVA",'
    b'"opaque":58,'
    b'"remark":"No topic route info in name server for the topic: '
    b"%RETRY%hc_node_sendConsume_G_mwipjdv1\\n"
    b'See http://rocketmq.apache.org/docs/faq/ for further details.",'
    b'"serializeTypeCurrentRPC":"JSON",'
    b'"version":407}'
)

CPP_BATCH_HEADER = (
    b'{"code":10,'  # SEND_MESSAGE
    b'"extFields":{'
    b'"AccessKey":"",'  # signed with an empty account: ACL's fields, not the header's
    b'"OnsChannel":"ALIYUN",'
    b'"Signature":"x8hz0z4LlxxqTJFU9w79Kx0lC4w=",'
    b'"batch":"1",'  # true; Java's parser takes it for false
    b'"bornTimestamp":"1794800039180",'  # long numbers are text
    b'"defaultTopic":"TBW102",'
    b'"defaultTopicQueueNums":4,'  # short ones are bare
    b'"flag":0,'
    b'"producerGroup":"hc_cpp_batch_P_1e26b32ba",'
    b'"properties":"WAIT\\u0001true\\u0002",'
    b'"queueId":0,'
    b'"reconsumeTimes":"0",'
    b'"sysFlag":0,'
    b'"topic":"hc_cpp_batch_T_1e26b32ba",'
    b'"unitMode":"0"},'  # false
    b'"flag":0,'
    b'"language":"CPP",'
    b'"opaque":14,'
    b'"remark":"",'
    b'"version":63}'
    b"\n"  # jsoncpp ends its text with a newline
)


class AnnotatedTests(SynchronousTestCase):
    """
    Single frames, byte by byte.
    """

    def one(self, frame: bytes) -> RemotingCommand:
        """
        Decode a frame, which must be one of the captured frames.
        """
        self.assertIn(frame, [each.frame for each in captures()])
        (command,) = RemotingConnection().feed(frame)
        self.assertEqual(command.encode(), frame)
        return command

    def test_jsonRequestIsDecoded(self) -> None:
        """
        In a JSON request, fields are text under names of one letter.
        """
        command = self.one(SEND_V2)
        self.assertEqual(command.code, RequestCode.SEND_MESSAGE_V2)
        self.assertEqual((command.language, command.version), ("JAVA", 407))
        self.assertEqual((command.opaque, command.flag, command.remark), (88, 0, None))
        self.assertEqual(command.body, b"0:0")
        self.assertEqual(
            command.decodeHeader(SendMessageRequestHeaderV2),
            SendMessageRequestHeaderV2(
                producerGroup="hc_j49v_ordered_P_mwipt4h7",
                topic="hc_j49v_ordered_T_mwipt4h7",
                defaultTopic="TBW102",
                defaultTopicQueueNums=4,
                queueId=0,
                sysFlag=0,
                bornTimestamp=1794800386832,
                flag=0,
                properties="UNIQ_KEY\x01FD0000000000000000000000000000021C3130946E094E089B0B0000"
                "\x02WAIT\x01true\x02TAGS\x01O0",
                reconsumeTimes=0,
                unitMode=False,
                maxReconsumeTimes=None,
                batch=False,
                bname="harness-a",
            ),
        )

    def test_binaryRequestIsDecoded(self) -> None:
        """
        A binary request has the same values, each after its length.
        """
        command = self.one(QUERY_OFFSET)
        self.assertEqual(command.code, RequestCode.QUERY_CONSUMER_OFFSET)
        self.assertEqual((command.language, command.version), ("JAVA", 407))
        self.assertEqual((command.opaque, command.flag, command.remark), (303, 0, None))
        self.assertEqual(
            command.decodeHeader(QueryConsumerOffsetRequestHeader),
            QueryConsumerOffsetRequestHeader(
                consumerGroup="hc_j49b_oneway_G_mwipzv3d",
                topic="hc_j49b_oneway_T_mwipzv3d",
                queueId=1,
                bname="harness-a",
            ),
        )

    def test_binaryResponseIsDecoded(self) -> None:
        """
        Its response has the same format and the same opaque.
        """
        command = self.one(QUERY_OFFSET_ANSWER)
        self.assertTrue(command.isResponse)
        self.assertEqual((command.code, command.opaque), (ResponseCode.SUCCESS, 303))
        self.assertEqual(
            command.decodeHeader(QueryConsumerOffsetResponseHeader),
            QueryConsumerOffsetResponseHeader(offset=0),
        )

    def test_errorResponsesHaveRemark(self) -> None:
        """
        A response other than SUCCESS has the reason in its remark, in both formats.
        """
        command = self.one(NOT_LATEST)
        self.assertEqual(command.code, ResponseCode.SUBSCRIPTION_NOT_LATEST)
        self.assertEqual(command.remark, "the consumer's subscription not latest")
        self.assertEqual(command.extFields, {})
        command = self.one(NO_ROUTE)
        self.assertEqual(command.code, ResponseCode.TOPIC_NOT_EXIST)
        assert command.remark is not None
        self.assertEqual(command.remark.count("\n"), 1)
        self.assertEqual(command.extFields, {})

    def test_cppBatchFlagIsTrue(self) -> None:
        """
        A C++ producer's numbers are read bare or as text, and its C{batch} of 1 is true.
        """
        (capture,) = (each for each in captures() if each.headerBytes == CPP_BATCH_HEADER)
        command = decode(capture)
        self.assertEqual(
            command.decodeHeader(SendMessageRequestHeader),
            SendMessageRequestHeader(
                producerGroup="hc_cpp_batch_P_1e26b32ba",
                topic="hc_cpp_batch_T_1e26b32ba",
                defaultTopic="TBW102",
                defaultTopicQueueNums=4,
                queueId=0,
                sysFlag=0,
                bornTimestamp=1794800039180,
                flag=0,
                properties="WAIT\x01true\x02",
                reconsumeTimes=0,
                unitMode=False,
                batch=True,
            ),
        )
        self.assertEqual(command.extFields["Signature"], "x8hz0z4LlxxqTJFU9w79Kx0lC4w=")
        self.assertEqual(command.extFields["defaultTopicQueueNums"], "4")

    def test_ownRequestIsJavasExceptLanguage(self) -> None:
        """
        A request that is made here has Java's bytes, except for the language.
        """
        frame = (
            b"\x00\x00\x00\x86"  # length of what follows: 134
            b"\x00"  # serialize type: JSON
            b"\x00\x00\x82"  # header length: 130
            b'{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"PYTHON",'
            b'"opaque":7,"serializeTypeCurrentRPC":"JSON","version":407}'
        )
        command = requestCommand(105, GetRouteInfoRequestHeader("TBW102"))
        command.opaque = 7
        self.assertEqual(command.encode(), frame)
