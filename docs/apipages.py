# SPDX-License-Identifier: Apache-2.0
"""
A Sphinx extension that writes the API pages, one for each package at the top of the tree, and the
list of all packages.  They are written before each build, so that no module can be missing::

    txrocket/store/**.py  -->  docs/api/txrocket.store.rst     an automodule for each module
    **/__init__.py        -->  docs/api/packages.inc           the purpose of each package
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCES = ((ROOT, "txrocket"), (ROOT / "spark", "pyspark_rocketmq"))

_INDEX = """API
===

Every module, from its docstrings. What has no leading underscore is meant to be used. Until version
1.0 a name may still change; ``NEWS.rst`` says so when one does.

.. toctree::
   :maxdepth: 1

"""


def modules() -> Iterator[tuple[str, Path]]:
    """
    The name and the file of every module, in order of their names.
    """
    for root, package in SOURCES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


def exports(path: Path) -> Iterator[tuple[str, str]]:
    """
    The names in a module's C{__all__} that it imports from a module of ours, and their full
    names there.
    """
    tree = ast.parse(path.read_text("utf-8"))
    listed: list[str] = []
    homes = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            strings = (each for each in ast.walk(node.value) if isinstance(each, ast.Constant))
            listed = [str(each.value) for each in strings]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            homes.update({each.asname or each.name: node.module for each in node.names})
    for name in listed:
        if homes.get(name, "").partition(".")[0] in {package for _, package in SOURCES}:
            yield name, f"{homes[name]}.{name}"


def pageOf(name: str) -> str:
    """
    The page of a module: its package at the top of the tree, or the module itself.
    """
    first, _, rest = name.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if rest else first


def pages() -> dict[str, str]:
    """
    File name -> text.
    """
    listed: dict[str, list[str]] = {}
    packages = []
    files = dict(modules())
    for name, path in files.items():
        listed.setdefault(pageOf(name), []).append(name)
        if path.name == "__init__.py":
            packages.append(f"``{name}``\n    {_purpose(path)}\n")
    texts = {
        f"{page}.rst": "\n".join(
            [*_title(page, "="), *(line for name in names for line in _module(name, files[name]))]
        )
        for page, names in listed.items()
    }
    texts["index.rst"] = _INDEX + "".join(f"   {page}\n" for page in listed)
    texts["packages.inc"] = "\n".join(packages)
    return texts


def write(folder: Path) -> None:
    """
    Write the pages and remove those of modules that do not exist any more.  A page that has not
    changed is left alone, so that Sphinx need not read it again.
    """
    folder.mkdir(exist_ok=True)
    texts = pages()
    for path in folder.glob("*.rst"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app: Any) -> dict[str, bool]:
    """
    Called by Sphinx.
    """
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "api"))
    return {"parallel_read_safe": True}


def _purpose(path: Path) -> str:
    """
    The first sentence of a package's docstring.
    """
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    first = text.partition("\n\n")[0].removesuffix("::").replace("\n", " ")
    return first.partition(". ")[0].replace("C{", "``").replace("}", "``").rstrip(".:") + "."


def _title(text: str, line: str) -> list[str]:
    return [f"``{text}``", line * (len(text) + 4), ""]


def _module(name: str, path: Path) -> list[str]:
    exported = ", ".join(f":py:obj:`{short} <{full}>`" for short, full in exports(path))
    lines = [*_title(name, "-"), f".. automodule:: {name}", ""]
    if exported:
        lines += [f"Names of other modules that can be imported from here: {exported}.", ""]
    return lines
