# SPDX-License-Identifier: Apache-2.0
"""
A Sphinx extension: docstrings in Twisted's markup, as reStructuredText.

    L{name}, L{text<name>}    a link, if the name leads anywhere from its module
    C{code}  I{text}  B{text}
    @param x:  @ivar x:  @cvar x:  @return:  @raise X:

Blocks after C{::}, lists and tables are the same in both and are left alone.
Interfaces of zope.interface, which autodoc takes for plain values, are listed
with their methods at the end of their module's text.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from textwrap import indent
from typing import TYPE_CHECKING, Any

from zope.interface.interface import InterfaceClass, Method

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Given a name as it stands in L{}, the full name that autodoc knows it by.
Resolve = Callable[[str], str]

_FIELD = re.compile(r"^(\s*)@(param|ivar|cvar|return|raise)\b ?([^:]*):", re.MULTILINE)
_NAMES = {"return": "returns", "raise": "raises"}
_OPEN = re.compile(r"\b([LCIB])\{")
_LINK = re.compile(r"(.*)<([^<>]+)>", re.DOTALL)
# What means something to reStructuredText and nothing in our docstrings.
_SPECIAL = re.compile(r"[*`|\\]|(?<=\w)_(?!\w)")


def convert(docstring: str, resolve: Resolve) -> str:
    """
    A whole docstring.
    """
    return "\n".join(
        text if literal else _inline(_fields(text, resolve), resolve)
        for text, literal in _blocks(docstring.splitlines())
    )


def _blocks(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """
    The text in pieces, each with whether it is literal: lines that are blank or
    indented deeper than the line before them which ends in C{::}.
    """
    block: list[str] = []
    margin = -1
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if margin >= 0 and line.strip() and depth <= margin:
            yield "\n".join(block), True
            block, margin = [], -1
        block.append(line)
        if margin < 0 and line.endswith("::"):
            yield "\n".join(block), False
            block, margin = [], depth
    yield "\n".join(block), margin >= 0


def _fields(text: str, resolve: Resolve) -> str:
    """
    C{@param x:} and its like.  A list of fields stands apart from a paragraph.
    """

    def field(found: re.Match[str]) -> str:
        margin, kind, name = found.groups()
        name = resolve(name) if kind == "raise" else name
        return f"{margin}:{' '.join(filter(None, (_NAMES.get(kind, kind), name)))}:"

    return _FIELD.sub(field, text)


def _inline(text: str, resolve: Resolve) -> str:
    """
    C{L{}}, C{C{}}, C{I{}} and C{B{}}, which may hold braces and run over lines.
    """
    done: list[str] = []
    start = 0
    while found := _OPEN.search(text, start):
        end = _closing(text, found.end())
        done.append(_escape(text[start : found.start()]))
        done.append(_marked(found[1], " ".join(text[found.end() : end].split()), resolve))
        start = end + 1
        # Markup ends before a space or punctuation; an empty escape makes way.
        if text[start : start + 1].isalnum():
            done.append("\\ ")
    done.append(_escape(text[start:]))
    return "".join(done)


def _closing(text: str, start: int) -> int:
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place
    raise ValueError(f"a brace is not closed: {text[start - 2 : start + 30]!r}")


def _marked(kind: str, content: str, resolve: Resolve) -> str:
    if kind == "L":
        link = _LINK.fullmatch(content)
        text, name = link.groups() if link else (content, content)
        return f":py:obj:`{text} <{resolve(name)}>`"
    quote = {"C": "``", "I": "*", "B": "**"}[kind]
    return quote + (content if kind == "C" else _escape(content)) + quote


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


# --- Sphinx ----------------------------------------------------------------


def resolver(thing: object, fullName: str) -> Resolve:
    """
    Finds what a name means where a thing is defined: in its class, then in its
    module.
    """
    module: Any = inspect.getmodule(thing)
    while module is None and fullName:
        module = sys.modules.get(fullName)
        fullName = fullName.rpartition(".")[0]

    def resolve(name: str) -> str:
        first, *rest = name.split(".")
        value = getattr(module, first, None)
        for each in rest:
            value = getattr(value, each, None)
        home = getattr(value, "__module__", None)
        if isinstance(value, InterfaceClass):
            return f"{home}.{value.__name__}"
        if home and value is not None and hasattr(value, "__qualname__"):
            return f"{home}.{value.__qualname__}"
        return name if value is None else f"{module.__name__}.{name}"

    return resolve


def _process(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    resolve = resolver(thing, name)
    converted = convert("\n".join(lines), resolve)
    if what == "module":
        for each in vars(thing).values():
            if isinstance(each, InterfaceClass) and each.__module__ == name:
                converted += _interface(each, resolve)
    lines[:] = converted.splitlines()


def _interface(interface: InterfaceClass, resolve: Resolve) -> str:
    pieces = [_described("class", interface.__name__, interface.getDoc(), resolve)]
    for name, member in interface.namesAndDescriptions():
        kind, signature = "attribute", name
        if isinstance(member, Method):
            kind, signature = "method", name + member.getSignatureString()
        pieces.append(indent(_described(kind, signature, member.getDoc(), resolve), "   "))
    return "".join(pieces)


def _described(kind: str, signature: str, docstring: str, resolve: Resolve) -> str:
    text = indent(convert(inspect.cleandoc(docstring), resolve), "   ")
    return f"\n\n.. py:{kind}:: {signature}\n\n{text}\n"


_OURS = ("txrocket.", "pyspark_rocketmq.")

# How Python shows what is written Int32, Int64 or, of an interface, by its name.
_SHOWN = (
    (re.compile(r"Annotated\[int, msgspec\.Meta\(ge=-2147483648, [^)]*\)\]"), "Int32"),
    (re.compile(r"Annotated\[int, msgspec\.Meta\(ge=-9223372036854775808, [^)]*\)\]"), "Int64"),
    (re.compile(r"<InterfaceClass (?:\w+\.)*(\w+)>"), r"\1"),
)


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    thing: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    for shown, written in _SHOWN:
        signature = signature and shown.sub(written, signature)
        returns = returns and shown.sub(written, returns)
    return signature, returns


def _skip(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    # What namedtuple says about its fields, our own fields say better.
    if (inspect.getdoc(thing) or "").startswith("Alias for field number"):
        return True
    # A name that a package exports is shown in the module that defines it, and only there: else
    # a link by that name has two targets.
    module = app.env.temp_data.get("autodoc:module") or app.env.ref_context.get("py:module")
    home = getattr(thing, "__module__", None)
    isForeign = isinstance(home, str) and home != module and home.startswith(_OURS)
    return True if what == "module" and module and isForeign else None


def setup(app: Sphinx) -> dict[str, Any]:
    """
    Hook into autodoc.
    """
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True}
