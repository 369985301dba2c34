# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.blocking.connections}: real sockets, and
peers that misbehave.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from typing import Any

from tests.blocking.server import BlockingCase, Cut, Reply, inTurn
from txrocket.blocking.connections import BlockingConnection, BlockingConnections
from txrocket.blocking.deadline import Deadline
from txrocket.errors import ConnectFailed, ConnectionLost, InvalidMessage, RequestTimedOut
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand

CODE = RequestCode.HEART_BEAT


def echo(request: RemotingCommand) -> Reply:
    """
    Answer with the request's body.
    """
    return responseCommand(body=request.body)


class LinkCase(BlockingCase):
    """
    One peer, and the connections to it.
    """

    def setUp(self) -> None:
        self.peer = self.server()
        self.peer.serve[CODE] = echo
        self.connections = BlockingConnections(None, 1 << 20)
        self.addCleanup(self.connections.close)

    def ask(self, body: bytes = b"body", seconds: float = 10.0, at: str | None = None) -> bytes:
        """
        Ask the peer.
        """
        request = requestCommand(CODE, body=body)
        return self.connections.ask(at or self.peer.address, request, Deadline(seconds)).body


class RequestTests(LinkCase):
    """
    Requests and their answers.
    """

    def test_oneConnectionServesAllRequests(self) -> None:
        """
        One connection serves all requests to an address, each with its own number.
        """
        self.assertEqual([self.ask(b"a"), self.ask(b"b")], [b"a", b"b"])
        self.assertEqual(len(self.peer.connections), 1)
        self.assertEqual([each.opaque for each in self.peer.requests], [0, 1])

    def test_answerMayArriveInPieces(self) -> None:
        """
        An answer may come in any pieces, and a request may go in any.
        """
        large = os.urandom(1 << 19)

        def byByte(request: RemotingCommand) -> Reply:
            answer = responseCommand(body=request.body[:40])
            answer.opaque = request.opaque
            for each in answer.encode():
                self.peer.connections[0].sendall(bytes([each]))
            return None

        self.assertEqual(self.ask(large), large)
        self.peer.serve[CODE] = byByte
        self.assertEqual(self.ask(large), large[:40])

    def test_unaskedCommandsAreDropped(self) -> None:
        """
        Commands without a request are dropped: answers to other requests, and requests.
        """

        def stray(request: RemotingCommand) -> Reply:
            answers = [responseCommand(body=b"other"), requestCommand(CODE), responseCommand()]
            for each, opaque in zip(answers, (99, request.opaque, request.opaque), strict=True):
                each.opaque = opaque
            answers[-1].body = b"own"
            return b"".join(each.encode() for each in answers)

        self.peer.serve[CODE] = stray
        self.assertEqual(self.ask(), b"own")
        self.assertEqual(self.ask(), b"own")

    def test_lateAnswerClosesConnection(self) -> None:
        """
        An answer that comes too late is an error in time, and is never taken for
        another's: the connection is not used again.
        """
        answer = threading.Event()

        def late(request: RemotingCommand) -> Reply:
            answer.wait(120)
            return responseCommand(body=b"late")

        self.peer.serve[CODE] = inTurn(late, echo)
        error = self.assertRaises(RequestTimedOut, self.ask, seconds=0.1)
        self.assertEqual(error.address, self.peer.address)
        self.assertIn("did not answer within 0.1 s", str(error))
        answer.set()
        self.assertEqual(self.ask(b"second"), b"second")
        self.assertEqual(len(self.peer.connections), 2)

    def test_trickledAnswerTimesOut(self) -> None:
        """
        The time limit is for the whole answer: a peer that sends a byte now and
        then does not get more.
        """
        stop = threading.Event()
        self.addCleanup(stop.set)

        def trickle(request: RemotingCommand) -> Reply:
            self.peer.connections[0].sendall(struct.pack(">i", 1000))
            while not stop.wait(0.02):
                self.peer.connections[0].sendall(b"x")
            return None

        self.peer.serve[CODE] = trickle
        self.assertRaises(RequestTimedOut, self.ask, seconds=0.15)

    def test_peerThatDoesNotReadTimesOut(self) -> None:
        """
        A peer that does not read is given up in time as well.
        """
        stop = threading.Event()
        self.addCleanup(stop.set)

        def idle(request: RemotingCommand) -> Reply:
            stop.wait(120)
            return None

        self.peer.serve[CODE] = idle
        connections = BlockingConnections(None, 64 << 20)
        self.addCleanup(connections.close)
        # The first keeps the peer busy; the second is more than the system buffers.
        first = requestCommand(CODE)
        first.opaque = 0
        request = requestCommand(CODE, body=bytes(32 << 20))
        connection = BlockingConnection.dial(self.peer.address, Deadline(5), None, 64 << 20)
        self.addCleanup(connection.close)
        connection._socket.sendall(first.encode())
        error = self.assertRaises(RequestTimedOut, connection.request, request, Deadline(0.2))
        self.assertIn("sending HEART_BEAT", str(error))

    def test_closedConnectionIsLost(self) -> None:
        """
        A connection that ends without an answer, or within it, is lost.
        """
        whole = responseCommand(body=b"x" * 100).encode()
        for last in (b"", whole[:3], whole[:50]):

            def end(request: RemotingCommand, last: bytes = last) -> Reply:
                raise Cut(last)

            self.peer.serve[CODE] = end
            error = self.assertRaises(ConnectionLost, self.ask)
            self.assertIn("waiting for the answer to HEART_BEAT (34)", str(error))
        self.peer.serve[CODE] = echo
        self.assertEqual(self.ask(), b"body")

    def test_garbageLosesConnection(self) -> None:
        """
        A peer that breaks the protocol has lost the connection, whatever it says;
        a length beyond the limit is not waited for.
        """
        for garbage, reason in (
            (struct.pack(">ii", 0x7FFFFFFF, 0), "larger than the limit of 1048576"),
            (struct.pack(">ii", -5, 0), "frame length -5"),
            (struct.pack(">ii", 8, 4) + b"{]}!", "JSON header"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "larger than the limit"),
        ):

            def spoil(request: RemotingCommand, garbage: bytes = garbage) -> Reply:
                return garbage

            self.peer.serve[CODE] = spoil
            error = self.assertRaises(ConnectionLost, self.ask)
            self.assertIn("broke the protocol: ", str(error))
            self.assertIn(reason, str(error))

    def test_garbageBehindAnswerClosesConnection(self) -> None:
        """
        An answer counts even if garbage follows; the connection is not used again.
        """

        def spoil(request: RemotingCommand) -> Reply:
            answer = responseCommand(body=b"good")
            answer.opaque = request.opaque
            return answer.encode() + b"\xff" * 8

        self.peer.serve[CODE] = inTurn(spoil, echo)
        self.assertEqual(self.ask(), b"good")
        self.assertEqual(self.ask(b"again"), b"again")
        self.assertEqual(len(self.peer.connections), 2)

    def test_tooLargeRequestIsNotSent(self) -> None:
        """
        A request that is too large for a frame is not sent.
        """
        self.assertRaises(InvalidMessage, self.ask, bytes(1 << 20))
        self.assertEqual(self.peer.requests, [])
        self.assertEqual(self.ask(), b"body")

    def test_interruptClosesConnection(self) -> None:
        """
        A call that is interrupted leaves no connection whose next answer would be
        another's.
        """

        def interrupted(
            connection: BlockingConnection, opaque: int, deadline: Deadline
        ) -> RemotingCommand:
            raise KeyboardInterrupt

        self.ask()
        patched = self.patch(BlockingConnection, "_read", interrupted)
        self.assertRaises(KeyboardInterrupt, self.ask)
        patched.restore()
        self.assertEqual(self.ask(b"new"), b"new")
        self.assertEqual(len(self.peer.connections), 2)


