# SPDX-License-Identifier: Apache-2.0
"""
A time of day that a test sets, for processes that it starts.

A preloaded library adds a number of seconds to the time of day, and to no other clock.  The
number is in a file that the processes have mapped, so that they see a change at once::

    test --> shift file --mmap--> clock_gettime(CLOCK_REALTIME), gettimeofday, time
                                  clock_gettime(CLOCK_MONOTONIC) as ever
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

from twisted.trial.unittest import SkipTest

__all__ = ["WallClock"]

_SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WALL_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        shift = found;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *shift;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
"""

# The seconds that compiling, or starting Python, may take on a busy machine.
_PATIENCE = 120.0


class WallClock:
    """
    The time of day of some processes.

    @ivar variables: what their environment needs.
    """

    def __init__(self, folder: Path) -> None:
        """
        @param folder: where to build the library.
        @raise SkipTest: if that is not possible here.
        """
        compiler = shutil.which("cc")
        if compiler is None:
            raise SkipTest("there is no C compiler, cc, to build a clock with that can be set")
        source, library = folder / "wallclock.c", folder / "wallclock.so"
        source.write_text(_SOURCE)
        built = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
        if built.returncode:
            raise SkipTest(f"no clock that can be set is built here: {built.stderr}")
        self._path = folder / "shift"
        self._seconds = 0
        self.shift(0)
        self.variables = {"LD_PRELOAD": str(library), "WALL_SHIFT": str(self._path)}
        self._try()

    def shift(self, seconds: int) -> None:
        """
        Set the time of day ahead, or back if it is below zero.
        """
        self._seconds += seconds
        data = struct.pack("=q", self._seconds)
        # The file must not become shorter: processes have it in memory.
        with open(self._path, "r+b" if self._path.exists() else "wb") as file:
            file.write(data)

    def _try(self) -> None:
        self.shift(-3600)
        shown = subprocess.run(
            [sys.executable, "-c", "import time; print(time.time())"],
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        ).stdout
        self.shift(3600)
        if not shown or time.time() - float(shown) < 3000:
            raise SkipTest("LD_PRELOAD does not change the time of day of Python here")
