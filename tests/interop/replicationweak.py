# SPDX-License-Identifier: Apache-2.0
"""
Eleven weaknesses of 4.9.7's replication, tried on RocketMQ's brokers and on ours.

Each is a script that does what goes wrong in practice, and tells what it saw::

    one master     W2 W4 W6 W1, then W5 and W10 after a restart
    a pair         W7 W8 W3 W11, and from the beginning W9

RocketMQ's brokers are the control: a script that does not harm them shows nothing about
ours.
"""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from twisted.internet.defer import Deferred, gatherResults

from tests.interop.replicationfinding import Finding, Script
from tests.interop.replicationlone import LoneMaster
from tests.interop.replicationpair import Pair
from tests.interop.replicationtwo import MasterAndSlave

__all__ = ["TITLES", "Weaknesses"]

TITLES = {
    "W1": "A forged acknowledgement counts as a slave's",
    "W2": "A silent connection counts as a slave",
    "W3": "Logs of one length and other content are taken for equal",
    "W4": "A slave that is longer than its master is never told",
    "W5": "A slave behind the master's oldest file waits for ever",
    "W6": "A new slave gets the last file of the log only",
    "W7": "A synchronous send is answered before it is on the slave's disk",
    "W8": "A slave's topics are late, and its offsets go back",
    "W9": "A bit that turns on the way stays turned",
    "W10": "TLS and its certificates do not guard the port for slaves",
    "W11": "Without its master, a slave delivers nothing late until it is restarted",
}


class Weaknesses:
    """
    All scripts on both kinds of brokers.

    @ivar findings: by the weakness and the kind.
    @ivar failures: texts about scripts that failed, and about weaknesses of ours.
    """

    def __init__(
        self, absent: Mapping[str, str], kinds: tuple[str, ...] = ("java", "ours")
    ) -> None:
        self.findings: dict[tuple[str, str], Finding] = {}
        self.failures: list[str] = []
        self._kinds = [each for each in kinds if each not in absent]
        self._folder = Path(tempfile.mkdtemp(prefix="txrocket-weak-"))

    async def run(self) -> None:
        """
        Run all.
        """
        running = [
            Deferred.fromCoroutine(self._all(each, kind))
            for kind in self._kinds
            for each in (LoneMaster, MasterAndSlave)
        ]
        await gatherResults(running)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _all(self, part: type[LoneMaster] | type[MasterAndSlave], kind: str) -> None:
        scripts = part(kind, self._folder / f"{kind}{part.__name__}")
        try:
            await scripts.start()
            for name, script in scripts.scripts.items():
                await self._one(name, kind, script, scripts.pair)
        except Exception:
            self.failures.append(
                f"{kind}{part.__name__}: {traceback.format_exc()}\n{scripts.pair.output}"
            )
        finally:
            if isinstance(scripts, MasterAndSlave):
                await scripts.close()
            await scripts.pair.stop()

    async def _one(self, name: str, kind: str, script: Script, pair: Pair) -> None:
        try:
            found = self.findings[name, kind] = await script()
        except Exception:
            self.failures.append(f"{name}, {kind}: {traceback.format_exc()}\n{pair.output}")
            return
        print(f"{name} {kind} {'weak' if found.isWeak else 'holds'}: {found.seen}", flush=True)
        if found.isWeak and kind == "ours":
            self.failures.append(f"{name}, {kind}: {TITLES[name]}: {found.seen}")