class IdleTests(LinkCase):
    """
    Connections that were not used for a while.
    """

    def connection(self) -> BlockingConnection:
        """
        The connection to the peer.
        """
        return self.connections._connections[self.peer.address]

    def arrived(self) -> None:
        """
        Wait until something of the peer's is there to be read.
        """
        self.assertTrue(self.connection()._readable.poll(10_000))

    def test_connectionClosedByPeerIsReplaced(self) -> None:
        """
        One that the peer has closed meanwhile is noticed before it is used, and is
        no failure.
        """
        self.ask()
        self.peer.hangUp()
        self.arrived()
        self.assertFalse(self.connection().isAlive())
        self.assertEqual(self.ask(b"again"), b"again")
        self.assertEqual(len(self.peer.requests), 2)

    def test_connectionResetByPeerIsReplaced(self) -> None:
        """
        So is one that the peer has reset.
        """
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            connection = BlockingConnection.dial(address, Deadline(10), None, 1 << 20)
            self.addCleanup(connection.close)
            accepted, _ = listening.accept()
            self.assertTrue(connection.isAlive())
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
        self.assertTrue(connection._readable.poll(10_000))
        self.assertFalse(connection.isAlive())

    def test_unaskedDataIsHarmless(self) -> None:
        """
        Data without a request does no harm, unless it is garbage.
        """
        self.ask()
        self.peer.connections[0].sendall(requestCommand(CODE).encode())
        self.arrived()
        self.assertEqual(self.ask(b"same"), b"same")
        self.assertEqual(len(self.peer.connections), 1)
        self.peer.connections[0].sendall(b"\xff" * 8)
        self.arrived()
        self.assertEqual(self.ask(b"other"), b"other")
        self.assertEqual(len(self.peer.connections), 2)

    def test_closedConnectionsAreReopened(self) -> None:
        """
        Connections that were closed here are made again when they are needed.
        """
        self.ask()
        self.connections.close()
        self.assertEqual(self.ask(b"again"), b"again")
        self.assertEqual(len(self.peer.connections), 2)


