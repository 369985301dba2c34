# SPDX-License-Identifier: Apache-2.0
"""
Tests for the documentation: what Sphinx itself does not complain about.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import attrs
from pyspark_rocketmq import messages, schema
from pyspark_rocketmq.options import SINK, SOURCE, STORE
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import Attribute, Interface

from tests.broker.test_settings import LIMITS as BROKER_LIMITS
from txrocket.broker.settings import SECTIONS
from txrocket.config import Configuration
from txrocket.remoting.node import Limits
from txrocket.remoting.settings import BrokerServerSettings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def loadEpytext() -> Any:
    """
    The Sphinx extension, which is in no package.
    """
    spec = importlib.util.spec_from_file_location("epytext", DOCS / "epytext.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PagesTests(SynchronousTestCase):
    """
    The pages and the code agree.
    """

    def test_modules(self) -> None:
        """
        Every module is on exactly one API page.
        """
        modules = []
        for root, package in (
            (ROOT, "txrocket"),
            (ROOT / "spark", "pyspark_rocketmq"),
            (ROOT / "spark", "pyspark_rocketmq_store"),
        ):
            for path in (root / package).rglob("*.py"):
                parts = path.relative_to(root).with_suffix("").parts
                modules.append(".".join(part for part in parts if part != "__init__"))
        listed = []
        for page in (DOCS / "api").glob("*.rst"):
            listed += re.findall(r"automodule:: (\S+)", page.read_text())
        self.assertEqual(sorted(listed), sorted(modules))

    def test_limits(self) -> None:
        """
        Every limit of a connection is in the guide.
        """
        page = (DOCS / "guide" / "limits.rst").read_text()
        for each in attrs.fields(Limits):
            self.assertIn(f"* - ``{each.name}``", page)

    def test_brokerLimits(self) -> None:
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

    def test_listening(self) -> None:
        """
        Every setting of how a server listens is in the guide, with its default.
        """
        page = (DOCS / "guide" / "configuration.rst").read_text()
        rows = dict(re.findall(r"\* - ``([\w.]+)``\n +- `*([^\n`]+)", page))
        ours = Configuration.read([BrokerServerSettings], (), None, {}).properties()
        self.assertEqual(rows, {**ours, "listenPort": "10911, 9876"})

    def test_tree(self) -> None:
        """
        The page about the tree names every module, and none that is not there.
        """
        page = (DOCS / "design" / "tree.rst").read_text()
        named = set(re.findall(r"\b(\w+\.py)\b", page))
        there = {
            path.name
            for folder in ("txrocket", "spark/pyspark_rocketmq")
            for path in (ROOT / folder).rglob("*.py")
        }
        self.assertEqual(named, there - {"__init__.py"})

    def test_spark(self) -> None:
        """
        Every option and every column of source, sink and store reader is in the guide.
        """
        for page, names in (
            ("spark", (*SOURCE, *SINK, *schema.COLUMNS, *schema.FURTHER, *messages.COLUMNS)),
            ("sparkstore", STORE),
        ):
            text = (DOCS / "guide" / f"{page}.rst").read_text()
            for each in names:
                self.assertIn(f"``{each}``", text)


class EpytextTests(SynchronousTestCase):
    """
    Twisted's markup as reStructuredText.
    """

    def convert(self, text: str) -> str:
        """
        Convert, with names that all are in C{module}.
        """
        converted: str = loadEpytext().convert(text, lambda name: f"module.{name}")
        return converted

    def test_inline(self) -> None:
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

    def test_braces(self) -> None:
        """
        Code may hold braces, run over lines and be followed by a letter.
        """
        self.assertEqual(self.convert('C{{"a": {}}}'), '``{"a": {}}``')
        self.assertEqual(self.convert("C{a |\n    b}s"), "``a | b``\\ s")
        self.assertRaises(ValueError, self.convert, "C{a")

    def test_fields(self) -> None:
        """
        Fields get Sphinx's names, and errors their full ones.
        """
        self.assertEqual(
            self.convert("@param a: b\n@ivar c: d\n@return: e\n@raise F: g"),
            ":param a: b\n:ivar c: d\n:returns: e\n:raises module.F: g",
        )

    def test_special(self) -> None:
        """
        What only reStructuredText gives a meaning is taken for itself.
        """
        self.assertEqual(self.convert("a * b_ `c` |d| e_f"), r"a \* b\_ \`c\` \|d\| e_f")

    def test_literal(self) -> None:
        """
        Blocks after a double colon stay as they are.
        """
        text = "Drawn::\n\n    | C{x} *\n\n      @param\n\nC{y}"
        self.assertEqual(self.convert(text), text.replace("C{y}", "``y``"))

    def test_interface(self) -> None:
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

        text = loadEpytext()._interface(IThing, str)
        self.assertIn(".. py:class:: IThing\n\n   A thing.\n", text)
        self.assertIn("   .. py:attribute:: size\n\n      Its ``size``.\n", text)
        self.assertIn("   .. py:method:: grow(by)\n\n      Become larger.\n", text)
