# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.remoting}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.exceptions import Invalid

from tests.remoting.doubles import Recorder, connected, frame
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import responseCommand
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.interfaces import IExecutor, Process
from txrocket.remoting.remoting import FunctionProcessor, Limits, Remoting
from txrocket.remoting.turn import ProcessAll


@implementer(IExecutor)
class CountingExecutor:
    """
    An executor that counts how often it is asked.
    """

    def __init__(self) -> None:
        self.bound = 0

    def bind(self, process: Process) -> Process:
        self.bound += 1
        return process

    def bindAll(self, processAll: ProcessAll) -> ProcessAll | None:
        return None


class RemotingTests(SynchronousTestCase):
    """
    The processorTable and its company.
    """

    def setUp(self) -> None:
        self.remoting = Remoting(Clock())
        self.processor = FunctionProcessor(lambda request, peer: responseCommand(7))

    def test_defaults(self) -> None:
        """
        The limits are RocketMQ's: frames of 16 MiB (frameMaxLength), 65535
        requests and 65535 oneways under way (NettySystemConfig).
        """
        limits = self.remoting.limits
        self.assertEqual((limits.frame, limits.requests, limits.oneways), (16777216, 65535, 65535))
        own = Limits(frame=1)
        self.assertIs(Remoting(Clock(), own).limits, own)

    def test_table(self) -> None:
        """
        A code is served by the pair registered for it, every other code by the
        default pair.
        """
        remoting, executor = self.remoting, InlineExecutor()
        remoting.registerProcessor(RequestCode.HEART_BEAT, self.processor, executor)
        other = FunctionProcessor(lambda request, peer: responseCommand(8))
        remoting.registerDefaultProcessor(other, executor)
        self.assertEqual(
            remoting.processorTable,
            {34: (self.processor, executor, self.processor.process, None)},
        )
        protocol, wire = connected(remoting)
        protocol.dataReceived(frame(34, 1) + frame(35, 2) + frame(-5, 3))
        self.assertEqual(
            [(each.opaque, each.code) for each in wire.drain()], [(1, 7), (2, 8), (3, 8)]
        )

    def test_unknownCode(self) -> None:
        """
        Without a default pair an unknown code is answered
        REQUEST_CODE_NOT_SUPPORTED, by name where it has one.
        """
        protocol, wire = connected(self.remoting)
        protocol.dataReceived(frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1) + frame(31337, 2))
        known, unknown = wire.drain()
        self.assertEqual(known.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.assertEqual(unknown.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.assertIn("GET_ROUTEINFO_BY_TOPIC", str(known.remark))
        self.assertIn("31337", str(unknown.remark))

    def test_boundOnce(self) -> None:
        """
        The executor is asked at registration, not for every request.
        """
        executor = CountingExecutor()
        self.remoting.registerProcessor(34, self.processor, executor)
        protocol, wire = connected(self.remoting)
        protocol.dataReceived(frame(34, 1) + frame(34, 2))
        self.assertEqual((len(wire.drain()), executor.bound), (2, 1))

    def test_interfaces(self) -> None:
        """
        What does not provide its interface is refused when it is registered,
        and nothing changes.
        """
        remoting = self.remoting
        bad: Any = object()
        self.assertRaises(Invalid, remoting.registerProcessor, 34, bad, InlineExecutor())
        self.assertRaises(Invalid, remoting.registerProcessor, 34, self.processor, bad)
        self.assertRaises(Invalid, remoting.registerDefaultProcessor, bad, InlineExecutor())
        self.assertRaises(Invalid, remoting.registerHook, bad)
        self.assertEqual(remoting.processorTable, {})
        self.assertIsNone(remoting.defaultProcessor)
        self.assertEqual(remoting.hooks, [])

    def test_hooks(self) -> None:
        """
        Hooks are kept in the order in which they came.
        """
        first, second = Recorder("first", []), Recorder("second", [])
        self.remoting.registerHook(first)
        self.remoting.registerHook(second)
        self.assertEqual(self.remoting.hooks, [first, second])
