# SPDX-License-Identifier: Apache-2.0
"""
A server in a process of its own, under bad and good clients at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet import reactor as theReactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults, inlineCallbacks
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.captures import captures
from tests.remoting.doubles import frame
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.remoting import Remoting
from txrocket.remoting.server import IDLE_TIMEOUT

reactor: Any = theReactor

# Any will do; one that is fixed makes a failure come again.
SEED = 497

FRAMES = 10_000
CONNECTIONS_AT_A_TIME = 50

# A server stops listening to a connection at its first fault, so each broken
# frame has a connection of its own, with whole frames around it.  8935 of them
# break the protocol, and the others only say something else; on a busy machine
# a few are cut off before they are read.
FAULTS = 8_500

# Clients that ask for 16 MiB each and never read a byte of it.
SLOTHS = 8
SLOTH_ASKS = 64
SLOTH_BODY = 256 * 1024

# How much the server may grow.  It was measured to grow by 8 or 9 MiB; without
# back-pressure, by 137.
MEMORY_BOUND = 32 * 1024 * 1024


def mutated(frame: bytes, chance: Random) -> bytes:
    """
    A frame with one to three things wrong with it.
    """
    data = bytearray(frame)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0:  # flip bits, more often in the header than in the body
                for _ in range(chance.randint(1, 8)):
                    if data:
                        data[chance.randrange(min(len(data), 300))] ^= 1 << chance.randrange(8)
            case 1:  # insert
                data[at:at] = chance.randbytes(chance.randint(1, 40))
            case 2:  # delete
                del data[at : at + chance.randint(1, 40)]
            case 3:  # truncate
                del data[at:]
            case 4:  # another length
                length = chance.choice([-1, 0, 3, 4, 0x7FFFFFFF, 0xFFFFFF, len(data), at])
                data[:4] = (length & 0xFFFFFFFF).to_bytes(4, "big")
            case 5:  # another header length, another form
                data[4:8] = chance.choice([0, at, 0xFFFFFF, 0x1000000 | at, 0xFF000000]).to_bytes(
                    4, "big"
                )
            case _:  # repeat a part
                data[at:at] = data[at // 2 : at]
    return bytes(data)


def mutants(chance: Random) -> Iterator[bytes]:
    """
    L{FRAMES} mutated frames.
    """
    originals = [each.frame for each in captures()]
    for _ in range(FRAMES):
        yield mutated(chance.choice(originals), chance)


def residentMemory(pid: int) -> int:
    """
    How much memory a process holds, in bytes.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(pid)])) * 1024
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, status
    return int(found[1]) * 1024