class DialTests(LinkCase):
    """
    Making connections.
    """

    def lookUp(self, *found: Any) -> None:
        """
        Have names looked up by the test.
        """
        real = socket.getaddrinfo

        def look(host: str, port: int, **options: Any) -> Any:
            if options.get("flags"):
                return real(host, port, **options)
            if isinstance(found[0], BaseException):
                raise found[0]
            if isinstance(found[0], threading.Event):
                found[0].wait(120)
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, at)) for each, at in found[1:]
            ]

        self.patch(socket, "getaddrinfo", look)

    def test_refusedDialNamesAddress(self) -> None:
        """
        Without a listener no connection is made, and the error has the address.
        """
        nowhere = self.nowhere()
        error = self.assertRaises(ConnectFailed, self.ask, at=nowhere)
        self.assertEqual(error.address, nowhere)
        self.assertRegex(str(error), rf"connecting to {nowhere} failed after \d+\.\d{{3}} s: ")

    def test_invalidAddressIsRefused(self) -> None:
        """
        An invalid address or host cannot be connected to.
        """
        for address in ("nonsense", "a..b:1", "127.0.0.1:0"):
            self.assertRaises(ConnectFailed, self.ask, at=address)

    def full(self) -> str:
        """
        A server that takes no more connections, and does not say so.
        """
        listening = socket.socket()
        self.addCleanup(listening.close)
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(2):
            waiting = socket.socket()
            self.addCleanup(waiting.close)
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        return f"127.0.0.1:{listening.getsockname()[1]}"

    def test_connectingCountsIntoTimeout(self) -> None:
        """
        Connecting counts into the time limit.
        """
        error = self.assertRaises(ConnectFailed, self.ask, seconds=0.1, at=self.full())
        self.assertIn("not connected within 0.1 s", str(error))

    def test_dialHasItsOwnTimeLimit(self) -> None:
        """
        A connection may have its own time limit, to leave time for another peer.
        """
        request = requestCommand(CODE)
        address = self.full()
        self.assertRaises(
            ConnectFailed, self.connections.ask, address, request, Deadline(60), Deadline(0.1)
        )

    def test_zeroTimeDialsNothing(self) -> None:
        """
        Without any time nothing is tried.
        """
        self.assertRaises(ConnectFailed, self.ask, seconds=0.0)
        self.assertEqual(self.peer.connections, [])

    def test_hostNameAddressesAreTriedInTurn(self) -> None:
        """
        A host name is looked up, and its addresses are tried in turn.
        """
        gone = int(self.nowhere().rpartition(":")[2])
        self.lookUp(None, ("127.0.0.1", gone), ("127.0.0.1", self.peer.port))
        self.assertEqual(self.ask(at="broker.example:1"), b"body")

    def test_noAddressOfName(self) -> None:
        """
        If none of them does, the last one's failure is told.
        """
        gone = int(self.nowhere().rpartition(":")[2])
        self.lookUp(None, ("127.0.0.1", gone), ("127.0.0.1", gone))
        self.assertRaises(ConnectFailed, self.ask, at="broker.example:1")

    def test_unknownNameHasResolversWords(self) -> None:
        """
        An unknown name is told with the resolver's words.
        """
        self.lookUp(socket.gaierror(socket.EAI_NONAME, "nobody knows it"))
        error = self.assertRaises(ConnectFailed, self.ask, at="broker.example:1")
        self.assertIn("nobody knows it", str(error))

    def test_slowResolverKeepsTimeLimit(self) -> None:
        """
        Looking up a name counts against the time limit, though the system's resolver has
        none.
        """
        release = threading.Event()
        self.addCleanup(release.set)
        self.lookUp(release)
        error = self.assertRaises(ConnectFailed, self.ask, seconds=0.1, at="broker.example:1")
        self.assertIn("not connected within 0.1 s", str(error))

    def test_interruptedDialClosesSocket(self) -> None:
        """
        An interrupted dial leaves no socket open.
        """
        made: list[socket.socket] = []
        real = socket.socket

        class Interrupted(real):  # type: ignore[valid-type, misc]
            def connect(self, where: Any) -> None:
                made.append(self)
                raise KeyboardInterrupt

        patched = self.patch(socket, "socket", Interrupted)
        self.assertRaises(KeyboardInterrupt, self.ask)
        patched.restore()
        self.assertEqual([each.fileno() for each in made], [-1])


