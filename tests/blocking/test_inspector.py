# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.blocking.inspector} and for the command that prints what it is told.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.blocking.server import Server
from txrocket.blocking import Inspector
from txrocket.blocking.connections import BlockingConnections
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.inspectcommand import main
from txrocket.errors import ConfigError, ConnectFailed, RequestCodeNotSupported
from txrocket.model import BrokerData, MessageQueue
from txrocket.protocol.bodies import ClusterInfo, LockBatchRequestBody
from txrocket.protocol.bodies.codec import encodeBody
from txrocket.protocol.bodies.inspect import (
    DifferingGroup,
    DifferingGroupList,
    HalfList,
    HeldLock,
    InspectHalvesRequestHeader,
    LockList,
    PendingHalf,
    SubscriptionDifference,
    SubscriptionView,
)
from txrocket.protocol.codes import InspectCode, RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.frames import FRAME_LIMIT
from txrocket.testing import ChildCluster

LOCK = HeldLock("G", MessageQueue("T", "b", 3), "192.0.2.7@1", 61_000, 500)


def half(number: int) -> PendingHalf:
    """
    An undecided half.
    """
    return PendingHalf(number, f"id{number}", f"AB{number}", "T", "P", 1, 4, 65_000)


def always(body: object) -> Callable[[RemotingCommand], RemotingCommand]:
    """
    Answers with a body.
    """
    return lambda request: responseCommand(body=encodeBody(body))


class InspectorCase(SynchronousTestCase):
    """
    The base: a server that is both a name server and a broker.
    """

    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.stop)
        self.address = self.server.address
        brokers = {
            "b": BrokerData("c", "b", {0: self.address, 1: "192.0.2.1:1"}),
            # Its master is away.
            "d": BrokerData("c", "d", {1: "192.0.2.2:1"}),
        }
        info = ClusterInfo(brokers, {"c": frozenset(brokers)})
        self.server.serve[RequestCode.GET_BROKER_CLUSTER_INFO] = always(info)


