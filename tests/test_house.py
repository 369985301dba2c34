# SPDX-License-Identifier: Apache-2.0
"""
The house's rules on size and names, held against every module of txrocket and pyspark_rocketmq.

Each rule has a list of exceptions, which only shrinks: a new exception fails a test, and so
does one that is not needed any more.  After a merge, print the lists as they are now, or write
them into this file, and look at the difference::

    python -m tests.test_house             print
    python -m tests.test_house --write     write

    module    at most 400 lines, not named by a participle or gerund
    package   at most 12 modules
    class     a public name exists once; a constructor has at most six parameters
    function  at most 60 lines
    bulk      only txrocket.bulk imports the compiled implementation
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from twisted.trial.unittest import SynchronousTestCase

MODULE_LINES = 400
PACKAGE_MODULES = 12
PARAMETERS = 6
FUNCTION_LINES = 60

# Class names that may exist several times: twistd looks for a plugin's options under this name.
REPEATABLE = frozenset({"Options"})

# Words of RocketMQ, of Twisted and of our public face that end as participles do.
WORDS = frozenset({"blocking", "embedded", "remoting", "testing"})

# The package that chooses between Python and the compiled implementation.
CHOOSER = "txrocket.bulk"

# The names under which the compiled implementation is imported.
COMPILED = frozenset({"_compiled", "_speed", "speed"})

# Exceptions: begin.
REPEATED_CLASSES: frozenset[str] = frozenset()
LONG_MODULES: frozenset[str] = frozenset(
    {
        "txrocket.bulk.interface",
    }
)
LARGE_PACKAGES: frozenset[str] = frozenset(
    {
        "txrocket.remoting",
    }
)
PARTICIPLE_MODULES: frozenset[str] = frozenset(
    {
        "pyspark_rocketmq.read.planning",
    }
)
WIDE_CONSTRUCTORS: frozenset[str] = frozenset(
    {
        "txrocket.broker.registration.NameServerRegistration",
        "txrocket.client.cluster.Cluster",
        "txrocket.client.consumer.pull.litepull.LitePullConsumer",
        "txrocket.client.consumer.pull.pullconsumer.PullConsumer",
        "txrocket.client.consumer.push.orderly.Orderly",
        "txrocket.client.consumer.push.pushconsumer.PushConsumer",
        "txrocket.client.producer.producer.Producer",
        "txrocket.client.producer.sendcontext.Sending",
        "txrocket.message.Message",
        "txrocket.nameserver.service.NameServer",
        "txrocket.store.messagestore.MessageStore",
        "txrocket.testing.realcluster.RealCluster",
    }
)
LONG_FUNCTIONS: frozenset[str] = frozenset(
    {
        "txrocket.store.messagestore.MessageStore.__init__",
    }
)
COMPILED_IMPORTS: frozenset[str] = frozenset()
# Exceptions: end.

ROOT = Path(__file__).parent.parent
SOURCES = ((ROOT, "txrocket"), (ROOT / "spark", "pyspark_rocketmq"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """
    A module's text and tree.

    @ivar isPackage: whether it is an C{__init__.py}.
    """

    name: str
    text: str
    tree: ast.Module
    isPackage: bool = False

    @property
    def package(self) -> str:
        """
        The package that holds the module; a package holds its own C{__init__}.
        """
        return self.name if self.isPackage else self.name.rpartition(".")[0]


@cache
def readModules() -> list[Module]:
    """
    Every module of the tree.
    """
    found = []
    for root, package in SOURCES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            isPackage = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if isPackage else parts)
            text = path.read_text("utf-8")
            found.append(Module(name, text, ast.parse(text), isPackage))
    return found


def functionsOf(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """
    Every function with its name inside the module: C{Class.method}, C{outer.inner}.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from functionsOf(node, f"{name}.")
        else:
            yield from functionsOf(node, prefix)


def repeatedClasses(modules: list[Module]) -> set[str]:
    """
    Public class names that several modules define.
    """
    names = Counter(
        name
        for module in modules
        for name in {node.name for node in module.tree.body if isinstance(node, ast.ClassDef)}
        if not name.startswith("_")
    )
    return {name for name, count in names.items() if count > 1} - REPEATABLE


def longModules(modules: list[Module]) -> set[str]:
    """
    Modules of more than L{MODULE_LINES} lines.
    """
    return {each.name for each in modules if len(each.text.splitlines()) > MODULE_LINES}


def largePackages(modules: list[Module]) -> set[str]:
    """
    Packages of more than L{PACKAGE_MODULES} modules, C{__init__} and subpackages not counted.
    """
    counts = Counter(each.package for each in modules if not each.isPackage)
    return {name for name, count in counts.items() if count > PACKAGE_MODULES}


