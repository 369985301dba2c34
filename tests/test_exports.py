# SPDX-License-Identifier: Apache-2.0
"""
The public face: what users import, and what that costs.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

import txrocket
from txrocket import blocking, client, testing


def declared(module: ModuleType) -> dict[str, str]:
    """
    The names that type checkers are told of, and the modules that have them.
    """
    assert module.__file__ is not None
    with open(module.__file__) as source:
        tree = ast.parse(source.read())
    (conditional,) = [each for each in tree.body if isinstance(each, ast.If)]
    return {
        alias.name: each.module or ""
        for each in conditional.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }


def imported(statement: str) -> set[str]:
    """
    The top-level packages and modules of txrocket that a fresh Python has after a
    statement.
    """
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    return set(ran.stdout.split())


class ExportsTests(SynchronousTestCase):
    """
    C{txrocket} and C{txrocket.client}.
    """

    def test_sharedValuesAreInTxrocket(self) -> None:
        """
        The values that all clients share can be imported from txrocket.
        """
        self.assertEqual(
            set(txrocket.__all__),
            {
                *("ConsumeFromWhere", "Message", "MessageExt", "MessageModel", "MessageQueue"),
                "__version__",
            },
        )

    def test_clientNamesAreInClient(self) -> None:
        """
        Whatever one needs to write a client of any kind can be imported from
        txrocket.client.
        """
        self.assertEqual(
            set(client.__all__),
            {
                *("Cluster", "Producer", "TransactionProducer"),
                *("PushConsumer", "LitePullConsumer", "PullConsumer", "PullSchedule"),
                *("SendResult", "SendStatus", "PullResult", "PullStatus"),
                *("LocalTransactionState", "TransactionSendResult", "ConsumeLater"),
                *("byHash", "byRandom", "byMachineRoom", "FaultTable", "ISendMessageHook"),
                *("Sending", "Room", "LocalOffsets"),
                *("IConsumeMessageHook", "Consuming", "TraceReader", "MessageTrace"),
            },
        )

    def test_blockingAndTestingHaveOwnPackages(self) -> None:
        """
        The blocking client and the clusters for tests are in packages of their own.
        """
        self.assertEqual(set(blocking.__all__), {"Client", "Inspector", "Settings", "TLS"})
        self.assertEqual(
            set(testing.__all__), {"MemoryCluster", "RealCluster", "ChildCluster", "ClusterFailed"}
        )

    def test_exportIsItsModulesName(self) -> None:
        """
        A name is that of its module, type checkers get the same, and its module has it in
        C{__all__}, too.
        """
        for face in txrocket, client:
            names = declared(face)
            self.assertEqual(set(face.__all__) - {"__version__"}, names.keys())
            for name, where in names.items():
                module = importlib.import_module(where)
                self.assertIs(getattr(face, name), getattr(module, name))
                self.assertIn(name, module.__all__)

    def test_starImportsAllNames(self) -> None:
        """
        A star imports all names, and C{dir} lists all of them.
        """
        for face in txrocket, client:
            self.assertLessEqual(set(face.__all__), set(dir(face)))
            scope: dict[str, object] = {}
            exec(f"from {face.__name__} import *", scope)
            self.assertLessEqual(set(face.__all__), set(scope))

    def test_unknownNameIsAttributeError(self) -> None:
        """
        Another name is an AttributeError that says so, as of any module.
        """
        for face in txrocket, client:
            error = self.assertRaises(AttributeError, getattr, face, "nothing")
            self.assertEqual(str(error), f"module '{face.__name__}' has no attribute 'nothing'")

    def test_importBringsNoTwisted(self) -> None:
        """
        To import txrocket brings nothing else, and neither txrocket.client nor a
        message brings Twisted.
        """
        bare = imported("")
        ours = imported("import txrocket") - bare
        self.assertEqual({each for each in ours if each.startswith("txrocket")}, {"txrocket"})
        for statement in (
            "import txrocket.client",
            "from txrocket import Message, MessageQueue",
            "from txrocket.client import SendResult, byHash",
        ):
            self.assertNotIn("twisted", imported(statement))

    def test_importInstallsNoReactor(self) -> None:
        """
        Importing the clients installs no reactor: the program chooses it.
        """
        names = ", ".join(client.__all__)
        self.assertNotIn(
            "twisted.internet.reactor", imported(f"from txrocket.client import {names}")
        )
