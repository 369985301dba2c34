# SPDX-License-Identifier: Apache-2.0
"""
What all threads of this process are about, as a consumer tells an administrator who
asks; C{UtilAll.jstack} of Java's clients::

    MainThread                              TID: 140213 STATE: RUNNABLE
    MainThread                              txrocket.client.stacks.threadStacks(stacks.py:41)
    MainThread                              ...

The innermost call comes first, and after each thread an empty line.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback

__all__ = ["threadStacks"]


def threadStacks() -> str:
    """
    The stacks of all threads.
    """
    threads = {each.ident: each for each in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        name = "" if thread is None else thread.name
        number = ident if thread is None else thread.native_id
        # Python does not tell whether it waits for something.
        lines.append(f"{name:<40}TID: {number} STATE: RUNNABLE\n")
        for each, line in traceback.walk_stack(frame):
            code = each.f_code
            place = f"{os.path.basename(code.co_filename)}:{line}"
            module = each.f_globals.get("__name__", "")
            lines.append(f"{name:<40}{module}.{code.co_qualname}({place})\n")
        lines.append("\n")
    return "".join(lines)
