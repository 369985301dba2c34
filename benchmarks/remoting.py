# SPDX-License-Identifier: Apache-2.0
"""
The costs of remoting, over loopback, with bodies of 1 KiB and four connections with 16
requests in flight each:

  - a, a bare frame echo: Twisted, our framing, one write per read, no decoding;
  - b, a send with a JSON header, decoded into its typed header, answered by an
    inline processor with a typed header;
  - c, the same with the binary header;
  - d, the client's side of b: building the typed header, sending, and the
    Deferred firing with the answer, whose typed header is decoded.

The server under test runs in its own process, whose CPU time counts.  The load comes from
this process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.load import cpuSeconds, drive
from txrocket.protocol.codes import RequestCode, SerializeType
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.frames import FrameBuffer
from txrocket.protocol.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader

CONNECTIONS = 4
IN_FLIGHT = 16
BODY = b"x" * 1024
ROUNDS = 5
REQUESTS = 60_000

ECHO, SEND, CLIENT = "echo", "send", "client"


def sendRequest(number: int = 0) -> RemotingCommand:
    """
    The frame of a producer's send.

    @param number: makes its message different from all others.
    """
    uniqueKey = f"7F0000010B251B89B4AC{0x4E0EAA80 + (number >> 4):08X}{number & 0xFFFF:04X}"
    header = SendMessageRequestHeaderV2(
        producerGroup="bench_producer",
        topic="bench_topic",
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=1,
        sysFlag=0,
        bornTimestamp=1794800784197,
        flag=0,
        properties=f"UNIQ_KEY\x01{uniqueKey}\x02WAIT\x01true\x02TAGS\x01TagA",
        reconsumeTimes=0,
    )
    return requestCommand(RequestCode.SEND_MESSAGE_V2, header, BODY)


def served(request: RemotingCommand, peer: object) -> RemotingCommand:
    """
    The least work of an inline processor: decode a header, and answer with one.
    """
    header = request.decodeHeader(SendMessageRequestHeaderV2)
    return responseCommand(
        header=SendMessageResponseHeader(
            msgId="7F00000100002A9F0000000000000000",
            queueId=header.queueId,
            queueOffset=header.bornTimestamp,
        )
    )


# --- the process under test ----------------------------------------------


def serve(kind: str) -> None:
    """
    Run a server on a free port, and print the port.
    """
    from twisted.internet import reactor as anyReactor
    from twisted.internet.protocol import Factory, Protocol

    from txrocket.remoting.executors import InlineExecutor
    from txrocket.remoting.remoting import FunctionProcessor, Remoting
    from txrocket.remoting.server import RemotingServerFactory

    reactor: Any = anyReactor

    class Echo(Protocol):
        def connectionMade(self) -> None:
            self.frames = FrameBuffer()

        def dataReceived(self, data: bytes) -> None:
            assert self.transport is not None
            frames = [whole[start:end] for _, whole, start, end in self.frames.runs(data)]
            if frames:
                self.transport.write(b"".join(frames))

    if kind == ECHO:
        factory: Factory = Factory.forProtocol(Echo)
    else:
        remoting = Remoting(reactor)
        remoting.registerDefaultProcessor(FunctionProcessor(served), InlineExecutor())
        factory = RemotingServerFactory(remoting)
    port = reactor.listenTCP(0, factory, interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    reactor.run()


def client(port: int, requests: int) -> None:
    """
    Send requests, and print the CPU microseconds of each.
    """
    from twisted.internet import reactor as anyReactor
    from twisted.internet.defer import Deferred, gatherResults
    from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
    from twisted.internet.task import react

    from txrocket.remoting.protocol import RemotingProtocol
    from txrocket.remoting.remoting import Remoting

    def flight(protocol: RemotingProtocol, count: int) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        remaining = count

        def answered(response: RemotingCommand) -> None:
            nonlocal remaining
            response.decodeHeader(SendMessageResponseHeader)
            remaining -= 1
            if remaining >= IN_FLIGHT:
                send()
            elif remaining == 0:
                done.callback(None)

        def send() -> None:
            protocol.request(sendRequest(), 3.0).addCallback(answered)

        for _ in range(IN_FLIGHT):
            send()
        return done

    async def main(reactor: Any) -> None:
        remoting = Remoting(reactor)
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        protocols = [
            await connectProtocol(endpoint, RemotingProtocol(remoting, accepted=False))
            for _ in range(CONNECTIONS)
        ]
        await gatherResults([flight(each, 1000) for each in protocols])
        before = time.process_time()
        await gatherResults([flight(each, requests // CONNECTIONS) for each in protocols])
        print(1e6 * (time.process_time() - before) / requests, flush=True)
        for each in protocols:
            each.close()

    react(lambda reactor: Deferred.fromCoroutine(main(reactor)), [], anyReactor)


# --- the load ------------------------------------------------------------


class Server:
    """
    A server in a process of its own.
    """

    def __init__(self, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.remoting", kind], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid

    def cpuSeconds(self) -> float:
        """
        Its CPU time so far.
        """
        return cpuSeconds(self.pid)

    def stop(self) -> None:
        """
        End the process.
        """
        self._process.terminate()
        self._process.wait()


def serverCost(server: Server, frame: bytes) -> Callable[[], float]:
    """
    Measures the CPU microseconds that one request costs a server.
    """
    drive(server.port, [frame], 4000, CONNECTIONS, IN_FLIGHT)

    def measure() -> float:
        before = server.cpuSeconds()
        drive(server.port, [frame], REQUESTS, CONNECTIONS, IN_FLIGHT)
        return 1e6 * (server.cpuSeconds() - before) / REQUESTS

    return measure


def clientCost(server: Server) -> Callable[[], float]:
    """
    Measures the CPU microseconds that one request costs a client.
    """

    def measure() -> float:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.remoting", CLIENT, str(server.port), str(REQUESTS)],
            capture_output=True,
            text=True,
            check=True,
        )
        return float(done.stdout)

    return measure


def main() -> None:
    """
    Measure all four in turn, several times over, and print the medians.
    """
    binary = sendRequest()
    binary.serializeType = SerializeType.ROCKETMQ
    echo, send = Server(ECHO), Server(SEND)
    try:
        cases = {
            "a  bare frame echo": (serverCost(echo, sendRequest().encode()), 1.0),
            "b  JSON request, inline processor": (serverCost(send, sendRequest().encode()), 3.0),
            "c  binary request, inline processor": (serverCost(send, binary.encode()), 5.0),
            "d  client's side of b": (clientCost(send), 4.0),
        }
        costs: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, (measure, _aim) in cases.items():
                costs[name].append(measure())
    finally:
        echo.stop()
        send.stop()
    base = statistics.median(next(iter(costs.values())))
    print(f"remoting, CPU us per request, median of {ROUNDS}     us   ratio to a   aim")
    for name, (_, aim) in cases.items():
        cost = statistics.median(costs[name])
        print(f"{name:44} {cost:8.2f} {cost / base:12.2f} {aim:5.0f}")


if __name__ == "__main__":
    if sys.argv[1] == CLIENT:
        client(int(sys.argv[2]), int(sys.argv[3]))
    else:
        serve(sys.argv[1])