def participleModules(modules: list[Module]) -> set[str]:
    """
    Modules whose own name ends as participles and gerunds do.
    """
    return {
        each.name
        for each in modules
        if each.name.endswith(("ing", "ed")) and each.name.rpartition(".")[2] not in WORDS
    }


def wideConstructors(modules: list[Module]) -> set[str]:
    """
    Constructors of more than L{PARAMETERS} parameters beside C{self}.
    """
    found = set()
    for module in modules:
        for name, node in functionsOf(module.tree):
            given = node.args
            count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
            count += (given.vararg is not None) + (given.kwarg is not None)
            if node.name == "__init__" and count - 1 > PARAMETERS:
                found.add(f"{module.name}.{name.removesuffix('.__init__')}")
    return found


def longFunctions(modules: list[Module]) -> set[str]:
    """
    Functions of more than L{FUNCTION_LINES} lines, from C{def} to their last line.
    """
    found = set()
    for module in modules:
        for name, node in functionsOf(module.tree):
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno + 1 > FUNCTION_LINES:
                found.add(f"{module.name}.{name}")
    return found


def compiledImports(modules: list[Module]) -> set[str]:
    """
    Modules that import the compiled implementation themselves.
    """
    found = set()
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                names = {part for each in node.names for part in each.name.split(".")}
            elif isinstance(node, ast.ImportFrom):
                names = {each.name for each in node.names} | {*(node.module or "").split(".")}
            else:
                continue
            if names & COMPILED and module.name != CHOOSER:
                found.add(module.name)
    return found


class Rule(NamedTuple):
    """
    A rule, and the exceptions from it that are known.

    @ivar name: the name of the list at the top of this file.
    @ivar find: what breaks the rule now.
    """

    name: str
    find: Callable[[list[Module]], set[str]]
    known: frozenset[str]


def rules() -> list[Rule]:
    """
    All rules.
    """
    return [
        Rule("REPEATED_CLASSES", repeatedClasses, REPEATED_CLASSES),
        Rule("LONG_MODULES", longModules, LONG_MODULES),
        Rule("LARGE_PACKAGES", largePackages, LARGE_PACKAGES),
        Rule("PARTICIPLE_MODULES", participleModules, PARTICIPLE_MODULES),
        Rule("WIDE_CONSTRUCTORS", wideConstructors, WIDE_CONSTRUCTORS),
        Rule("LONG_FUNCTIONS", longFunctions, LONG_FUNCTIONS),
        Rule("COMPILED_IMPORTS", compiledImports, COMPILED_IMPORTS),
    ]


def listing() -> str:
    """
    The lists of exceptions as they would have to be now, as Python.
    """
    modules = readModules()
    parts = []
    for rule in rules():
        found = sorted(rule.find(modules))
        if found:
            lines = "".join(f'        "{each}",\n' for each in found)
            parts.append(f"{rule.name}: frozenset[str] = frozenset(\n    {{\n{lines}    }}\n)\n")
        else:
            parts.append(f"{rule.name}: frozenset[str] = frozenset()\n")
    return "".join(parts)


class HouseTests(SynchronousTestCase):
    """
    The tree as it is.
    """

    def check(self, name: str) -> None:
        """
        Fail with advice if a rule's exceptions are not exactly the known ones.
        """
        (rule,) = (each for each in rules() if each.name == name)
        found = rule.find(readModules())
        advice = [
            *(f"{each} breaks the rule of {name}" for each in sorted(found - rule.known)),
            *(
                f"{each} keeps the rule now: remove it from {name} in tests/test_house.py"
                for each in sorted(rule.known - found)
            ),
        ]
        if advice:
            self.fail("\n".join([f"{name}: {rule.find.__doc__}", *advice]))

    def test_publicClassNameExistsOnce(self) -> None:
        """
        No public class name is defined twice.
        """
        self.check("REPEATED_CLASSES")

    def test_moduleIsShort(self) -> None:
        """
        A module has at most 400 lines.
        """
        self.check("LONG_MODULES")

    def test_packageIsSmall(self) -> None:
        """
        A package has at most 12 modules.
        """
        self.check("LARGE_PACKAGES")

    def test_moduleNameIsNoun(self) -> None:
        """
        No module is named by a participle or a gerund.
        """
        self.check("PARTICIPLE_MODULES")

    def test_constructorIsNarrow(self) -> None:
        """
        A constructor has at most six parameters.
        """
        self.check("WIDE_CONSTRUCTORS")

    def test_functionIsShort(self) -> None:
        """
        A function has at most 60 lines.
        """
        self.check("LONG_FUNCTIONS")

    def test_onlyBulkImportsCompiled(self) -> None:
        """
        No module but C{txrocket.bulk} imports the compiled implementation.
        """
        self.check("COMPILED_IMPORTS")


