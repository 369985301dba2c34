# SPDX-License-Identifier: Apache-2.0
"""
Tests for the twistd plugins and the drop-in package, and for the example in it.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

from twisted.application.service import IServiceMaker
from twisted.internet.defer import Deferred
from twisted.plugin import getPlugins, pluginPackagePaths
from twisted.trial.unittest import SynchronousTestCase

import txrocket.plugins
from tests.testing.client import Client
from txrocket.errors import (
    ConfigError,
    NoPermission,
    RemoteSystemError,
    SubscriptionParseFailed,
)
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import requestCommand
from txrocket.server import echo
from txrocket.server.launch import installedPlugins
from txrocket.services import Plugins
from txrocket.testing import MemoryCluster
from txrocket.testing.trial import memoryCluster

ROOT = Path(txrocket.__file__).parent
EXAMPLES = Path(__file__).parent.parent / "examples" / "plugins"

# What the plugins of these tests begin with.
HEAD = """
from zope.interface import directlyProvides
from txrocket.broker.interfaces import IBrokerProcessor, IMessageFilter, ISendHook
class Thing:
    pass
"""


class PluginTests(SynchronousTestCase):
    """
    The plugins that twistd finds.
    """

    def test_echoPluginIsFoundOnce(self) -> None:
        """
        twistd finds rocket-echo, once, and it leads to L{txrocket.server.echo}.
        """
        (maker,) = [each for each in getPlugins(IServiceMaker) if each.tapname == "rocket-echo"]
        self.assertIs(maker.makeService, echo.makeService)
        self.assertIs(maker.options, echo.Options)

    def test_pluginFolderIsNoPackage(self) -> None:
        """
        The folder of plugins is no package: with an C{__init__.py} it would hide Twisted's.
        """
        root = Path(__file__).parent.parent / "twisted"
        self.assertTrue((root / "plugins" / "txrocket_plugin.py").is_file())
        self.assertEqual(list(root.rglob("__init__.py")), [])

    def test_pluginPackageExportsNothing(self) -> None:
        """
        C{txrocket.plugins} is ours and exports nothing.
        """
        self.assertEqual(txrocket.plugins.__all__, [])
        self.assertIn(str(ROOT / "plugins"), list(txrocket.plugins.__path__))


class DropInCase(SynchronousTestCase):
    """
    Folders on the path that have plugins.
    """

    def setUp(self) -> None:
        self.patch(txrocket.plugins, "__path__", list(txrocket.plugins.__path__))
        before = set(vars(txrocket.plugins))
        self.addCleanup(self.forget, before)

    def forget(self, before: set[str]) -> None:
        """
        Nothing that a test has loaded stays loaded.
        """
        for name in set(vars(txrocket.plugins)) - before:
            delattr(txrocket.plugins, name)
        for name in [each for each in sys.modules if each.startswith("txrocket.plugins.")]:
            del sys.modules[name]

    def putOnPath(self, folder: Path) -> None:
        """
        Put a folder on the path, as C{PYTHONPATH} does before txrocket is imported.
        """
        self.patch(sys, "path", [*sys.path, str(folder)])
        # No files of our own among the examples.
        self.patch(sys, "dont_write_bytecode", True)
        txrocket.plugins.__path__ += pluginPackagePaths("txrocket.plugins")

    def dropIn(self, **modules: str) -> Path:
        """
        Install modules.

        @return: their folder.
        """
        root = Path(self.mktemp()).absolute()
        folder = root / "txrocket" / "plugins"
        folder.mkdir(parents=True)
        for name, source in modules.items():
            (folder / f"{name}.py").write_text(HEAD + dedent(source))
        self.putOnPath(root)
        return folder

    def problems(self) -> tuple[str, ...]:
        """
        Why plugins cannot be loaded.
        """
        error = self.assertRaises(ConfigError, installedPlugins)
        assert isinstance(error, ConfigError)
        return error.problems


class LoadingTests(DropInCase):
    """
    Tests for L{installedPlugins}.
    """

    def test_txrocketHasNoPlugins(self) -> None:
        """
        txrocket itself has no plugins.
        """
        self.assertEqual(installedPlugins(), Plugins([], [], []))

    def test_pluginsAreFoundOnceInOrder(self) -> None:
        """
        All objects that can be plugged in are found, each once, the modules in the
        order of their names; one object may be two things.
        """
        folder = self.dropIn(
            b="""
            hook = object()
            directlyProvides(Thing(), ISendHook)
            both = Thing()
            directlyProvides(both, ISendHook, IMessageFilter)
            """,
            a="""
            first = Thing()
            directlyProvides(first, ISendHook)
            processor = Thing()
            directlyProvides(processor, IBrokerProcessor)
            """,
            c="from txrocket.plugins.a import first\nother = first\n",
        )
        found = installedPlugins()
        a, b = sys.modules["txrocket.plugins.a"], sys.modules["txrocket.plugins.b"]
        self.assertEqual(
            found,
            Plugins([vars(a)["processor"]], [vars(b)["both"]], [vars(a)["first"], vars(b)["both"]]),
        )
        self.assertEqual(list(folder.rglob("*.cache")), [])

    def test_underscoreModuleIsIgnored(self) -> None:
        """
        A module whose name begins with an underscore is for others to import.
        """
        self.dropIn(
            _base="thing = Thing()",
            a="""
            from txrocket.plugins._base import thing
            directlyProvides(thing, ISendHook)
            """,
        )
        self.assertEqual(len(installedPlugins().sendHooks), 1)

    def test_brokenModulesAreAllReported(self) -> None:
        """
        A module that cannot be loaded is an error that names its file and the reason,
        and so is one that plugs nothing in: all of them, and not only the first.
        """
        folder = self.dropIn(
            broken="import no_such_module",
            crooked="def f(:",
            empty="hook = Thing",
            fine="hook = Thing()\ndirectlyProvides(hook, ISendHook)",
            raising="raise KeyError('x')",
        )
        broken, crooked, empty, raising = self.problems()
        self.assertEqual(
            broken,
            f"plugin {folder / 'broken.py'} cannot be loaded:"
            " ModuleNotFoundError: No module named 'no_such_module'",
        )
        self.assertIn(f"plugin {folder / 'crooked.py'} cannot be loaded: SyntaxError: ", crooked)
        self.assertEqual(
            empty,
            f"plugin {folder / 'empty.py'} has no plugin: no object in it provides any of"
            " IBrokerProcessor, IMessageFilter, ISendHook",
        )
        self.assertEqual(raising, f"plugin {folder / 'raising.py'} cannot be loaded: KeyError: 'x'")

    def test_twoModulesOfOneNameAreError(self) -> None:
        """
        Of two modules of one name only one could be loaded: that is an error.  A folder
        that is on the path twice has each of its modules once.
        """
        hook = "hook = Thing()\ndirectlyProvides(hook, ISendHook)"
        first = self.dropIn(hook=hook)
        self.putOnPath(first.parent.parent)
        self.assertEqual(len(installedPlugins().sendHooks), 1)
        second = self.dropIn(hook=hook)
        (problem,) = self.problems()
        self.assertEqual(
            problem,
            f"plugin {second / 'hook.py'} has the name of {first / 'hook.py'}: only one"
            " can be loaded",
        )


class ExampleTests(DropInCase):
    """
    The example, plugged into a broker in memory and used over the wire.
    """

    def setUp(self) -> None:
        super().setUp()
        self.putOnPath(EXAMPLES)
        self.cluster = memoryCluster(
            self, plugins=installedPlugins(), settings={"enablePropertyFilter": True}
        )
        self.client = Client(self.cluster.clock, self.cluster.connect)
        self.broker = self.cluster.brokers[0]

    def get(self, asking: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """
        What the client gets.
        """
        return self.cluster.resultOf(Deferred.fromCoroutine(asking))

    @property
    def module(self) -> Any:
        """
        The example.
        """
        return sys.modules["txrocket.plugins.greeting"]

    def test_ownRequestCodeIsServed(self) -> None:
        """
        A request code of the plugin's own is served.
        """
        header = self.module.GreetRequestHeader("you")
        answer = self.get(self.client.ask(self.broker, requestCommand(self.module.GREET, header)))
        self.assertRegex(answer.body.decode(), r"^hello you at 203\.0\.113\.1:\d+$")
        lacking = self.client.ask(self.broker, requestCommand(self.module.GREET))
        self.assertRaises(RemoteSystemError, self.get, lacking)

    def test_filterSelectsMessages(self) -> None:
        """
        Its expressions choose among messages, those that are held included, and what
        is wrong with one is told.
        """
        for key in ("order-1", "bill-1", "other order-2"):
            sent = self.client.send(self.broker, key.encode(), properties=f"KEYS\x01{key}\x02")
            self.get(sent)
        pull = partial(self.client.pull, self.broker, expressionType="PREFIX")
        found = self.get(pull(subscription="order-"))
        self.assertEqual([each.body for each in found], [b"order-1", b"other order-2"])
        held = Deferred.fromCoroutine(pull(subscription="bill-", offset=3, hold=9))
        for key in ("order-3", "bill-2"):
            self.assertNoResult(held)
            sent = self.client.send(self.broker, key.encode(), properties=f"KEYS\x01{key}\x02")
            self.get(sent)
        self.cluster.advance()
        self.assertEqual([each.body for each in self.successResultOf(held)], [b"bill-2"])
        error = self.assertRaises(SubscriptionParseFailed, self.get, pull(subscription="a b"))
        self.assertIn("'a b': a key has no blanks", str(error))

    def test_hookChangesAndRefuses(self) -> None:
        """
        Its hook changes messages, refuses some, and hears of the rest.
        """
        for properties in ("", "TAGS\x01t", "TAGS\x01t\x02"):
            self.get(self.client.send(self.broker, b"x", properties=properties))
        for each in self.get(self.client.pull(self.broker)):
            self.assertEqual(each.properties["SENT_BY"], "tests")
        strange = self.client.send(self.broker, b"x", group="strangers")
        error = self.assertRaises(NoPermission, self.get, strange)
        self.assertIn("strangers may not send", str(error))
        self.assertEqual(self.module.doorkeeper.counts, {"Greetings": 3})

    def test_reservedCodeStopsStart(self) -> None:
        """
        A plugin that would take a code of RocketMQ's keeps the broker from starting.
        """
        self.patch(self.module, "GREET", RequestCode.PULL_MESSAGE)
        cluster = MemoryCluster(plugins=installedPlugins())
        self.addCleanup(cluster.stop)
        error = self.assertRaises(ConfigError, cluster.start)
        self.assertEqual(
            str(error),
            "plugin txrocket.plugins.greeting.Greeter: request code PULL_MESSAGE (11) is"
            " RocketMQ's own",
        )