class ProcessTests(LinkCase):
    """
    Threads and processes.
    """

    def test_secondThreadIsRefused(self) -> None:
        """
        Two threads cannot use the connections at a time, and are told so rather
        than given each other's answers.
        """
        asked, answer = threading.Event(), threading.Event()
        got: list[bytes] = []

        def wait(request: RemotingCommand) -> Reply:
            asked.set()
            answer.wait(120)
            return echo(request)

        self.peer.serve[CODE] = wait
        thread = threading.Thread(target=lambda: got.append(self.ask(b"first")))
        thread.start()
        self.assertTrue(asked.wait(120))
        error = self.assertRaises(RuntimeError, self.ask, b"second")
        self.assertIn("one thread at a time", str(error))
        answer.set()
        thread.join(120)
        self.assertEqual(got, [b"first"])
        # One after the other is well.
        self.assertEqual(self.ask(b"third"), b"third")

    def test_forkedProcessMakesNewConnections(self) -> None:
        """
        Another process does not use the connections, and makes new ones.
        """
        self.ask()
        self.patch(os, "getpid", lambda: -1)
        self.assertEqual(self.ask(b"forked"), b"forked")
        self.assertEqual(len(self.peer.connections), 2)
        self.assertEqual(self.ask(b"again"), b"again")
        self.assertEqual(len(self.peer.connections), 2)

    def test_otherProcessInTurn(self) -> None:
        """
        A thread with a request at the time of a fork does not exist in the new process, and
        blocks no thread there.
        """
        self.connections._turn.acquire()
        self.assertRaises(RuntimeError, self.ask)
        self.patch(os, "getpid", lambda: -1)
        self.assertEqual(self.ask(), b"body")

    def test_bothSidesOfForkContinue(self) -> None:
        """
        Both sides of a fork can go on, and the first one's connection still works.
        """
        self.ask()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(writing, self.ask(b"child"))
            finally:
                os._exit(0)
        os.close(writing)
        self.addCleanup(os.close, reading)
        self.assertEqual(os.read(reading, 100), b"child")
        os.waitpid(child, 0)
        self.assertEqual(self.ask(b"parent"), b"parent")
        self.assertEqual(len(self.peer.connections), 2)
