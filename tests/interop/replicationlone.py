# SPDX-License-Identifier: Apache-2.0
"""
Weaknesses of 4.9.7's replication that a master without a slave shows.

A script speaks to the master's port for slaves as no slave would, and sends messages
meanwhile.  The finding is the master's answer.
"""

from __future__ import annotations

import time
from pathlib import Path

from twisted.internet.endpoints import connectProtocol

from tests.certificates import identity
from tests.interop.cells import sleep
from tests.interop.replicationfinding import Finding, Script, answerName
from tests.interop.replicationload import sendOne
from tests.interop.replicationpair import Kinds, Pair, until
from tests.interop.replicationwire import Wire, wired
from tests.live.servers import reactor
from txrocket.protocol.codes import ResponseCode
from txrocket.remoting.peers import endpoints
from txrocket.remoting.tls import ClientTLS

__all__ = ["LoneMaster"]

_FILE = 1 << 20

# The seconds after which a master has surely sent heartbeats, which it does every second.
_BEATS = 3.5

_LOST = "the connection was closed"


async def _settled(wire: Wire, seconds: float) -> None:
    """
    Wait until a master has said something of the log or closed, or so many seconds.
    """
    end = reactor.seconds() + seconds
    while reactor.seconds() < end and not wire.isLost:
        if any(size for _, size in wire.frames):
            return
        await sleep(0.1)


class LoneMaster:
    """
    Scripts against a master without a slave.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder = folder
        self.pair = Pair(Kinds(kind, kind, "SYNC_MASTER", "ASYNC_FLUSH"), folder)
        self._master = self.pair.master

    async def start(self) -> None:
        """
        Start the master, with a log of several files.
        """
        await self.pair.startNameServer()
        await self.pair.startMaster(mappedFileSizeCommitLog=_FILE)
        for _ in range(8):
            await sendOne(self._master, "Plain", b"x" * 200_000)
        await until(self._master.logEnd, 10.0, "the log has something")

    @property
    def scripts(self) -> dict[str, Script]:
        """
        In an order in which none spoils the next.
        """
        return {
            "W2": self._silent,
            "W4": self._longer,
            "W6": self._new,
            "W1": self._forged,
            "W5": self._behind,
            "W10": self._guarded,
        }

    async def _send(self) -> tuple[int, float]:
        began = time.monotonic()
        code, _ = await sendOne(self._master, "Plain", b"sent")
        return code, time.monotonic() - began

    async def _silent(self) -> Finding:
        wire = await wired(self._master.port + 1)
        await sleep(0.5)
        code, seconds = await self._send()
        wire.close()
        return Finding(
            code != ResponseCode.SLAVE_NOT_AVAILABLE,
            f"a send is answered {answerName(code)} after {seconds:.1f} s",
        )

    async def _longer(self) -> Finding:
        end = await self._master.logEnd()
        wire = await wired(self._master.port + 1)
        wire.say(end + 5000)
        await _settled(wire, _BEATS)
        found = [offset for offset, _ in wire.frames if offset == end + 5000]
        isLost = wire.isLost
        wire.close()
        seen = f"{len(found)} heartbeats at the slave's own offset, and nothing else"
        return Finding(not isLost, _LOST if isLost else seen)

    async def _new(self) -> Finding:
        wire = await wired(self._master.port + 1)
        wire.say(0)
        await _settled(wire, 10.0)
        first = wire.frames[0][0] if wire.frames else -1
        wire.close()
        return Finding(first != 0, f"the first bytes are those at {first}")

    async def _forged(self) -> Finding:
        wire = await wired(self._master.port + 1)
        wire.say(1 << 40)
        await sleep(0.5)
        first, _ = await self._send()
        wire.close()
        # What was forged may count for those that come later.
        wire = await wired(self._master.port + 1)
        await sleep(0.5)
        second, _ = await self._send()
        wire.close()
        return Finding(
            ResponseCode.SUCCESS in (first, second),
            f"sends are answered {answerName(first)}, and after it has gone {answerName(second)}",
        )

    async def _behind(self) -> Finding:
        await self._master.end()
        oldest = min((self._master.store / "commitlog").glob("0*"))
        oldest.unlink()
        await self.pair.startMaster()
        wire = await wired(self._master.port + 1)
        wire.say(100)
        await _settled(wire, _BEATS)
        frames, isLost = wire.frames, wire.isLost
        wire.close()
        found = [offset for offset, _ in frames]
        seen = f"{len(found)} heartbeats at the slave's own offset, and nothing else"
        isWeak = not isLost and all(each == 100 for each in found)
        if not isWeak and not isLost:
            seen = f"bytes from {found[0]} on"
        return Finding(isWeak, _LOST if isLost else seen)

    async def _guarded(self) -> Finding:
        await self._master.end()
        authority = identity("authority", authority=True)
        trusted, _ = authority.write(str(self._folder), "authority")
        certificate, key = identity("server", authority).write(str(self._folder), "server")
        self._master.system = {
            "tls.server.mode": "enforcing",
            "tls.test.mode.enable": "false",
            "tls.server.certPath": certificate,
            "tls.server.keyPath": key,
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": trusted,
        }
        await self.pair.startMaster()
        if self._master.kind == "ours":
            client = identity("client", authority).write(str(self._folder), "client")
            await self._certified(ClientTLS(True, trusted, *client))
        wire = await wired(self._master.port + 1)
        wire.say(_FILE)
        await _settled(wire, _BEATS)
        count = sum(size for _, size in wire.frames)
        wire.close()
        seen = f"{count} bytes of the log came to a plain connection"
        return Finding(count > 0, seen if count else "nothing came to a plain connection")

    async def _certified(self, tls: ClientTLS) -> None:
        """
        A connection with a certificate gets the log, so what a plain one does not get is
        there to be had.
        """
        connect = endpoints(reactor, tls)

        async def served() -> bool:
            wire: Wire = await connectProtocol(connect(self._master.haAddress), Wire())
            wire.say(_FILE)
            await _settled(wire, _BEATS)
            found = any(size for _, size in wire.frames)
            wire.close()
            return found

        await until(served, 30.0, "a connection with a certificate gets the log")
