# SPDX-License-Identifier: Apache-2.0
"""
Has Python load another build of the compiled module than the package's own.

Python imports a module of this name when it starts, so that it also holds for the programs that
a test starts.  C{TXROCKET_SANITIZED} in the environment is the path of the build.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType


class SanitizedFinder:
    """
    Finds the helper in the build.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """
        As Python asks of what is in C{sys.meta_path}.
        """
        if name != "txrocket.bulk._compiled":
            return None
        return spec_from_file_location(name, os.environ["TXROCKET_SANITIZED"])


if os.environ.get("TXROCKET_SANITIZED"):
    sys.meta_path.insert(0, SanitizedFinder)
