# SPDX-License-Identifier: Apache-2.0
"""
Imports go down only: the layers of txrocket, as data, and the imports of every
module held against them.

A module belongs to the longest name below that it begins with: C{broker.tap} is
a tap, everything else in C{broker} is the broker.  A package that is new needs
a place in C{ROWS}, and a test says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import txrocket

# From the top down.  A part may import those of lower rows, and itself.
ROWS: tuple[tuple[str, ...], ...] = (
    ("", "testing", "server.embedded", "server.main"),
    ("server.echo", "nameserver.tap", "broker.tap", "admin.commands", "bench", "console"),
    ("server.launch",),
    ("services", "server.options", "plugins", "admin", "blocking", "server.instances"),
    ("processors", "client", "server"),
    # What any client does, whatever carries its bytes.
    ("client.sansio.sendrequest", "client.sansio.pullrequest"),
    ("client.sansio",),
    ("broker", "nameserver"),
    ("store", "remoting"),
    ("filters", "acl", "metrics", "config", "bulk"),
    ("config.propertiesfile",),
    ("protocol",),
    ("message",),
    ("model",),
    ("errors",),
)

# Parts of the client that any client can use, with a reactor or without; the first
# two use the others.
PLAIN = ("client.sansio.sendrequest", "client.sansio.pullrequest", "client.sansio")
BELOW_PLAIN = ("errors", "model", "message", "protocol", "filters", "bulk")

# Parts that may import less of txrocket than their row allows.
ONLY: dict[str, tuple[str, ...]] = {
    "protocol": ("errors", "model", "message"),
    # The layout of records, and nothing of the network.
    "bulk": ("errors", "message", "protocol"),
    # What is in a server is none of its affair: it talks to Java's as well.
    "client": (
        *("errors", "model", "message", "protocol"),
        *("remoting", "filters", "config", *PLAIN),
    ),
    # For processes that have no reactor.
    "blocking": (*BELOW_PLAIN, "acl", "config", *PLAIN),
    **dict.fromkeys(PLAIN[:2], (*BELOW_PLAIN, *PLAIN[2:])),
    **dict.fromkeys(PLAIN[2:], BELOW_PLAIN),
    # Records and batches, Java's hashes, and tables in fastjson's shape: what is in
    # its files, and nothing of the network.
    "store": (
        *("errors", "model", "message", "config", "bulk"),
        *("protocol.record", "protocol.batch", "protocol.javahash", "protocol.fastjson"),
    ),
}

# What reaches out of the process, or differs from one run to the next.  Not
# datetime: the time that it reckons with is an argument.
OUTSIDE = {
    *("asyncio", "concurrent", "multiprocessing", "select", "selectors", "socket", "ssl"),
    *("subprocess", "threading", "twisted", "zope"),
    *("os", "pathlib", "random", "secrets", "sys", "time", "uuid"),
}

# Other packages that a part may not import, by their first name.
FORBIDDEN: dict[str, set[str]] = {
    "protocol": OUTSIDE,
    "message": OUTSIDE,
    "model": OUTSIDE,
    "errors": OUTSIDE,
    **dict.fromkeys(PLAIN, OUTSIDE),
    "blocking": {"asyncio", "twisted", "zope"},
    # Files only: Deferreds, but no network.
    "store": {"asyncio", "select", "selectors", "socket", "ssl"},
}

ROOT = Path(txrocket.__file__).parent


def within(name: str, part: str) -> bool:
    """
    Whether a module lies in a part.
    """
    return name == part or name.startswith(f"{part}.")


def partOf(name: str) -> str | None:
    """
    The part that a module of txrocket, named without that prefix, belongs to.
    """
    if not name:
        return ""
    parts = [each for row in ROWS for each in row if each and within(name, each)]
    return max(parts, key=len, default=None)


def rowOf(part: str) -> int:
    """
    How far down a part is.
    """
    return next(index for index, row in enumerate(ROWS) if part in row)


def importsOf(source: str, package: str) -> Iterator[str]:
    """
    The full names that a module imports, wherever in it.  Of C{from a import b}
    both C{a} and C{a.b} are given, since b may be a module.

    @param package: the package that the module lies in, for relative imports.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: -node.level + 1 or None] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{each.name}" for each in node.names)


