# SPDX-License-Identifier: Apache-2.0
"""
Tests for the limits of requests, on a whole broker.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.broker.brokers import Caller, WholeBrokerTests
from tests.processors.support import pullHeader, sendHeader
from txrocket.filters.expressions import EXPRESSION_LIMIT
from txrocket.model import SubscriptionData
from txrocket.processors.bodylimits import BODY_LIMIT, BODY_LIMITS
from txrocket.protocol.bodies import ConsumerData, HeartbeatData
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.record.batch import BATCH_LIMIT, encodeItem


class BoundsTests(WholeBrokerTests):
    """
    What is refused, and what is not.
    """

    def setUp(self) -> None:
        super().setUp()
        self.start(mappedFileSizeCommitLog=str(16 * 1024 * 1024))

    def ask(
        self, caller: Caller, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """
        The one answer to a request.
        """
        caller.ask(code, header, body)
        for _ in range(20):
            self.turn()
        [answer] = [each for each in caller.answers() if each.isResponse]
        return answer

    def test_bodyOverLimitIsRefused(self) -> None:
        """
        A body is refused that is larger than its code allows, and the limit is named; one
        that is as large is looked at.
        """
        caller = self.call()
        for code, limit in (
            (RequestCode.UPDATE_BROKER_CONFIG, BODY_LIMITS[RequestCode.UPDATE_BROKER_CONFIG]),
            (RequestCode.GET_ALL_TOPIC_CONFIG, BODY_LIMIT),
        ):
            answer = self.ask(caller, code, body=b"#" * (limit + 1))
            self.assertEqual(ResponseCode.SYSTEM_ERROR, answer.code)
            self.assertIn(f"{limit + 1} bytes: the limit is {limit}", answer.remark or "")
            self.assertEqual(0, self.ask(caller, code, body=b"#" * limit).code)

    def test_headerOverLimitClosesTheConnection(self) -> None:
        """
        A header that is larger than its limit is not waited for: the connection is closed
        when its first bytes are there, and the log names the setting.
        """
        caller = self.call()
        size = 256 * 1024 + 1
        caller.protocol.dataReceived((size + 4).to_bytes(4, "big"))
        self.assertFalse(caller.wire.disconnecting)
        caller.protocol.dataReceived(size.to_bytes(4, "big"))
        self.turn()
        self.assertTrue(caller.wire.disconnecting)
        [said] = [each for each in self.logged(LogLevel.warn) if "headerMaxLength" in each]
        self.assertIn(f"header of {size} bytes", said)

    def test_longBatchIsRefused(self) -> None:
        """
        A batch of too many messages is refused and none of them is stored; one of as many
        as may be is stored.
        """
        caller = self.call()
        code, header = RequestCode.SEND_BATCH_MESSAGE, sendHeader(batch=True)
        most = encodeItem(b"", b"") * BATCH_LIMIT
        answer = self.ask(caller, code, header, most + encodeItem(b"", b""))
        self.assertEqual(ResponseCode.MESSAGE_ILLEGAL, answer.code)
        self.assertIn(f"more than {BATCH_LIMIT} messages", answer.remark or "")
        answer = self.ask(caller, code, header, most)
        self.assertEqual((0, "0"), (answer.code, answer.extFields["queueOffset"]))

    def test_longExpressionIsRefused(self) -> None:
        """
        An expression that takes too long to read is refused, in a pull and in a heartbeat.
        """
        caller = self.call()
        self.ask(caller, RequestCode.SEND_MESSAGE_V2, sendHeader())
        long = "x" * (EXPRESSION_LIMIT + 1)
        pull = pullHeader(subscription=long)
        data = HeartbeatData(
            "c", consumerDataSet=frozenset({_consumer("G", SubscriptionData("T", long))})
        )
        for answer in (
            self.ask(caller, RequestCode.PULL_MESSAGE, pull),
            self.ask(caller, RequestCode.HEART_BEAT, body=encodeBody(data)),
        ):
            self.assertEqual(ResponseCode.SUBSCRIPTION_PARSE_FAILED, answer.code)
            self.assertIn(f"the limit is {EXPRESSION_LIMIT}", answer.remark or "")


def _consumer(group: str, *wanted: SubscriptionData) -> ConsumerData:
    return ConsumerData(group, subscriptionDataSet=frozenset(wanted))
