# SPDX-License-Identifier: Apache-2.0
"""
Tests for the time at which a broker loads the parser of SQL92 expressions. Loading it is
slow, so no request may cause it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from unittest import mock

import attrs
from twisted.internet.defer import Deferred

import txrocket.filters
from tests.processors.support import BROUGHT, pullHeader, sendHeader
from tests.store.support import abandon
from tests.test_services import HEARTBEAT, PULL, SEND, ServicesTests
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.services import broker

MODULES = ("txrocket.filters.sql92", "txrocket.filters.sql92.grammar")
CHECK = b'{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"a > 1",'
CHECK += b'"expressionType":"SQL92"}}'


class LoadTests(ServicesTests):
    """
    A process in which the parser is not loaded yet.
    """

    def setUp(self) -> None:
        super().setUp()
        kept = mock.patch.dict(sys.modules)
        kept.start()
        self.addCleanup(kept.stop)
        for name in MODULES:
            sys.modules.pop(name, None)
            short = name.rpartition(".")[2]
            # An import sets these as well.
            if hasattr(txrocket.filters, short):
                self.patch(txrocket.filters, short, None)

    def loaded(self) -> bool:
        """
        Whether the parser is loaded.
        """
        return any(name in sys.modules for name in MODULES)

    def test_enabledLoadsBeforeListening(self) -> None:
        """
        A broker with C{enablePropertyFilter} has loaded the parser before it listens.
        """
        self.make(enablePropertyFilter="true")
        self.assertTrue(self.loaded())

    def test_disabledRefusesWithoutLoading(self) -> None:
        """
        A broker without C{enablePropertyFilter} refuses SQL92 and does not load the parser,
        neither for a check, a pull or a heartbeat, nor when it keeps the groups' filters.
        """
        self.start(filterSupportRetry="true")
        caller = self.call()
        self.ask(caller, SEND, sendHeader(), b"x")
        beat = HEARTBEAT.format("c").replace('"subString":"*"', '"subString":"a > 1"')
        beat = beat.replace('"subVersion":1', '"subVersion":1,"expressionType":"SQL92"')
        answer = self.ask(caller, RequestCode.HEART_BEAT, body=beat.encode())
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        answer = self.ask(caller, RequestCode.CHECK_CLIENT_CONFIG, body=CHECK)
        self.assertIn("enablePropertyFilter is false", answer.remark or "")
        brought = pullHeader(subscription="a > 1", expressionType="SQL92", sysFlag=BROUGHT)
        for header in (brought, pullHeader(sysFlag=0)):
            answer = self.ask(caller, PULL, header)
            self.assertIn("enablePropertyFilter is false", answer.remark or "")
        self.turn(30)
        self.assertFalse(self.loaded())

    def test_retriedMessageGivenWithoutLoading(self) -> None:
        """
        Without C{enablePropertyFilter} a retried message is given to its group whatever
        its expression is, also with C{filterSupportRetry}, and the parser is not loaded.
        """
        self.start(filterSupportRetry="true")
        caller = self.call()
        beat = HEARTBEAT.format("c").replace('"subString":"*"', '"subString":"a > 1"')
        beat = beat.replace('"subVersion":1', '"subVersion":1,"expressionType":"SQL92"')
        self.ask(caller, RequestCode.HEART_BEAT, body=beat.encode())
        header = sendHeader("%RETRY%G", properties="RETRY_TOPIC\x01T", queueId=0)
        self.assertEqual(self.ask(caller, SEND, header, b"x").code, ResponseCode.SUCCESS)
        pull = pullHeader("%RETRY%G", subscription="*", sysFlag=BROUGHT)
        self.assertEqual(self.ask(caller, PULL, pull).code, ResponseCode.SUCCESS)
        self.assertFalse(self.loaded())

    def test_enablingLoadsInAThread(self) -> None:
        """
        When C{enablePropertyFilter} is set while the broker runs, the parser is loaded in a
        thread, before the first expression comes.
        """
        waiting: list[Callable[[], None]] = []

        def later(function: Callable[[], None]) -> Deferred[None]:
            waiting.append(function)
            return Deferred()

        settings = self.configuration()
        around = attrs.evolve(self.around(), inThread=later)
        made = broker(around, settings)
        self.addCleanup(abandon, made.store)
        settings.update({"enablePropertyFilter": "true"}, 0)
        self.assertFalse(self.loaded())
        for function in waiting:
            function()
        self.assertTrue(self.loaded())
