# SPDX-License-Identifier: Apache-2.0
"""
The costs of a whole broker, with bodies of 1 KiB, over loopback:

  - starting, from the start of Python to a port that accepts, and the memory of an idle
    broker;
  - sending, with a JSON and a binary header, on four connections with 16 requests
    in flight each, and on 64 with one each; the same with SYNC_FLUSH; and pulling
    32 messages: CPU of the broker per request, beside that of the bare frame echo
    of L{benchmarks.remoting} in the same run;
  - long polling: the time from a send to the answer of the held pull, and the cost of ten
    thousand held pulls, each on its own connection.

A broker runs in its own process, whose CPU time and memory count.  Its files are in the
current folder, so that the disk is a real one.
"""

from __future__ import annotations

import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import attrs

from benchmarks.load import cpuSeconds, drive, memory
from benchmarks.remoting import ECHO, Server, sendRequest
from txrocket.protocol.codes import RequestCode, ResponseCode, SerializeType
from txrocket.protocol.command import RemotingCommand, decodeCommand, requestCommand
from txrocket.protocol.headers import PullMessageRequestHeader
from txrocket.server.environment import freePort

TOPIC = "bench_topic"
QUEUE = 1
PULLED = 32

# Bits of a pull's sysFlag.
_SUSPEND = 2
_SUBSCRIPTION = 4

# The open files of a process besides its connections.
_OTHER_FILES = 200


@attrs.frozen
class Size:
    """
    The amounts of work.
    """

    starts: int = 5
    rounds: int = 5
    requests: int = 20_000
    pulls: int = 4_000
    arrivals: int = 500
    held: int = 10_000
    idle: float = 3.0


@attrs.frozen
class Case:
    """
    A load whose cost is measured.

    @ivar aim: the most times the cost of the echo; 0 for no aim.
    """

    name: str
    port: int
    pid: int
    frames: Sequence[bytes]
    requests: int
    connections: int = 4
    inFlight: int = 16
    aim: int = 0

    def measure(self) -> float:
        """
        CPU microseconds per request.
        """
        before = cpuSeconds(self.pid)
        drive(self.port, self.frames, self.requests, self.connections, self.inFlight)
        return 1e6 * (cpuSeconds(self.pid) - before) / self.requests


def pullRequest(offset: int, *, hold: bool = False) -> RemotingCommand:
    """
    The frame of a consumer's pull.
    """
    header = PullMessageRequestHeader(
        consumerGroup="bench_consumer",
        topic=TOPIC,
        queueId=QUEUE,
        queueOffset=offset,
        maxMsgNums=PULLED,
        sysFlag=_SUBSCRIPTION | (_SUSPEND if hold else 0),
        commitOffset=0,
        suspendTimeoutMillis=600_000,
        subVersion=0,
        subscription="*",
    )
    return requestCommand(RequestCode.PULL_MESSAGE, header)


# --- the process under test ----------------------------------------------


class Broker:
    """
    A broker in a process of its own.

    @ivar started: the seconds until its port accepted.
    @ivar startedCpu: the seconds of CPU until then.
    """

    def __init__(self, folder: str, **settings: str) -> None:
        self.port = freePort(2, 1)
        given = {
            "storePathRootDir": folder,
            "listenPort": str(self.port),
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            # A full disk would make it refuse messages, and refusals are not measured here.
            "rocketmq.broker.diskSpaceWarningLevelRatio": "1",
            **settings,
        }
        program = [os.path.join(os.path.dirname(sys.executable), "twistd"), "--nodaemon"]
        program += ["--pidfile=", "rocket-broker"]
        program += [f"--set={key}={value}" for key, value in given.items()]
        began = time.perf_counter()
        self._process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
        while not self._accepts():
            if self._process.poll() is not None:
                raise AssertionError("the broker has ended")
            time.sleep(0.001)
        self.started = time.perf_counter() - began
        self.pid = self._process.pid
        self.startedCpu = cpuSeconds(self.pid)

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionRefusedError:
            return False
        return True

    def stop(self) -> None:
        """
        Stop it gracefully.
        """
        self._process.terminate()
        self._process.wait()


@contextmanager
def running(**settings: str) -> Iterator[Broker]:
    """
    A broker with an empty folder.
    """
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        broker = Broker(folder, **settings)
        try:
            yield broker
        finally:
            broker.stop()


# --- the measurements ----------------------------------------------------


def _line(what: str, figure: str, more: str = "") -> None:
    print(f"{what:44} {figure:>12}  {more}".rstrip())


def starts(size: Size) -> None:
    """
    Measure a start, and the memory of an idle broker.
    """
    found = []
    for _ in range(size.starts):
        with running() as broker:
            found.append((broker.started, broker.startedCpu, *memory(broker.pid)))
    medians = [statistics.median(each) for each in zip(*found, strict=True)]
    seconds, cpu, own, shared = medians
    _line("start, until the port accepts", f"{seconds:.2f} s", f"{cpu:.2f} s of CPU (aim 0.9)")
    _line("memory of its own, idle (RssAnon)", f"{own:.1f} MB", "(aim 60)")
    _line("with its share of libraries (Pss)", f"{shared:.1f} MB")