def complaint(importer: str, imported: str, modules: set[str]) -> str | None:
    """
    What is wrong with an import, if anything.

    @param importer: a module, without C{txrocket.}.
    @param imported: a full name.
    @param modules: all modules of txrocket, without that prefix.
    """
    own = partOf(importer)
    assert own is not None, f"txrocket.{importer} has no place in ROWS"
    if not within(imported, "txrocket"):
        bad = imported.split(".")[0] in FORBIDDEN.get(own, ())
        return f"{own} must not know {imported}" if bad else None
    name = imported.removeprefix("txrocket").lstrip(".")
    # A name that is no module belongs to the module before it, which is given too.
    if name not in modules or not name or (part := partOf(name)) == own:
        return None
    assert part is not None, f"txrocket.{name} has no place in ROWS"
    if rowOf(part) <= rowOf(own):
        return f"{part} is not below {own}"
    # The package around an allowed module is imported with it.
    allowed = ONLY.get(own)
    if allowed is not None and not any(
        within(name, each) or within(each, name) for each in allowed
    ):
        return f"{own} may only import {', '.join(allowed)}, not {name}"
    return None


def sources() -> dict[str, Path]:
    """
    Every module of txrocket, without that prefix, and its file.
    """
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class LayerTests(SynchronousTestCase):
    """
    The tree as it is.
    """

    def test_importsGoDown(self) -> None:
        """
        No module imports a higher row or another part of its own row, and those
        that may import less import no more.
        """
        modules = sources()
        complaints = []
        count = 0
        for name, path in modules.items():
            package = f"txrocket.{name}".rstrip(".")
            if path.name != "__init__.py":
                package = package.rpartition(".")[0]
            for imported in importsOf(path.read_text("utf-8"), package):
                count += 1
                if said := complaint(name, imported, set(modules)):
                    complaints.append(f"txrocket.{name}: {said}")
        self.assertEqual(complaints, [])
        self.assertGreater(count, 100)

    def test_everyModuleHasAPlace(self) -> None:
        """
        Every module belongs to a row, so that a new package is placed on
        purpose.
        """
        self.assertEqual([name for name in sources() if partOf(name) is None], [])

    def test_rowsAreDisjointAndOrdered(self) -> None:
        """
        Nothing is in two rows, and what is allowed by name lies lower down.
        """
        parts = [each for row in ROWS for each in row]
        self.assertEqual(len(parts), len(set(parts)))
        for part, allowed in ONLY.items():
            for each in allowed:
                lower = partOf(each)
                assert lower is not None
                self.assertGreater(rowOf(lower), rowOf(part))
        self.assertLessEqual(set(FORBIDDEN), set(parts))


class CheckerTests(SynchronousTestCase):
    """
    The rules on imports that this module makes up.
    """

    MODULES = {
        *("", "errors", "model", "protocol", "protocol.record", "protocol.codes"),
        *("remoting", "remoting.remoting", "store", "store.index"),
        *("broker", "broker.tap", "services"),
        *("nameserver", "nameserver.routetable", "blocking", "blocking.client"),
    }

    def test_forbiddenImportIsFound(self) -> None:
        """
        An import upward, sideways, beyond what is allowed by name, or out of the
        process is found.
        """
        for importer, imported in (
            ("protocol.codes", "txrocket.remoting.remoting"),
            ("errors", "txrocket.model"),
            ("remoting.remoting", "txrocket.store.index"),
            ("broker", "txrocket.nameserver.routetable"),
            ("broker", "txrocket.broker.tap"),
            ("store.index", "txrocket.protocol.codes"),
            ("protocol.codes", "twisted.internet.defer"),
            ("protocol.codes", "time"),
            ("model", "os.path"),
            ("store", "socket"),
            ("blocking.client", "twisted.internet"),
            ("blocking.client", "txrocket.remoting.remoting"),
        ):
            self.assertIsNotNone(complaint(importer, imported, self.MODULES), imported)

    def test_downwardImportIsAllowed(self) -> None:
        """
        Imports downward, within a part and of a module's names are right.
        """
        for importer, imported in (
            ("remoting.remoting", "txrocket.protocol.codes"),
            ("remoting.remoting", "txrocket.protocol.codes.RequestCode"),
            ("remoting.remoting", "txrocket.remoting"),
            ("remoting.remoting", "twisted.internet.defer"),
            ("broker.tap", "txrocket.services"),
            ("broker.tap", "txrocket.broker"),
            ("store.index", "txrocket.protocol.record"),
            ("protocol.codes", "txrocket"),
            ("protocol.codes", "struct"),
        ):
            self.assertIsNone(complaint(importer, imported, self.MODULES), imported)

    def test_everyFormOfImportIsFound(self) -> None:
        """
        Imports are found in functions and under conditions, relative ones too.
        """
        source = (
            "import a, b.c as d\n"
            "def f():\n from e.f import g, h\n"
            "if 1:\n from . import i\n from .j import k\n from ..l import m\n"
        )
        self.assertEqual(
            sorted(importsOf(source, "p.q")),
            [
                "a",
                "b.c",
                "e.f",
                "e.f.g",
                "e.f.h",
                "p.l",
                "p.l.m",
                "p.q",
                "p.q.i",
                "p.q.j",
                "p.q.j.k",
            ],
        )
