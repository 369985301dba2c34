# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.codes}.

C{fixtures/codes.json} has the constants of RocketMQ 4.9.7's C{RequestCode},
C{ResponseCode} with C{RemotingSysResponseCode}, C{LanguageCode} and, of
C{MQVersion}, the ordinal of its own version.
"""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.captures import captures
from txrocket.errors import responseError
from txrocket.protocol.codes import (
    VERSION,
    InspectCode,
    LanguageCode,
    ReplicationCode,
    RequestCode,
    ResponseCode,
    SerializeType,
    requestName,
)
from txrocket.protocol.headers import HEADERS

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire" / "codes.rst"
INSPECTION = DOCUMENT.with_name("inspection.rst")
JAVA = json.loads((Path(__file__).parents[1] / "fixtures" / "codes.json").read_text("utf-8"))

# Codes that RocketMQ 4.9.7 names and neither its name server, broker nor client
# serves: they are left from earlier versions, or belong to the filter server.
UNSERVED = {
    RequestCode.QUERY_BROKER_OFFSET,
    RequestCode.GET_TOPIC_CONFIG_LIST,
    RequestCode.GET_TOPIC_NAME_LIST,
    RequestCode.TRIGGER_DELETE_FILES,
    RequestCode.SUSPEND_CONSUMER,
    RequestCode.RESUME_CONSUMER,
    RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER,
    RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER,
    RequestCode.ADJUST_CONSUMER_THREAD_POOL,
    RequestCode.WHO_CONSUME_THE_MESSAGE,
    RequestCode.REGISTER_FILTER_SERVER,
    RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
}


class CodeTests(SynchronousTestCase):
    """
    The codes of the wire.
    """

    def test_codesAreJavas(self) -> None:
        """
        Names and numbers are exactly Java's.
        """
        for kind in (RequestCode, ResponseCode, LanguageCode):
            ours = {name: int(each) for name, each in kind.__members__.items()}
            self.assertEqual(ours, JAVA[kind.__name__])

    def test_requestCodesAreDistinct(self) -> None:
        """
        RocketMQ 4.9.7 has 96 request codes with distinct numbers.
        """
        self.assertEqual(len(RequestCode), 96)
        self.assertEqual(len(RequestCode.__members__), 96)
        self.assertEqual((min(RequestCode), max(RequestCode)), (10, 329))

    def test_servedCodesHaveHeaders(self) -> None:
        """
        The name server, broker and client of 4.9.7 serve 84 codes, and each has its
        headers declared.
        """
        self.assertEqual(len(HEADERS), 84)
        self.assertEqual(set(HEADERS), set(RequestCode) - UNSERVED)

    def test_versionIsThatOf497(self) -> None:
        """
        V4_9_7 is 407, as in the frames of 4.9.7's own programs.
        """
        self.assertEqual(VERSION, 407)
        self.assertEqual(VERSION, JAVA["MQVersion"]["V4_9_7"])
        servers = {each.header["version"] for each in captures() if each.sender in ("ns", "broker")}
        self.assertEqual(servers, {VERSION})

    def test_languagesAreJavas(self) -> None:
        """
        Languages are numbered from 0 as in Java, and have every captured name and number.
        """
        self.assertEqual([int(each) for each in LanguageCode], list(range(13)))
        self.assertEqual((LanguageCode.JAVA, LanguageCode.PYTHON, LanguageCode.RUST), (0, 3, 12))
        for each in captures():
            language = each.header["language"]
            if each.form == "json":
                self.assertIn(language, LanguageCode.__members__)
            else:
                self.assertEqual(LanguageCode(language), LanguageCode.JAVA)

    def test_capturedCodesHaveNames(self) -> None:
        """
        Every captured request code has a name, except one that only newer clients send;
        every captured response code has one.
        """
        unknown = {each.requestCode for each in captures()} - set(RequestCode)
        self.assertEqual(unknown, {361})
        for each in captures():
            if each.kind == "response":
                ResponseCode(each.header["code"])

    def test_firstByteIsSerializeType(self) -> None:
        """
        The first byte of a header's length is 0 for JSON and 1 for the binary format.
        """
        for each in captures():
            form = SerializeType.JSON if each.form == "json" else SerializeType.ROCKETMQ
            self.assertEqual(each.frame[4], form)

    def test_requestNameHasNameAndNumber(self) -> None:
        """
        The text of a code has name and number, or only the number if it is unknown.
        """
        self.assertEqual(requestName(11), "PULL_MESSAGE (11)")
        self.assertEqual(requestName(361), "361")
        self.assertEqual(requestName(30001), "INSPECT_LOCKS (30001)")

    def test_inspectCodesAreNotRocketMQs(self) -> None:
        """
        Our own codes differ from all of RocketMQ's, and each is documented.
        """
        self.assertEqual(set(InspectCode) & set(RequestCode), set())
        text = INSPECTION.read_text(encoding="utf-8")
        for each in InspectCode:
            self.assertIn(f"   * - {int(each)}\n     - {each.name}\n", text)

    def test_replicationCodesAreNotRocketMQs(self) -> None:
        """
        The codes about roles differ from all others, and each is documented.
        """
        self.assertEqual(set(ReplicationCode) & {*RequestCode, *InspectCode}, set())
        text = DOCUMENT.with_name("roles.rst").read_text(encoding="utf-8")
        for each in ReplicationCode:
            self.assertIn(f"   * - {int(each)}\n     - {each.name}\n", text)
        self.assertEqual(requestName(30010), "HA_STATUS (30010)")


class DocumentTests(SynchronousTestCase):
    """
    The page about codes.
    """

    def test_pageHasEveryCode(self) -> None:
        """
        docs/wire/codes.rst has every code; for a response code also its error and whether
        that is retriable.
        """
        text = DOCUMENT.read_text(encoding="utf-8")
        for kind in (RequestCode, ResponseCode, LanguageCode):
            for each in kind:
                self.assertIn(f"   * - {int(each)}\n     - {each.name}\n", text)
        for request in RequestCode:
            unserved = f"     - {request.name}\n     - \\-\n"
            self.assertEqual(unserved in text, request in UNSERVED, request.name)
        for response in set(ResponseCode) - {ResponseCode.SUCCESS}:
            error = responseError(response, None)
            retriable = "yes" if error.retriable else "no"
            self.assertIn(
                f"     - {response.name}\n     - ``{type(error).__name__}``\n     - {retriable}\n",
                text,
            )
        self.assertIn(f"RocketMQ 4.9.7 is {VERSION}", text)
