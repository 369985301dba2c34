# SPDX-License-Identifier: Apache-2.0
"""
A client in a process of its own that does what it is told, one line of JSON a
command.  There is one such program for each client, and all understand the same
commands, so that a scenario is written once::

    producer   name, group, nameServers, tls, trace, transactional, compressOver, maxSize
    send       name, how, messages, queueId, key     -> [result, ...]
    request    name, message, timeout                -> message
    consumer   name, group, nameServers, tls, trace, orderly, broadcast, reply,
               subscriptions, maxReconsumeTimes, properties
    puller     name, group, nameServers, tls, properties
    queues     name, topic                           -> [queueId, ...]
    pull       name, topic, queueId, offset, count, expression, type
                                                     -> status, next, min, max, messages
    commit     name, topic, queueId, offset
    committed  name, topic, queueId                  -> offset, -1 if there is none
    byKey      name, topic, key                      -> [message, ...]
    byId       name, topic, msgId                    -> message
    byTime     name, topic, queueId, timestamp       -> offset
    trace      name, msgId                           -> [view, ...]
    tool       nameServers, arguments                -> what mqadmin prints (Java only)
    stop       name: a producer, consumer or puller

Each command has an C{id}; the answer has it too, with C{result} or C{error}, and comes
when the thing is done, whatever was asked meanwhile.  A consumer tells of each message
in a line with C{to}, its name, and C{message}.

C{how} is sync, async, oneway, batch, queue, selector or transaction.  Whatever else a
client is to do, it is told by a message's own properties: C{failTimes}, how often the
consumer fails; C{local} and C{check}, what a transaction's listener says.  Bodies are in
base64, times in milliseconds, and C{properties} names those that a consumer is to show:
the C++ client cannot list them.
"""

from __future__ import annotations

import contextlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from tests.live.servers import reactor

__all__ = ["Consumer", "Driver", "DriverEnded", "Producer", "Puller", "Refused"]

# Of what a program said beside its answers, so many lines are kept.
_KEPT = 20_000

# No command takes so long, in seconds, unless it hangs.
_LIMIT = 120.0

Shown = dict[str, Any]


class Refused(Exception):
    """
    A client could not do what it was told; it said why.
    """


class DriverEnded(Exception):
    """
    The program is gone.
    """


