# SPDX-License-Identifier: Apache-2.0
"""
The command C{txrocket}, which runs a tool by its name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from txrocket import __version__

__all__ = ["main"]

# By name, the module of a tool, which has a main(arguments) that returns the exit code, and
# its description.  The module is imported only to run the tool.
_TOOLS: Final = {
    "ha": ("txrocket.admin.commands.ha", "look at masters and slaves, and change their roles"),
    "bench": ("txrocket.bench.command", "measure a cluster by sending and receiving messages"),
    "resend": (
        "txrocket.blocking.commands.resend",
        "send messages again that were cut off the log of a broker",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run a tool.

    @return: its exit code.
    """
    width = max(map(len, _TOOLS)) + 2
    parser = argparse.ArgumentParser(
        prog="txrocket",
        description="Tools for Apache RocketMQ and txrocket.",
        epilog="\n".join(
            ["tools:", *(f"  {name:{width}}{about}" for name, (_, about) in _TOOLS.items())]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"txrocket {__version__}")
    parser.add_argument("tool", choices=_TOOLS, help="txrocket TOOL --help says more")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    argv = sys.argv[1:] if arguments is None else list(arguments)
    # All arguments behind the tool's name belong to the tool, --help included.
    tool = parser.parse_args(argv[:1]).tool
    run: Callable[[Sequence[str]], int] = import_module(_TOOLS[tool][0]).main
    return run(argv[1:])