class RuleTests(SynchronousTestCase):
    """
    The rules on modules that do not exist.
    """

    def module(self, name: str, text: str = "", isPackage: bool = False) -> Module:
        """
        A module of that text.
        """
        return Module(name, text, ast.parse(text), isPackage)

    def test_repeatedClassIsFound(self) -> None:
        """
        A public class in two modules is found; a private, a nested and a repeatable one is not.
        """
        text = "class A: pass\nclass _B: pass\nclass C:\n class D: pass\nclass Options: pass\n"
        other = text.replace("class C", "class E")
        modules = [self.module("x", text), self.module("y", other)]
        self.assertEqual(repeatedClasses(modules), {"A"})

    def test_longModuleIsFound(self) -> None:
        """
        A module of 401 lines is found, one of 400 is not.
        """
        modules = [self.module("x", "1\n" * 400), self.module("y", "1\n" * 401)]
        self.assertEqual(longModules(modules), {"y"})

    def test_largePackageIsFound(self) -> None:
        """
        A package of 13 modules is found; its subpackages do not count.
        """
        twelve = [self.module(f"x.m{n}") for n in range(12)]
        twelve += [self.module("x", isPackage=True), self.module("x.y", isPackage=True)]
        self.assertEqual(largePackages(twelve), set())
        self.assertEqual(largePackages([*twelve, self.module("x.more")]), {"x"})

    def test_participleIsFound(self) -> None:
        """
        A participle or gerund is found at the end of a module's name, our own words are not.
        """
        names = ("x.pulled", "x.pulling", "x.remoting", "remoting.send", "x.shed")
        found = participleModules([self.module(each) for each in names])
        self.assertEqual(found, {"x.pulled", "x.pulling", "x.shed"})

    def test_wideConstructorIsFound(self) -> None:
        """
        A constructor of seven parameters is found, however they are passed; C{self} is not one.
        """
        text = (
            "class A:\n def __init__(self, a, b, c, d, e, f): pass\n"
            "class B:\n def __init__(self, a, b, /, c, d, *e, f, **g): pass\n"
            "def wide(a, b, c, d, e, f, g): pass\n"
        )
        self.assertEqual(wideConstructors([self.module("x", text)]), {"x.B"})

    def test_longFunctionIsFound(self) -> None:
        """
        A function of 61 lines is found where it stands, and so is the one around it.
        """
        body = "  1\n" * 59
        text = f"class A:\n def f(self):\n{body} def g(self):\n{body}  1\n"
        inner = f"if 1:\n def h():\n  def i():\n{body.replace('  ', '   ')}   1\n"
        modules = [self.module("x", text), self.module("y", inner)]
        self.assertEqual(longFunctions(modules), {"x.A.g", "y.h", "y.h.i"})

    def test_compiledImportIsFound(self) -> None:
        """
        Each form of import is found, but for the one in C{txrocket.bulk}.
        """
        texts = {
            "a": "import txrocket._speed",
            "b": "from txrocket.compiled import speed",
            "c": "def f():\n from txrocket.bulk._compiled import g",
            "d": "from . import _compiled",
            "e": "from txrocket import bulk",
            CHOOSER: "from . import _compiled",
        }
        modules = [self.module(name, text) for name, text in texts.items()]
        self.assertEqual(compiledImports(modules), {"a", "b", "c", "d"})

    def test_uselessExceptionIsRefused(self) -> None:
        """
        An exception that is not needed any more fails with the advice to remove it.
        """
        self.patch(sys.modules[__name__], "LARGE_PACKAGES", frozenset({"txrocket.gone"}))
        self.patch(sys.modules[__name__], "readModules", list)
        caught = self.assertRaises(self.failureException, self.check)
        self.assertIn("remove it from LARGE_PACKAGES", str(caught))

    def check(self) -> None:
        """
        Check one rule as the tests of the tree do.
        """
        HouseTests().check("LARGE_PACKAGES")


def main(arguments: list[str]) -> None:
    """
    Print the lists, or write them between the two comments at the top of this file.
    """
    if "--write" not in arguments:
        print(listing(), end="")
        return
    path = Path(__file__)
    text = path.read_text("utf-8")
    begin, end = (f"# Exceptions: {each}.\n" for each in ("begin", "end"))
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    path.write_text(f"{before}{begin}{listing()}{end}{after}", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
