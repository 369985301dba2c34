# SPDX-License-Identifier: Apache-2.0
"""
The compiled helper, where there is one.

What it offers is written in Python as well, next to where it is used, and a test holds
the two equal.  Without a C compiler the package is installed without it, and only
slower; C{TXROCKET_PURE=1} in the environment has it left alone.
"""

from __future__ import annotations

import os
from contextlib import suppress
from types import ModuleType

__all__ = ["speed"]

speed: ModuleType | None = None

if not os.environ.get("TXROCKET_PURE"):
    with suppress(ImportError):
        from txrocket import _speed as speed
