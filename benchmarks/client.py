# SPDX-License-Identifier: Apache-2.0
"""
What clients cost, with bodies of 1 KiB, over loopback, on one connection:

  - sending with a L{Producer<txrocket.client.producer.producer.Producer>} with 1, 64 and 512
    in flight, where the next message is sent when one is answered; awaiting each; and
    oneway;
  - consuming what a topic holds, with a
    L{PushConsumer<txrocket.client.consumer.push.pushconsumer.PushConsumer>} whose listener is
    a plain function or a coroutine, and with C{async for};
  - beside each, in the same process, the echo's client side: see L{benchmarks.clients};
  - and at the same broker RocketMQ's C++ client, as the package C{rocketmq} has it for
    Python, if it is installed: see L{benchmarks.cpp}.

Each client has a process of its own, whose CPU time counts, and so have the broker and
the echo.  All are measured in turn, several times over.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import attrs

from benchmarks.load import drive
from benchmarks.meter import WARM_UP
from benchmarks.remoting import ECHO, Server, sendRequest
from txrocket.server.environment import freePort

TOPIC = "bench_topic"
IN_FLIGHT = 1, 64, 512
CONSUMING = "plain", "coroutine", "iterated"

# RocketMQ's C++ client for Python.
BINDING = "rocketmq"

# How many times the cost of the echo's client side a send may cost.
AIM = 5

# What is measured by a process: name -> CPU microseconds of a message, and messages of
# a second.
Figures = dict[str, tuple[float, float]]


@attrs.frozen
class Size:
    """
    How much is done.
    """

    rounds: int = 3
    requests: int = 10_000
    consumed: int = 40_000


@attrs.frozen
class Line:
    """
    What is printed of a client.

    @ivar ours: its figures, of each round.
    @ivar echo: those of the echo's client side, likewise; none is compared with C++ only.
    @ivar cpp: those of the C++ client; none if it is not there.
    """

    title: str
    ours: list[tuple[float, float]]
    echo: list[tuple[float, float]]
    cpp: list[tuple[float, float]]
    aim: int | None = None

    def show(self) -> None:
        """
        Print it, and the C++ client's below it.
        """
        # Round by round: what disturbs one disturbs those next to it as well.
        toEcho = _ratio(self.ours, self.echo)
        _show(self.title, self.ours, toEcho, "" if self.aim is None else str(self.aim))
        if self.cpp:
            # To ours: it has no echo next to it.
            times = _ratio(self.cpp, self.ours)
            _show("   the same in C++", self.cpp, "", "", f"{times} x ours")


def _ratio(rounds: list[tuple[float, float]], bases: list[tuple[float, float]]) -> str:
    if not bases:
        return ""
    pairs = zip(rounds, bases, strict=True)
    return f"{statistics.median(cost / base for (cost, _), (base, _) in pairs):.2f}"


def _show(
    title: str, rounds: list[tuple[float, float]], ratio: str, aim: str, more: str = ""
) -> None:
    cost = statistics.median(cost for cost, _ in rounds)
    rate = statistics.median(rate for _, rate in rounds)
    print(f"{title:40} {cost:9.2f} {ratio:>7} {aim:>5} {rate:12,.0f}  {more}".rstrip())


@contextmanager
def servers() -> Iterator[tuple[str, int, str]]:
    """
    A name server and a broker in one process, with an empty folder.

    @return: the name server's address, the broker's port, and the folder.
    """
    nameServer, broker = freePort(), freePort(2, 1)
    program = [os.path.join(os.path.dirname(sys.executable), "twistd"), "--nodaemon"]
    program += ["--pidfile=", "rocket", "--namesrvPort", str(nameServer)]
    # A full disk would have it refuse messages, which is not what is measured.
    program += ["--set=rocketmq.broker.diskSpaceWarningLevelRatio=1"]
    program += [f"--set=listenPort={broker}"]
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        process = subprocess.Popen([*program, "--data", folder], stdout=subprocess.DEVNULL)
        try:
            for port in nameServer, broker:
                while not _accepts(port):
                    if process.poll() is not None:
                        raise AssertionError("the servers have ended")
                    time.sleep(0.01)
            yield f"127.0.0.1:{nameServer}", broker, folder
        finally:
            process.terminate()
            process.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def _fill(broker: int, count: int) -> None:
    """
    Send messages to all four queues of the topic.
    """
    requests = []
    for number in range(4000):
        request = sendRequest(number)
        request.extFields["e"] = str(number % 4)
        requests.append(request.encode())
    drive(broker, requests, count, 4, 64)


def _ran(home: str, module: str, *arguments: object) -> Figures:
    """
    What a process under test printed.

    @param home: its home folder; the C++ client writes its log there.
    """
    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "HOME": home},
    )
    lines = map(str.split, ran.stdout.splitlines())
    return {name: (float(cost), float(rate)) for name, cost, rate in lines}


def _measure(size: Size, *, cpp: bool) -> Iterator[dict[str, Figures]]:
    """
    All processes in turn, round by round.

    @return: the figures of each.
    """
    bare = Server(ECHO)
    try:
        with servers() as (address, broker, folder):
            _fill(broker, size.consumed + 2 * WARM_UP)
            ran = partial(_ran, os.path.abspath(folder))
            for number in range(size.rounds):
                to, held = (address, "bench_sent"), (address, TOPIC)
                sent, count = (size.requests, *IN_FLIGHT), size.consumed
                found = {"send": ran("clients", "send", *to, bare.port, *sent)}
                if cpp:
                    found["C++ send"] = ran("cpp", "send", *to, *sent)
                for kind in CONSUMING:
                    given = *held, bare.port, count, kind, f"{kind}_{number}"
                    found[kind] = ran("clients", "consume", *given)
                if cpp:
                    found["C++ consume"] = ran("cpp", "consume", *held, count, f"cpp_{number}")
                yield found
    finally:
        bare.stop()


def _lines(rounds: list[dict[str, Figures]]) -> Iterator[Line]:
    def figures(process: str, name: str) -> list[tuple[float, float]]:
        return [each[process][name] for each in rounds if process in each]

    for most in IN_FLIGHT:
        echo = figures("send", f"echo_{most}")
        yield Line(f"a  echo's client side, {most} in flight", echo, echo, [], 1)
        sent, cpp = figures("send", f"send_{most}"), figures("C++ send", f"send_{most}")
        yield Line(f"b  send, {most} in flight", sent, echo, cpp, AIM)
    for letter, name, title in ("c", "awaited", "each awaited"), ("d", "oneway", "oneway"):
        cpp = figures("C++ send", name)
        yield Line(f"{letter}  send, {title}", figures("send", name), [], cpp)
    for letter, kind, title in zip(
        "efg", CONSUMING, ("plain listener", "async def listener", "async for"), strict=True
    ):
        cpp = figures("C++ consume", "consumed") if kind == "plain" else []
        yield Line(f"{letter}  consume, {title}", figures(kind, kind), figures(kind, "echo"), cpp)


def main(size: Size | None = None) -> None:
    """
    Measure, and print the medians.
    """
    size = size or Size()
    cpp = importlib.util.find_spec(BINDING) is not None
    rounds = list(_measure(size, cpp=cpp))
    title = f"client, CPU us per message, median of {size.rounds}"
    print(f"{title:40} {'us':>9} {'to echo':>7} {'aim':>5} {'a second':>12}")
    for line in _lines(rounds):
        line.show()
    if not cpp:
        print(
            f"the package {BINDING} is not installed (make test does that): nothing to compare with"
        )


if __name__ == "__main__":
    main()