class InspectorTests(InspectorCase):
    """
    L{Inspector}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.inspector = Inspector(timeout=60.0)
        self.addCleanup(self.inspector.close)

    def test_mastersComeFromNameServer(self) -> None:
        """
        The masters are those that the name server knows.
        """
        self.assertEqual(self.inspector.masters(self.address), {"b": self.address})
        self.assertEqual(self.inspector.masters([self.address]), {"b": self.address})

    def test_nameServersComeFromEnvironment(self) -> None:
        """
        The name servers may be in the environment, and must be somewhere.
        """
        self.patch(sys.modules["os"], "environ", {"NAMESRV_ADDR": self.address})
        self.assertEqual(self.inspector.masters(), {"b": self.address})
        self.patch(sys.modules["os"], "environ", {})
        self.assertRaises(ConfigError, self.inspector.masters)

    def test_locksOfAllGroupsOrOne(self) -> None:
        """
        Locks, of all groups or of one.
        """
        self.server.serve[InspectCode.INSPECT_LOCKS] = always(LockList((LOCK,), 2))
        self.assertEqual(self.inspector.locks(self.address), LockList((LOCK,), 2))
        self.inspector.locks(self.address, "G")
        groups = [each.extFields.get("group") for each in self.server.requests]
        self.assertEqual(groups, [None, "G"])

    def test_halvesAreRequestedPageByPage(self) -> None:
        """
        Halves, for which the broker is asked as often as it has more.
        """
        pages = {0: HalfList((half(3), half(7)), True), 8: HalfList((half(9),))}

        def serve(request: RemotingCommand) -> RemotingCommand:
            offset = request.decodeHeader(InspectHalvesRequestHeader).offset
            return responseCommand(body=encodeBody(pages[offset]))

        self.server.serve[InspectCode.INSPECT_HALVES] = serve
        found = list(self.inspector.halves(self.address))
        self.assertEqual([each.queueOffset for each in found], [3, 7, 9])
        # One that says so and gives none does not keep us for ever.
        pages[0] = HalfList((), True)
        self.assertEqual(list(self.inspector.halves(self.address)), [])

    def test_differingGroupsAreListed(self) -> None:
        """
        Groups that differ.
        """
        told = DifferingGroupList((DifferingGroup("G", 1, 2),))
        self.server.serve[InspectCode.INSPECT_SUBSCRIPTIONS] = always(told)
        self.assertEqual(self.inspector.subscriptions(self.address, "G"), told)

    def test_javaBrokerRefuses(self) -> None:
        """
        Java's brokers know none of it.
        """
        code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        self.server.serve[InspectCode.INSPECT_LOCKS] = lambda request: responseCommand(code, "no")
        self.assertRaises(RequestCodeNotSupported, self.inspector.locks, self.address)

    def test_contextClosesConnections(self) -> None:
        """
        It closes its connections when it is left.
        """
        self.server.serve[InspectCode.INSPECT_LOCKS] = always(LockList())
        with Inspector(timeout=60.0) as inspector:
            for _ in range(2):
                inspector.locks(self.address)
                self.assertEqual(len(self.server.connections), 1)
        inspector.locks(self.address)
        self.assertEqual(len(self.server.connections), 2)
        inspector.close()
        self.server.stop()
        self.assertRaises(ConnectFailed, self.inspector.locks, self.address)


class CommandTests(InspectorCase):
    """
    The command.
    """

    def ran(self, *arguments: str) -> tuple[int, list[str], str]:
        """
        The exit code, the lines that were printed, and what went wrong.
        """
        out, errors = io.StringIO(), io.StringIO()
        self.patch(sys, "stderr", errors)
        code = main(arguments, out)
        return code, out.getvalue().splitlines(), errors.getvalue()

    def test_locksOfNamedBrokerAreTable(self) -> None:
        """
        A table of locks, of the broker that is named.
        """
        self.server.serve[InspectCode.INSPECT_LOCKS] = always(LockList((LOCK,), 5))
        code, lines, errors = self.ran("locks", "-b", self.address)
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(
            [each.split() for each in lines],
            [
                ["BROKER", "GROUP", "QUEUE", "HOLDER", "HELD", "SILENT"],
                [self.address, "G", "T/3", "192.0.2.7@1", "61.0", "s", "0.5", "s"],
                [self.address, "...", "5", "more"],
            ],
        )
        # The columns are below each other.
        self.assertEqual(lines[0].index("HOLDER"), lines[1].index("192.0.2.7@1"))

    def test_groupLimitsTable(self) -> None:
        """
        One group alone may be asked for.
        """
        self.server.serve[InspectCode.INSPECT_LOCKS] = always(LockList())
        self.ran("locks", "-b", self.address, "-g", "G")
        self.assertEqual(self.server.requests[-1].extFields["group"], "G")

    def test_halvesOfAllMastersAreTable(self) -> None:
        """
        A table of halves, of all masters that the name server knows.
        """
        self.server.serve[InspectCode.INSPECT_HALVES] = always(HalfList((half(1),)))
        code, lines, _ = self.ran("halves", "-n", self.address)
        self.assertEqual(code, 0)
        self.assertEqual(lines[1].split(), ["b", "T", "P", "4", "65.0", "s", "id1", "AB1"])

    def test_subscriptionsArePrintable(self) -> None:
        """
        Subscriptions are printed as a table, and clients' texts cannot control the
        terminal.
        """
        views = (
            SubscriptionView("a || \x1b[2J", "TAG", 7, ("c1", "c2")),
            SubscriptionView(None, None, 1, ("c3",)),
        )
        group = DifferingGroup(
            "G", 1_700_000_000_000, 8, (SubscriptionDifference("T", views),), more=4
        )
        told = DifferingGroupList((group,), more=2)
        self.server.serve[InspectCode.INSPECT_SUBSCRIPTIONS] = always(told)
        code, lines, _ = self.ran("subscriptions", "-n", self.address)
        self.assertEqual(code, 0)
        text = "\n".join(lines)
        self.assertIn("2023-11-14 22:13:20+00:00", text)
        self.assertIn("a || ?[2J", text)
        self.assertIn("c1, c2, ...", lines[1])
        self.assertIn("(nothing)", lines[2])
        self.assertIn("... 4 topics more", lines[3])
        self.assertIn("... 2 groups more", lines[4])

    def test_silentBrokerIsNamedAndOthersShown(self) -> None:
        """
        A broker that does not answer, or is Java's, is named, and the others are
        looked at all the same.
        """
        code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        self.server.serve[InspectCode.INSPECT_LOCKS] = lambda request: responseCommand(code, "no")
        gone = Server()
        gone.stop()
        given = f"{self.address};{gone.address}"
        exit_, lines, errors = self.ran("locks", "-b", given)
        self.assertEqual((exit_, len(lines)), (1, 1))
        self.assertIn(f"{self.address}: this broker cannot be inspected", errors)
        self.assertIn(f"{gone.address}: ", errors)
        exit_, _, errors = self.ran("locks", "-n", gone.address)
        self.assertEqual(exit_, 1)
        self.assertIn(gone.address, errors)

    def test_invalidAddressesAreReported(self) -> None:
        """
        Invalid and missing addresses are reported.
        """
        self.assertEqual(self.ran("locks", "-b", "nowhere")[0], 2)
        self.patch(sys.modules["os"], "environ", {})
        exit_, _, errors = self.ran("locks")
        self.assertEqual(exit_, 2)
        self.assertIn("NAMESRV_ADDR", errors)
        error = self.assertRaises(SystemExit, self.ran, "nothing")
        self.assertEqual(error.code, 2)


class LiveTests(SynchronousTestCase):
    """
    The command against a broker of ours, in a process of its own.
    """

    def test_takenLockIsListed(self) -> None:
        """
        A lock that was taken is listed, and there is nothing else to see.
        """
        cluster = ChildCluster()
        self.addCleanup(cluster.stop)
        cluster.start()
        connections = BlockingConnections(None, FRAME_LIMIT)
        self.addCleanup(connections.close)
        queue = MessageQueue("T", "broker-0", 3)
        body = encodeBody(LockBatchRequestBody("G", "client", frozenset({queue})))
        connections.ask(
            cluster.brokers[0], requestCommand(RequestCode.LOCK_BATCH_MQ, None, body), Deadline(20)
        )
        printed: dict[str, Any] = {}
        for what in ("locks", "halves", "subscriptions"):
            out = io.StringIO()
            code = main([what, "-n", cluster.nameServers[0], "-t", "20"], out)
            self.assertEqual(code, 0)
            printed[what] = out.getvalue().splitlines()[1:]
        [lock] = printed["locks"]
        self.assertEqual(lock.split()[1:4], ["G", "T/3", "client"])
        self.assertEqual((printed["halves"], printed["subscriptions"]), ([], []))
