# SPDX-License-Identifier: Apache-2.0
"""
txrocket's client, driven over standard input and output.  The commands are those of
L{tests.interop.driver}.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet import reactor as theReactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.stdio import StandardIO
from twisted.internet.threads import deferToThread
from twisted.logger import globalLogBeginner, textFileLogObserver
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocket import Message
from txrocket.blocking import Client
from txrocket.client import (
    Cluster,
    ConsumeLater,
    LocalTransactionState,
    Producer,
    PullConsumer,
    PushConsumer,
    TraceReader,
    TransactionProducer,
)
from txrocket.client.sansio.queueselector import byHash
from txrocket.client.sansio.results import SendResult
from txrocket.message import MessageExt
from txrocket.model import ConsumeFromWhere, MessageModel, MessageQueue
from txrocket.protocol.codes import SerializeType
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.interfaces import IHook
from txrocket.remoting.tls import ClientTLS

__all__ = ["Driver"]

reactor: Any = theReactor

Command = dict[str, Any]

_TIMEOUT = 10.0


@implementer(IHook)
class BinaryHeaders:
    """
    Has requests written as C{rocketmq.serialize.type=ROCKETMQ} has Java's.
    """

    def beforeRequest(self, address: str, request: RemotingCommand) -> None:
        """
        A request is about to be sent.
        """
        request.serializeType = int(SerializeType.ROCKETMQ)

    def afterResponse(
        self, address: str, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        """
        A request was answered, in the form in which it was asked.
        """
        if response.serializeType != int(SerializeType.ROCKETMQ):
            raise AssertionError(f"{response} has a header in JSON")


def _tls() -> ClientTLS | None:
    told = os.environ.get("INTEROP_TLS")
    if told is None:
        return None
    paths = json.loads(told)
    return ClientTLS(
        authServer=True,
        trustCertPath=paths["authority"],
        certPath=paths["certificate"],
        keyPath=paths["key"],
    )


def _cluster(command: Command) -> Cluster:
    binary = os.environ.get("INTEROP_SERIALIZE") == "ROCKETMQ"
    return Cluster(
        command["nameServers"],
        reactor,
        tls=_tls() if command.get("tls") else None,
        hooks=[BinaryHeaders()] if binary else [],
    )


# --- messages ------------------------------------------------------------


def _message(given: Command) -> Message:
    return Message(
        given["topic"],
        b64decode(given["body"]),
        given.get("tags", ""),
        given.get("keys", ()),
        flag=given.get("flag", 0),
        delayTimeLevel=given.get("delay", 0),
        properties=given.get("properties"),
    )


def _shown(message: MessageExt) -> Command:
    return {
        "topic": message.topic,
        "body": b64encode(message.body).decode(),
        "flag": message.flag,
        "tags": message.tags,
        "keys": " ".join(message.keys),
        "properties": dict(message.properties),
        "queueId": message.queueId,
        "queueOffset": message.queueOffset,
        "msgId": message.msgId,
        "offsetMsgId": message.offsetMsgId,
        "sysFlag": message.sysFlag,
        "bornTimestamp": message.bornTimestamp,
        "storeTimestamp": message.storeTimestamp,
        "storeSize": message.storeSize,
        "reconsumeTimes": message.reconsumeTimes,
    }


def _result(result: SendResult | None) -> Command | None:
    if result is None:
        return None
    return {
        "status": result.sendStatus.name,
        "msgId": result.msgId,
        "offsetMsgId": result.offsetMsgId,
        "queueId": result.messageQueue.queueId,
        "queueOffset": result.queueOffset,
    }


# --- members -------------------------------------------------------------


class Sender:
    """
    A producer.
    """

    def __init__(self, command: Command) -> None:
        self._cluster = _cluster(command)
        options: Command = {"timeout": _TIMEOUT, "trace": command.get("trace", False)}
        if "compressOver" in command:
            options["compressOver"] = command["compressOver"]
        if "maxSize" in command:
            options["maxMessageSize"] = command["maxSize"]
        self._producer = (
            TransactionProducer(self._cluster, command["group"], self._check, **options)
            if command.get("transactional")
            else Producer(self._cluster, command["group"], **options)
        )

    async def start(self) -> None:
        """
        Begin.
        """
        await self._producer.start()

    async def stop(self) -> None:
        """
        Leave.
        """
        await self._producer.stop()
        await self._cluster.stop()

    @staticmethod
    def _check(message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState[message.properties["check"]]

    @staticmethod
    def _execute(message: Message) -> LocalTransactionState:
        return LocalTransactionState[message.properties["local"]]

    async def send(self, command: Command) -> list[Command | None]:
        """
        Send messages.
        """
        messages = [_message(each) for each in command["messages"]]
        how, producer = command["how"], self._producer
        if how == "batch":
            return [_result(each) for each in await producer.sendBatch(messages)]
        if how == "async":
            results = await gatherResults([producer.send(each) for each in messages])
            return [_result(each) for each in results]
        return [await self._one(how, each, command) for each in messages]

    async def _one(self, how: str, message: Message, command: Command) -> Command | None:
        producer = self._producer
        if how == "oneway":
            await producer.sendOneway(message)
            return None
        if how == "queue":
            queues = await producer.queuesOf(message.topic)
            queue = next(each for each in queues if each.queueId == command["queueId"])
            return _result(await producer.send(message, queue=queue))
        if how == "selector":
            return _result(await producer.send(message, selector=byHash, key=command["key"]))
        if how == "transaction":
            assert isinstance(producer, TransactionProducer)
            result = await producer.sendInTransaction(message, self._execute)
            shown = _result(result.sendResult) or {}
            shown["transactionId"] = result.sendResult.transactionId
            shown["state"] = result.localTransactionState.name
            return shown
        return _result(await producer.send(message))

    async def request(self, command: Command) -> Command:
        """
        Send a message and wait for the reply.
        """
        message = _message(command["message"])
        return _shown(await self._producer.request(message, command["timeout"] / 1000))


class Receiver:
    """
    A consumer that messages are pushed to.
    """

    def __init__(self, command: Command, tell: Callable[[Command], None]) -> None:
        self._name = command["name"]
        self._tell = tell
        self._cluster = _cluster(command)
        self._replier: Producer | None = None
        if command.get("reply"):
            self._replier = Producer(self._cluster, command["group"] + "-repliers")
        broadcast = command.get("broadcast")
        self._consumer = PushConsumer(
            self._cluster,
            command["group"],
            self._take,
            orderly=command.get("orderly", False),
            messageModel=MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING,
            consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            maxReconsumeTimes=command.get("maxReconsumeTimes"),
            trace=command.get("trace", False),
        )
        for each in command["subscriptions"]:
            self._consumer.subscribe(each["topic"], each["expression"], each["type"])

    async def start(self) -> None:
        """
        Begin.
        """
        if self._replier is not None:
            await self._replier.start()
        await self._consumer.start()

    async def stop(self) -> None:
        """
        Leave.
        """
        await self._consumer.stop()
        if self._replier is not None:
            await self._replier.stop()
        await self._cluster.stop()

    async def _take(self, message: MessageExt) -> ConsumeLater | None:
        self._tell({"to": self._name, "message": _shown(message)})
        if self._replier is not None:
            await self._replier.reply(message, b"reply to " + message.body)
        fails = message.reconsumeTimes < int(message.properties.get("failTimes", "0"))
        return ConsumeLater() if fails else None


class Puller:
    """
    A consumer that fetches messages, and looks them up.
    """

    def __init__(self, command: Command) -> None:
        self._cluster = _cluster(command)
        self._consumer = PullConsumer(self._cluster, command["group"])
        # Only the blocking client looks messages up.
        self._looking = Client(command["nameServers"])

    async def start(self) -> None:
        """
        Begin.
        """
        await self._consumer.start()

    async def stop(self) -> None:
        """
        Leave.
        """
        await self._consumer.stop()
        await self._cluster.stop()
        self._looking.close()

    async def queues(self, command: Command) -> list[int]:
        """
        The queues of a topic.
        """
        return [each.queueId for each in await self._consumer.queuesOf(command["topic"])]

    async def _queue(self, command: Command) -> MessageQueue:
        for each in await self._consumer.queuesOf(command["topic"]):
            if each.queueId == command["queueId"]:
                return each
        raise AssertionError(f"no such queue: {command}")

    async def pull(self, command: Command) -> Command:
        """
        Pull once.
        """
        result = await self._consumer.pull(
            await self._queue(command),
            command["offset"],
            command["count"],
            expression=command["expression"],
            expressionType=command["type"],
        )
        return {
            "status": result.pullStatus.name,
            "next": result.nextBeginOffset,
            "min": result.minOffset,
            "max": result.maxOffset,
            "messages": [_shown(each) for each in result.messages],
        }

    async def commit(self, command: Command) -> None:
        """
        The group has come to an offset.
        """
        self._consumer.updateOffset(await self._queue(command), command["offset"])
        await self._consumer.persist()

    async def committed(self, command: Command) -> int:
        """
        How far the group has come.
        """
        queue = await self._queue(command)
        offset = await self._consumer.fetchOffset(queue, fromStore=True)
        return -1 if offset is None else offset

    async def byKey(self, command: Command) -> list[Command]:
        """
        Messages by their key.
        """
        found = await deferToThread(
            self._looking.queryMessage, command["topic"], command["key"], 64
        )
        return [_shown(each) for each in found]

    async def byId(self, command: Command) -> Command:
        """
        A message by the id that its broker gave it, or else its sender.
        """
        msgId = command["msgId"]
        try:
            return _shown(await deferToThread(self._looking.viewMessage, msgId))
        except Exception:
            found = await deferToThread(
                self._looking.queryMessage, command["topic"], msgId, unique=True
            )
            return _shown(found[0])

    async def byTime(self, command: Command) -> int:
        """
        The offset of a queue's message by its time.
        """
        queue = await self._queue(command)
        return await self._consumer.searchByTime(queue, command["timestamp"] / 1000)

    async def trace(self, command: Command) -> list[Command]:
        """
        What became of a message, as Java's C{TraceView} has it.
        """
        trace = await TraceReader(self._cluster).byId(command["msgId"])
        if trace is None:
            return []
        message = {"topic": trace.topic, "tags": trace.tags, "keys": " ".join(trace.keys)}
        views = [
            {
                **message,
                "msgType": "Pub",
                "groupName": each.group,
                "status": "success" if each.success else "failed",
            }
            for each in trace.sent
        ]
        for group, calls in trace.consumed.items():
            for call in calls:
                views.append({**message, "msgType": "SubBefore", "groupName": group})
                if call.success is not None:
                    status = "success" if call.success else "failed"
                    views.append({**message, "msgType": "SubAfter", "status": status})
        return views


# --- commands ------------------------------------------------------------


class Driver(Protocol):
    """
    Does what it is told.
    """

    def __init__(self) -> None:
        self._members: dict[str, Any] = {}
        self._pieces: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:
        # A line may have many megabytes, which come 64 KiB at a time: not put together
        # before it is whole.
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._run(b"".join([*self._pieces, line]))
            self._pieces.clear()
        self._pieces.append(rest)

    def _run(self, line: bytes) -> None:
        command: Command = json.loads(line)

        def done(result: Any) -> None:
            self._tell({"id": command["id"], "result": result})

        def failed(failure: Failure) -> None:
            failure.printTraceback(sys.stderr)
            said = f"{type(failure.value).__name__}: {failure.getErrorMessage()}"
            self._tell({"id": command["id"], "error": said})

        Deferred.fromCoroutine(self._serve(command)).addCallbacks(done, failed)

    def _tell(self, line: Command) -> None:
        assert self.transport is not None
        self.transport.write(json.dumps(line).encode() + b"\n")

    async def _serve(self, command: Command) -> Any:
        name, op = command.get("name", ""), command["op"]
        match op:
            case "producer":
                member: Any = Sender(command)
            case "consumer":
                member = Receiver(command, self._tell)
            case "puller":
                member = Puller(command)
            case "stop":
                await self._members.pop(name).stop()
                return None
            case _:
                serve: Callable[[Command], Awaitable[Any]] = getattr(self._members[name], op)
                return await serve(command)
        self._members[name] = member
        await member.start()
        return None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        reactor.stop()


def main() -> None:
    """
    Serve until there are no more commands.
    """
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    StandardIO(Driver())
    reactor.run()


if __name__ == "__main__":
    main()
