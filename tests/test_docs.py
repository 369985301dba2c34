# SPDX-License-Identifier: Apache-2.0
"""
Tests for the documentation: what Sphinx itself does not complain about.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import attrs
from pyspark_rocketmq.columns import schema
from pyspark_rocketmq.options import SINK, SOURCE, STORE
from pyspark_rocketmq.write import rowmessages
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import Attribute, Interface

from tests.broker.test_settings import LIMITS as BROKER_LIMITS
from txrocket.broker.settings import SECTIONS
from txrocket.config import Configuration
from txrocket.remoting.remoting import Limits
from txrocket.remoting.settings import BrokerServerSettings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

# Modules that design pages name before they are written, and walks that lead through them.
COMING: set[str] = set()
DRAFTS: set[str] = set()

# A walk has at most this many steps, in at most this many files.
WALK_STEPS = 16
WALK_FILES = 10


def loadExtension(name: str) -> Any:
    """
    A Sphinx extension, which is in no package.
    """
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Extensions import each other from their folder.
    sys.path.insert(0, str(DOCS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


def moduleNames() -> set[str]:
    """
    Every module of txrocket and pyspark_rocketmq.
    """
    return {name for name, path in loadExtension("apipages").modules()}


def isDefined(file: str, name: str) -> bool:
    """
    Whether a module of txrocket defines a function, or a class with a method.
    """
    scope: ast.AST = ast.parse((ROOT / "txrocket" / file).read_text())
    for part in name.split("."):
        found = [
            node
            for node in ast.iter_child_nodes(scope)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == part
        ]
        if not found:
            return False
        scope = found[0]
    return True


class PagesTests(SynchronousTestCase):
    """
    The pages and the code agree.
    """

    def test_everyModuleHasOneApiPage(self) -> None:
        """
        Every module is on exactly one API page.
        """
        modules = []
        for root, package in ((ROOT, "txrocket"), (ROOT / "spark", "pyspark_rocketmq")):
            for path in (root / package).rglob("*.py"):
                parts = path.relative_to(root).with_suffix("").parts
                modules.append(".".join(part for part in parts if part != "__init__"))
        texts = loadExtension("apipages").pages()
        listed = []
        for text in texts.values():
            listed += re.findall(r"automodule:: (\S+)", text)
        self.assertEqual(sorted(listed), sorted(modules))

    def test_exportedNameLeadsToItsModule(self) -> None:
        """
        A name that a package exports is a link to the module that defines it.
        """
        texts = loadExtension("apipages").pages()
        self.assertIn(":py:obj:`Message <txrocket.message.Message>`", texts["txrocket.rst"])
        self.assertIn(
            ":py:obj:`Inspector <txrocket.blocking.inspector.Inspector>`",
            texts["txrocket.blocking.rst"],
        )

    def test_everyPackageStatesItsPurpose(self) -> None:
        """
        The list of packages has each of them with a sentence.
        """
        text = loadExtension("apipages").pages()["packages.inc"]
        named = re.findall(r"``([\w.]+)``\n    \S[^\n]{10,}\.\n", text)
        there = {
            ".".join(path.parent.relative_to(root).parts)
            for root, package in ((ROOT, "txrocket"), (ROOT / "spark", "pyspark_rocketmq"))
            for path in (root / package).rglob("__init__.py")
        }
        self.assertEqual(set(named), there)

    def test_everyConnectionLimitIsInGuide(self) -> None:
        """
        Every limit of a connection is in the guide.
        """
        page = (DOCS / "guide" / "limits.rst").read_text()
        for each in attrs.fields(Limits):
            self.assertIn(f"* - ``{each.name}``", page)

    def test_everyBrokerLimitIsInGuideWithDefault(self) -> None:
        """
        The limits of what clients can make a broker keep are listed with their defaults.
        """
        page = (DOCS / "guide" / "limits.rst").read_text()
        rows = dict(re.findall(r"\* - ``(max\w+)``\n     - ([\d,]+)\n", page))
        ours = {
            each.name: f"{each.default:,}"
            for section in SECTIONS
            for each in attrs.fields(section)
            if each.name in BROKER_LIMITS
        }
        self.assertEqual(len(ours), len(BROKER_LIMITS))
        self.assertEqual({name: rows[name] for name in ours}, ours)

    def test_everyListeningSettingIsInGuideWithDefault(self) -> None:
        """
        Every setting of how a server listens is in the guide, with its default.
        """
        page = (DOCS / "guide" / "configuration.rst").read_text()
        rows = dict(re.findall(r"\* - ``([\w.]+)``\n +- `*([^\n`]+)", page))
        ours = Configuration.read([BrokerServerSettings], (), None, {}).properties()
        self.assertEqual(rows, {**ours, "listenPort": "10911, 9876"})

    def test_everySparkOptionAndColumnIsInGuide(self) -> None:
        """
        Every option and every column of source, sink and store reader is in the guide.
        """
        for page, names in (
            ("spark", (*SOURCE, *SINK, *schema.COLUMNS, *schema.FURTHER, *rowmessages.COLUMNS)),
            ("sparkstore", STORE),
        ):
            text = (DOCS / "guide" / f"{page}.rst").read_text()
            for each in names:
                self.assertIn(f"``{each}``", text)

    def test_everyModuleOfDesignPagesExists(self) -> None:
        """
        The modules that the glossary and the other design pages name exist.
        """
        named = set()
        for path in (DOCS / "design").glob("*.rst"):
            named |= set(
                re.findall(r":py:mod:`((?:txrocket|pyspark_rocketmq)[\w.]*)`", path.read_text())
            )
        self.assertGreater(len(named), 50)
        self.assertEqual(named - moduleNames() - COMING, set())

    def test_everyFileOfDesignPagesExists(self) -> None:
        """
        The files that design pages name as C{package/module.py} exist.
        """
        there = {name.removeprefix("txrocket.") for name in moduleNames() | COMING}
        missing = []
        for path in (DOCS / "design").glob("*.rst"):
            for file in re.findall(r"``(?:txrocket/)?((?:\w+/)+\w+)\.py``", path.read_text()):
                name = file.replace("/", ".").removesuffix(".__init__")
                if name not in there and not (ROOT / f"{file}.py").exists():
                    missing.append(f"{path.name}: {file}.py")
        self.assertEqual(missing, [])

    def test_everyPathOnPagesExists(self) -> None:
        """
        The paths that README, CONTRIBUTING and the pages name exist.
        """
        pages = [ROOT / "README.rst", ROOT / "CONTRIBUTING.rst"]
        pages += [
            path for part in ("guide", "wire", "design") for path in (DOCS / part).glob("*.rst")
        ]
        named = {
            (each, page.name)
            for page in pages
            for each in re.findall(
                r"``((?:txrocket|tests|examples|spark|benchmarks|docs)/[\w/.-]+)``",
                page.read_text(),
            )
        }
        self.assertGreater(len(named), 50)
        missing = [
            (path, page)
            for path, page in named
            if not (ROOT / path).exists() and not path.startswith("docs/_build/")
        ]
        self.assertEqual(missing, [])

    def test_comingModulesDoNotExist(self) -> None:
        """
        A module that exists is not listed as one to come.
        """
        self.assertEqual(COMING & moduleNames(), set(), "remove it from COMING")

    def test_walksAreShortAndTrue(self) -> None:
        """
        Each walk of the page "how a message travels" has at most 16 steps and 10 files, and
        its functions exist.
        """
        page = (DOCS / "design" / "travel.rst").read_text()
        walks = re.split(r"^(.+)\n-+\n", page, flags=re.MULTILINE)[1:]
        titles, texts = walks[::2], walks[1::2]
        self.assertEqual(titles, ["A send", "A pull", "A push consumer"])
        for title, text in zip(titles, texts, strict=True):
            steps = re.findall(r"\* - \d+\n     - ``(\S+)``\n     - ``(\S+)``", text)
            self.assertTrue(0 < len(steps) <= WALK_STEPS, title)
            self.assertLessEqual(len({file for file, _ in steps}), WALK_FILES, title)
            if title not in DRAFTS:
                missing = [step for step in steps if not isDefined(*step)]
                self.assertEqual(missing, [], title)

    def test_everyPageIsInIndex(self) -> None:
        """
        Every page of the guide and of the design is in the table of contents, once.
        """
        index = (DOCS / "index.rst").read_text()
        listed = re.findall(r"^   ((?:guide|design)/\w+)$", index, re.MULTILINE)
        pages = [
            f"{folder}/{path.stem}"
            for folder in ("guide", "design")
            for path in (DOCS / folder).glob("*.rst")
        ]
        self.assertEqual(sorted(listed), sorted(pages))


class JavaClassesTests(SynchronousTestCase):
    """
    The index from Java's classes to our modules.
    """

    def test_docstringNamesClasses(self) -> None:
        """
        Classes that a docstring names as Java's are found, alone and in a row; others are not.
        """
        named = loadExtension("javaclasses").named
        for text, expected in (
            ("Held; Java's C{PullRequestHoldService}.", {"PullRequestHoldService"}),
            ("Java's C{Aa}, C{Bb} (with\nC{Cc}), C{Dd} and C{Ee}.", {"Aa", "Bb", "Cc", "Dd", "Ee"}),
            ("all of them\nC{AdminBrokerProcessor}'s in Java.", {"AdminBrokerProcessor"}),
            ("as RocketMQ's C{MixAll.compress} does", {"MixAll"}),
            ("Java's C{String.hashCode}", set()),
            ("C{ValueError} here, as Java's setting C{brokerName}.", set()),
        ):
            self.assertEqual(named(text), expected, text)

    def test_knownPairsAreFound(self) -> None:
        """
        Classes that an engineer of RocketMQ looks for first lead to their modules.
        """
        index = loadExtension("javaclasses").index()
        for name, module in (
            ("PullRequestHoldService", "txrocket.broker.pull.longpoll"),
            ("ScheduleMessageService", "txrocket.broker.delivery.delaylevels"),
            ("SendMessageProcessor", "txrocket.processors.messages.send.send"),
            ("PullMessageProcessor", "txrocket.processors.messages.pull.pull"),
            ("RouteInfoManager", "txrocket.nameserver.routetable"),
            ("CommitLog", "txrocket.store.log.commitlog"),
            ("ReputMessageService", "txrocket.store.dispatch"),
            ("ProcessQueue", "txrocket.client.consumer.push.processqueue"),
            ("RemotingCommand", "txrocket.protocol.command"),
            ("NettyRemotingAbstract", "txrocket.remoting.protocol"),
        ):
            self.assertIn(module, index[name])

    def test_everyModuleOfIndexExists(self) -> None:
        """
        The pairs that are listed by hand name modules that exist.
        """
        index = loadExtension("javaclasses").index()
        self.assertEqual(
            {each for found in index.values() for each in found} - moduleNames(), set()
        )


class EpytextTests(SynchronousTestCase):
    """
    Twisted's markup as reStructuredText.
    """

    def convert(self, text: str) -> str:
        """
        Convert, with names that all are in C{module}.
        """
        converted: str = loadExtension("epytext").convert(text, lambda name: f"module.{name}")
        return converted

    def test_inlineMarkupHasRoles(self) -> None:
        """
        Links, code and emphasis have their roles; the text of a link may differ
        from its target.
        """
        for text, expected in (
            ("L{x}", ":py:obj:`x <module.x>`"),
            ("L{the x<a.x>}", ":py:obj:`the x <module.a.x>`"),
            ("C{x = 1}", "``x = 1``"),
            ("I{x} B{y}", "*x* **y**"),
        ):
            self.assertEqual(self.convert(text), expected)

    def test_codeMayHoldBraces(self) -> None:
        """
        Code may hold braces, run over lines and be followed by a letter.
        """
        self.assertEqual(self.convert('C{{"a": {}}}'), '``{"a": {}}``')
        self.assertEqual(self.convert("C{a |\n    b}s"), "``a | b``\\ s")
        self.assertRaises(ValueError, self.convert, "C{a")

    def test_fieldsHaveSphinxNames(self) -> None:
        """
        Fields get Sphinx's names, and errors their full ones.
        """
        self.assertEqual(
            self.convert("@param a: b\n@ivar c: d\n@return: e\n@raise F: g"),
            ":param a: b\n:ivar c: d\n:returns: e\n:raises module.F: g",
        )

    def test_specialCharactersAreEscaped(self) -> None:
        """
        Characters that only reStructuredText gives a meaning are escaped.
        """
        self.assertEqual(self.convert("a * b_ `c` |d| e_f"), r"a \* b\_ \`c\` \|d\| e_f")

    def test_literalBlocksStay(self) -> None:
        """
        Blocks after a double colon stay as they are.
        """
        text = "Drawn::\n\n    | C{x} *\n\n      @param\n\nC{y}"
        self.assertEqual(self.convert(text), text.replace("C{y}", "``y``"))

    def test_interfaceIsShownWithMembers(self) -> None:
        """
        An interface is shown with its methods and attributes.
        """

        class IThing(Interface):
            """
            A thing.
            """

            size = Attribute("Its C{size}.")

            def grow(by: int) -> None:
                """
                Become larger.
                """

        text = loadExtension("epytext")._interface(IThing, str)
        self.assertIn(".. py:class:: IThing\n\n   A thing.\n", text)
        self.assertIn("   .. py:attribute:: size\n\n      Its ``size``.\n", text)
        self.assertIn("   .. py:method:: grow(by)\n\n      Become larger.\n", text)