class Server(ProcessProtocol):
    """
    C{twistd rocket-echo}.

    @ivar port: a Deferred of the port it listens on, once it does.
    @ivar ended: a Deferred that fires when it has ended.
    """

    transport: Any

    def __init__(self) -> None:
        self.port: Deferred[int] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self._line = b""
        self.faults: list[bytes] = []
        self.warnings = 0

    def outReceived(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if b"broke the protocol" in line:
                self.warnings += 1
            if b"Traceback" in line or b"Unhandled" in line or b"failed" in line:
                self.faults.append(line)
            starting = re.search(rb"RemotingServerFactory starting on (\d+)", line)
            if starting is not None:
                self.port.callback(int(starting[1]))

    errReceived = outReceived

    def processEnded(self, reason: Failure) -> None:
        if not self.port.called:
            self.port.errback(reason)
        self.ended.callback(None)

    @inlineCallbacks
    def stop(self) -> Generator[Any, Any, None]:
        """
        End the process, by force if it does not end in time.
        """
        if not self.ended.called:
            self._signal("TERM")
            killing = reactor.callLater(60, self._signal, "KILL")
            yield self.ended
            if killing.active():
                killing.cancel()

    def _signal(self, name: str) -> None:
        with contextlib.suppress(ProcessExitedAlready):
            self.transport.signalProcess(name)


class Client(Protocol):
    """
    A bad client.

    @ivar lost: a Deferred that fires when its connection is gone.
    @ivar lasted: after how many seconds that was; for ever, while it is there.
    """

    transport: Any

    def __init__(self, *, reads: bool = True) -> None:
        self.reads = reads
        self.lost: Deferred[None] = Deferred()
        self.lasted = float("inf")
        self._began = reactor.seconds()

    def connectionMade(self) -> None:
        if not self.reads:
            self.transport.pauseProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lasted = reactor.seconds() - self._began
        self.lost.callback(None)


class MutationTests(SynchronousTestCase):
    """
    The bad frames themselves.
    """

    def test_reproducible(self) -> None:
        """
        The same seed makes the same frames, nearly all of them unlike any
        that was captured.
        """
        first, second = list(mutants(Random(SEED))), list(mutants(Random(SEED)))
        self.assertEqual(first, second)
        self.assertEqual(len(first), FRAMES)
        originals = {each.frame for each in captures()}
        self.assertLess(sum(each in originals for each in first), FRAMES // 50)


class LiveTests(TestCase):
    """
    The server process.
    """

    timeout = 300

    @inlineCallbacks
    def setUp(self) -> Any:  # type: ignore[override]
        self.server = Server()
        twistd = Path(sys.executable).with_name("twistd")
        folder = self.mktemp()
        Path(folder).mkdir()
        process = reactor.spawnProcess(
            self.server,
            sys.executable,
            [
                *(sys.executable, str(twistd), "--nodaemon", "--pidfile=", "--logfile=-"),
                *("rocket-echo", "--listen", "tcp:0:interface=127.0.0.1"),
            ],
            env=os.environ,
            path=folder,
        )
        self.addCleanup(self.server.stop)
        self.pid = process.pid
        self.port = yield self.server.port
        self.address = f"127.0.0.1:{self.port}"
        self.chance = Random(SEED)
        self.answered = 0
        self.attacking = True

    def client(self, *, reads: bool = True) -> Deferred[Client]:
        """
        Connect a bad client.
        """
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port)
        connected: Deferred[Client] = connectProtocol(endpoint, Client(reads=reads))
        return connected

    @inlineCallbacks
    def ask(self, peers: Peers, number: int) -> Generator[Any, Any, None]:
        """
        One request of a good client, and its answer.
        """
        request = requestCommand(number % 400, body=b"%d" % number * (number % 100))
        request.extFields["number"] = str(number)
        request.serializeType = number % 2
        answer: RemotingCommand = yield peers.request(self.address, request, 60)
        self.assertEqual(
            (answer.code, answer.extFields, answer.body),
            (0, {"number": str(number)}, request.body),
        )
        self.answered += 1

    @inlineCallbacks
    def behave(self, peers: Peers, start: int) -> Generator[Any, Any, None]:
        """
        A good client, while others misbehave.
        """
        number = start
        while self.attacking:
            yield self.ask(peers, number)
            number += 1
            yield deferLater(reactor, 0.002)

    @inlineCallbacks
    def misbehave(self, mutant: bytes, manner: int) -> Generator[Any, Any, None]:
        """
        A bad client: sends a broken frame among whole ones, and leaves somehow.
        """
        client = yield self.client(reads=manner % 5 != 0)
        whole = self.whole[manner % len(self.whole)]
        if manner % 2:
            client.transport.write(whole)
        if manner % 3 == 0:
            # In two parts, so that the first is a read of its own.
            middle = len(mutant) // 2
            client.transport.write(mutant[:middle])
            yield deferLater(reactor, 0)
            mutant = mutant[middle:]
        # A third leaves in the middle of the next frame.
        client.transport.write(mutant + (whole[: len(whole) // 2] if manner % 3 == 1 else whole))
        # Time for the server to answer or to close.
        yield deferLater(reactor, 0.01)
        if manner % 7 == 0:
            client.transport.abortConnection()
        else:
            client.transport.loseConnection()
        yield client.lost

    @inlineCallbacks
    def attack(self) -> Generator[Any, Any, None]:
        """
        All bad clients.
        """
        self.whole = [each.frame for each in captures()]
        room = DeferredSemaphore(CONNECTIONS_AT_A_TIME)
        yield gatherResults(
            [
                room.run(self.misbehave, mutant, number)
                for number, mutant in enumerate(mutants(self.chance))
            ]
        )

    @inlineCallbacks
    def test_fuzz(self) -> Any:
        """
        10,000 broken frames, on connections that end in all manner of ways,
        and clients that do not read: every request of good clients is answered
        rightly meanwhile, the server grows by no more than L{MEMORY_BOUND},
        nothing fails in it, and it answers afterwards.
        """
        peers = Peers(Remoting(reactor), endpoints(reactor))
        self.addCleanup(peers.stop)
        for number in range(100):
            yield self.ask(peers, number)
        before = residentMemory(self.pid)
        good = gatherResults([self.behave(peers, n * 1_000_000) for n in range(4)])
        sloths = []
        for _ in range(SLOTHS):
            sloth = yield self.client(reads=False)
            self.addCleanup(leave, sloth)
            sloth.transport.write(
                b"".join(frame(1, n, bytes(SLOTH_BODY)) for n in range(SLOTH_ASKS))
            )
            sloths.append(sloth)
        try:
            yield self.attack()
            grown = residentMemory(self.pid) - before
        finally:
            self.attacking = False
            yield good
        self.assertGreater(self.answered, 300)
        self.assertLess(grown, MEMORY_BOUND)
        # An attack that takes minutes, on a slow machine, outlasts the time that they may be
        # idle; half of it, because a busy server looks for idle ones late.
        self.assertGreater(min(each.lasted for each in sloths), IDLE_TIMEOUT / 2)
        fresh = Peers(Remoting(reactor), endpoints(reactor))
        self.addCleanup(fresh.stop)
        yield self.ask(fresh, 7)
        self.assertEqual(self.server.faults, [])
        self.assertGreater(self.server.warnings, FAULTS)


def leave(client: Client) -> Deferred[None]:
    """
    Have a bad client gone.
    """
    client.transport.abortConnection()
    return client.lost