class Driver(ProcessProtocol):
    """
    A program that is driven.

    @ivar lines: what it said beside its answers.
    @ivar ended: whether it is gone.
    """

    transport: Any

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ended = False
        self._pieces: list[bytes] = []
        self._id = 0
        self._waiting: dict[int, Deferred[Any]] = {}
        self._consumers: dict[str, Consumer] = {}
        self._gone: list[Deferred[None]] = []

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        """
        Start the program.
        """
        reactor.spawnProcess(self, command[0], list(command), env=dict(environment), path=folder)

    def ask(self, op: str, limit: float = _LIMIT, **arguments: Any) -> Deferred[Any]:
        """
        Have something done.

        @return: a Deferred of the result, which fails with L{Refused} or
            L{DriverEnded}.
        """
        answer: Deferred[Any] = Deferred()
        if self.ended:
            answer.errback(DriverEnded(f"{op}: the client has ended"))
            return answer
        self._id += 1
        self._waiting[self._id] = answer
        line = json.dumps({"id": self._id, "op": op, **arguments})
        self.transport.write(line.encode() + b"\n")

        def late(result: Any, after: float) -> Failure:
            return Failure(Refused(f"{op}: nothing was heard of it within {after:g} s"))

        return answer.addTimeout(limit, reactor, onTimeoutCancel=late)

    def follow(self, consumer: Consumer) -> None:
        """
        Hand a consumer's messages to it.
        """
        self._consumers[consumer.name] = consumer

    def end(self) -> Deferred[None]:
        """
        End the program, whatever it is at.
        """
        gone: Deferred[None] = Deferred()
        if self.ended:
            gone.callback(None)
            return gone
        self._gone.append(gone)
        with contextlib.suppress(ProcessExitedAlready):
            self.transport.signalProcess("KILL")
        return gone

    # --- what it says ----------------------------------------------------

    def outReceived(self, data: bytes) -> None:
        # A line may have many megabytes: not put together before it is whole.
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line(b"".join([*self._pieces, line]))
            self._pieces.clear()
        self._pieces.append(rest)

    def errReceived(self, data: bytes) -> None:
        self._keep(data.decode(errors="replace").splitlines())

    def _keep(self, lines: Iterable[str]) -> None:
        self.lines += lines
        del self.lines[:-_KEPT]

    def _line(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            self._keep([line.decode(errors="replace")])
            return
        if "to" in said:
            consumer = self._consumers.get(said["to"])
            if consumer is not None:
                consumer.take(received(said["message"]))
            return
        answer = self._waiting.pop(said["id"], None)
        # One that came too late is nobody's any more.
        if answer is not None and not answer.called:
            if "error" in said:
                answer.errback(Refused(said["error"]))
            else:
                answer.callback(said["result"])

    def processEnded(self, reason: Failure) -> None:
        self.ended = True
        waiting, self._waiting = self._waiting, {}
        told = "\n".join(self.lines[-40:])
        for answer in waiting.values():
            if not answer.called:
                answer.errback(DriverEnded(f"the client has ended: {reason.value}\n{told}"))
        for gone in self._gone:
            gone.callback(None)


def given(message: Shown) -> Shown:
    """
    A message as a driver wants it.
    """
    return {**message, "body": b64encode(message["body"]).decode()}


def received(message: Shown) -> Shown:
    """
    A message as a driver shows it, with its body and all members that scenarios
    look at.
    """
    return {
        **message,
        "body": b64decode(message["body"]),
        "keys": (message.get("keys") or "").split(),
        "tags": message.get("tags") or "",
    }


class _Member:
    """
    A producer, consumer or puller in a driver.
    """

    def __init__(self, driver: Driver, name: str, arguments: Shown) -> None:
        self.driver = driver
        self.name = name
        self.arguments = arguments
        self._stopped = False

    async def stop(self) -> None:
        """
        Stop it, once.
        """
        if not self._stopped and not self.driver.ended:
            self._stopped = True
            await self.driver.ask("stop", name=self.name)


class Producer(_Member):
    """
    A producer.
    """

    async def start(self) -> Producer:
        """
        Start it.
        """
        await self.driver.ask("producer", name=self.name, **self.arguments)
        return self

    async def send(self, messages: Iterable[Shown], how: str = "sync", **more: Any) -> list[Shown]:
        """
        Send messages.

        @return: what the client says of each; of a batch, what it says of all.
        """
        result: list[Shown] = await self.driver.ask(
            "send", name=self.name, how=how, messages=[given(each) for each in messages], **more
        )
        for each in result:
            assert each is None or each["status"] == "SEND_OK", each
        return result

    async def request(self, message: Shown, timeout: float = 45.0) -> Shown:
        """
        Send a message and wait for the reply.
        """
        reply = await self.driver.ask(
            "request", name=self.name, message=given(message), timeout=int(timeout * 1000)
        )
        return received(reply)


class Consumer(_Member):
    """
    A consumer that messages are pushed to.

    @ivar got: the messages that it has got.
    """

    def __init__(self, driver: Driver, name: str, arguments: Shown) -> None:
        super().__init__(driver, name, arguments)
        self.got: list[Shown] = []
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    async def start(self) -> Consumer:
        """
        Start it.
        """
        self.driver.follow(self)
        await self.driver.ask("consumer", name=self.name, **self.arguments)
        return self

    def take(self, message: Shown) -> None:
        """
        A message has come.
        """
        message["at"] = reactor.seconds()
        self.got.append(message)
        for each in list(self._waiting):
            if each[0]():
                self._waiting.remove(each)
                each[1].callback(None)

    async def until(self, enough: int | Callable[[], bool], limit: float = 120.0) -> list[Shown]:
        """
        Wait until it has got a number of messages, or until a condition is true of them.
        """
        test = (lambda: len(self.got) >= enough) if isinstance(enough, int) else enough
        if not test():
            waiting: Deferred[None] = Deferred()
            entry = (test, waiting)
            self._waiting.append(entry)

            def late(result: Any, after: float) -> None:
                self._waiting.remove(entry)
                wanted = enough if isinstance(enough, int) else "others"
                raise AssertionError(f"{len(self.got)} messages in {after:g} s, not {wanted}")

            await waiting.addTimeout(limit, reactor, onTimeoutCancel=late)
        return self.got


class Puller(_Member):
    """
    A consumer that fetches messages, and looks them up.
    """

    async def start(self) -> Puller:
        """
        Start it.
        """
        await self.driver.ask("puller", name=self.name, **self.arguments)
        return self

    async def queues(self, topic: str) -> list[int]:
        """
        The queues of a topic, of which there is one broker.
        """
        return sorted(await self.driver.ask("queues", name=self.name, topic=topic))

    async def pull(
        self,
        topic: str,
        queueId: int,
        offset: int,
        count: int = 32,
        expression: str = "*",
        type: str = "TAG",
    ) -> Shown:
        """
        Pull once.
        """
        answer: Shown = await self.driver.ask(
            "pull",
            name=self.name,
            topic=topic,
            queueId=queueId,
            offset=offset,
            count=count,
            expression=expression,
            type=type,
        )
        answer["messages"] = [received(each) for each in answer["messages"]]
        return answer

    async def ask(self, op: str, **arguments: Any) -> Any:
        """
        Look something up.
        """
        return await self.driver.ask(op, name=self.name, **arguments)