def _cases(size: Size, echo: Server, flushing: Broker, syncing: Broker) -> Iterator[Case]:
    sends = [sendRequest(number) for number in range(size.requests)]
    send = [each.encode() for each in sends]
    for each in sends:
        each.serializeType = SerializeType.ROCKETMQ
    binary = [each.encode() for each in sends]
    offsets = range(0, min(size.requests, 64 * PULLED), PULLED)
    pulls = [pullRequest(offset).encode() for offset in offsets]
    to = flushing.port, flushing.pid
    syncTo = syncing.port, syncing.pid
    count = size.requests
    yield Case("a  bare frame echo", echo.port, echo.pid, send, 2 * count, aim=1)
    yield Case("b  send, JSON", *to, send, count, aim=5)
    yield Case("c  send, binary", *to, binary, count)
    yield Case("d  send, SYNC_FLUSH", *syncTo, send, count)
    yield Case("e  pull of 32", *to, pulls, size.pulls, aim=15)
    yield Case("a' bare frame echo, 64 x 1", echo.port, echo.pid, send, count, 64, 1)
    yield Case("b' send, JSON, 64 x 1", *to, send, count, 64, 1)
    yield Case("d' send, SYNC_FLUSH, 64 x 1", *syncTo, send, count, 64, 1)


def costs(size: Size) -> None:
    """
    Measure the costs of requests, all cases in turn, for several rounds.
    """
    with ExitStack() as stack:
        echo = Server(ECHO)
        stack.callback(echo.stop)
        flushing = stack.enter_context(running())
        syncing = stack.enter_context(running(flushDiskType="SYNC_FLUSH"))
        cases = list(_cases(size, echo, flushing, syncing))
        # Warm up, and store the messages for the pulls.
        for each in cases:
            each.measure()
        found: dict[str, list[float]] = {each.name: [] for each in cases}
        for _ in range(size.rounds):
            for each in cases:
                found[each.name].append(each.measure())
        for each in cases:
            if each.pid != echo.pid:
                _check(each)
    bases = {each.connections: found[each.name] for each in cases if each.pid == echo.pid}
    print(f"broker, CPU us per request, median of {size.rounds}        us   ratio to a   aim")
    for each in cases:
        rounds = found[each.name]
        # Round by round, so that a disturbance affects a case and the echo beside it.
        ratios = [cost / base for cost, base in zip(rounds, bases[each.connections], strict=True)]
        aim = f"{each.aim:5}" if each.aim else ""
        cost, ratio = statistics.median(rounds), statistics.median(ratios)
        print(f"{each.name:44} {cost:8.2f} {ratio:12.2f} {aim}".rstrip())


def _check(case: Case) -> None:
    """
    Check that the requests of a case succeed.
    """
    asker = Asker(case.port)
    with asker.socket:
        asker.socket.sendall(case.frames[-1])
        asker.expect(ResponseCode.SUCCESS)


class Asker:
    """
    A connection whose answers are read one by one.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *requests: RemotingCommand) -> None:
        """
        Send requests at once.
        """
        self.socket.sendall(b"".join([each.encode() for each in requests]))

    def expect(self, code: int) -> None:
        """
        Wait for an answer.

        @raise AssertionError: if it has another code.
        """
        length = int.from_bytes(self.socket.recv(4, socket.MSG_WAITALL), "big")
        answer = decodeCommand(self.socket.recv(length, socket.MSG_WAITALL), 0, length)
        if answer.code != code:
            raise AssertionError(f"an answer of code {code} was expected, not {answer}")


def _hold(asker: Asker, offset: int, count: int = 1) -> None:
    """
    Send pulls that the broker holds.  The pull behind them may not be held, and its answer
    shows that the others are held.
    """
    asker.send(*[pullRequest(offset, hold=True)] * count, pullRequest(offset))


def arrivals(size: Size) -> None:
    """
    Measure the time from a send to the answer of a held pull.
    """
    elapsed = []
    with running() as broker:
        sender, puller = Asker(broker.port), Asker(broker.port)
        sender.send(sendRequest())
        sender.expect(ResponseCode.SUCCESS)
        for offset in range(1, size.arrivals + 1):
            _hold(puller, offset)
            puller.expect(ResponseCode.PULL_NOT_FOUND)
            began = time.perf_counter()
            sender.send(sendRequest())
            puller.expect(ResponseCode.SUCCESS)
            elapsed.append(1e3 * (time.perf_counter() - began))
            sender.expect(ResponseCode.SUCCESS)
    elapsed.sort()
    late = elapsed[len(elapsed) * 99 // 100]
    _line("sent to received by a held pull, p50", f"{statistics.median(elapsed):.2f} ms")
    _line("the same, p99", f"{late:.2f} ms", "(aim 50)")


def held(size: Size) -> None:
    """
    Measure the costs of held pulls, each on its own connection if the system allows as
    many.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    each = 1 if size.held + _OTHER_FILES <= most else 10
    with running() as broker, ExitStack() as stack:
        sender = Asker(broker.port)
        sender.send(sendRequest())
        sender.expect(ResponseCode.SUCCESS)
        before = memory(broker.pid)[0]
        askers = [Asker(broker.port) for _ in range(size.held // each)]
        for asker in askers:
            stack.enter_context(asker.socket)
            _hold(asker, 1, each)
        for asker in askers:
            asker.expect(ResponseCode.PULL_NOT_FOUND)
        after = memory(broker.pid)[0]
        cpu = cpuSeconds(broker.pid)
        time.sleep(size.idle)
        cpu = cpuSeconds(broker.pid) - cpu
        sender.send(sendRequest())
        for asker in askers:
            for _ in range(each):
                asker.expect(ResponseCode.SUCCESS)
    where = f"{len(askers):,} connections"
    _line(f"{size.held:,} held pulls on {where}", f"{after - before:.1f} MB", "more (aim 60)")
    _line(f"their CPU while idle for {size.idle:g} s", f"{cpu:.3f} s", "(aim 0)")


def _raiseFileLimit() -> None:
    """
    Raise the limit of open files for this process and its children.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(size: Size | None = None) -> None:
    """
    Measure, and print one line for each.
    """
    size = size or Size()
    _raiseFileLimit()
    for measure in (costs, starts, arrivals, held):
        measure(size)


if __name__ == "__main__":
    main()
