# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's C++ client, as the Python package C{rocketmq} has it, driven over standard
input and output.  The commands are those of L{tests.interop.driver}; each runs in a
thread of its own.

A body ends at its first zero byte: the package reads it as text in C.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
import threading
import time
import traceback
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from typing import Any

Command = dict[str, Any]

# The package has no types, and need not be there.
client: Any = importlib.import_module("rocketmq.client")
ffi: Any = importlib.import_module("rocketmq.ffi")
exceptions: Any = importlib.import_module("rocketmq.exceptions")
_check: Callable[[Any], None] = exceptions.ffi_check

_TIMEOUT = 10_000

# How often a pull is tried.
_PULLS = 20

# How often sending is, where the client knows no route.
_ROUTES = 20

_STATUS = ("SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
_PULLED = ("FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG", "OFFSET_ILLEGAL", "BROKER_TIMEOUT")

# The package has no name for it.
_compressOver = ffi.dll.SetProducerCompressMsgBodyOverHowmuch
_compressOver.argtypes = [ctypes.c_void_p, ctypes.c_int]
_compressOver.restype = ffi._CStatus

_printing = threading.Lock()


def tell(line: Command) -> None:
    """
    Say something.
    """
    with _printing:
        print(json.dumps(line), flush=True)


def _message(given: Command) -> Any:
    message = client.Message(given["topic"])
    body = b64decode(given["body"])
    _check(ffi.dll.SetByteMessageBody(message, body, len(body)))
    if "tags" in given:
        message.set_tags(given["tags"])
    if "keys" in given:
        message.set_keys(" ".join(given["keys"]))
    if "delay" in given:
        message.set_delay_time_level(given["delay"])
    for name, value in given.get("properties", {}).items():
        message.set_property(name, value)
    return message


def _text(data: bytes | None) -> str:
    return (data or b"").decode()


def _shown(message: Any, names: list[str]) -> Command:
    properties = {name: _text(message.get_property(name)) for name in names}
    return {
        "topic": message.topic,
        "body": b64encode(message.body).decode(),
        "tags": _text(message.tags),
        "keys": _text(message.keys),
        "properties": {name: value for name, value in properties.items() if value},
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.id,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "storeSize": message.store_size,
        "reconsumeTimes": message.reconsume_times,
    }


def _result(result: Any) -> Command:
    return {
        "status": _STATUS[int(result.status)],
        "msgId": result.msg_id,
        "queueOffset": result.offset,
    }


class Sender:
    """
    A producer.
    """

    def __init__(self, command: Command) -> None:
        self._producer = client.Producer(command["group"], timeout=_TIMEOUT)
        self._producer.set_namesrv_addr(command["nameServers"])
        _check(ffi.dll.SetProducerInstanceName(self._producer._handle, command["name"].encode()))
        if "compressOver" in command:
            _check(_compressOver(self._producer._handle, command["compressOver"]))
        if "maxSize" in command:
            self._producer.set_max_message_size(command["maxSize"])
        self._producer.start()

    def stop(self) -> None:
        """
        Leave.
        """
        self._producer.shutdown()

    def send(self, command: Command) -> list[Command | None]:
        """
        Send messages.
        """
        messages = [_message(each) for each in command["messages"]]
        match command["how"]:
            case "batch":
                return [_result(self._routed(self._producer.send_batch, messages))]
            case "async":
                return self._async(messages)
            case "oneway":
                for each in messages:
                    self._routed(self._producer.send_oneway, each)
                return [None] * len(messages)
            case "selector":
                # It knows numbers only.
                key = sum(command["key"].encode())
                orderly = self._producer.send_orderly
                return [_result(self._routed(orderly, each, key)) for each in messages]
        return [_result(self._routed(self._producer.send_sync, each)) for each in messages]

    def _routed(self, send: Callable[..., Any], *arguments: Any) -> Any:
        """
        Send, again if the client has no route: now and then it says so of a topic that the
        name server knows, as soon as it has started.
        """
        for _ in range(_ROUTES):
            try:
                return send(*arguments)
            except exceptions.RocketMQException as problem:
                if "No route info" not in str(problem):
                    raise
            time.sleep(0.2)
        return send(*arguments)

    def _async(self, messages: list[Any]) -> list[Command | None]:
        results: list[Command | None] = [None] * len(messages)
        problems: list[Exception] = []
        left = threading.Semaphore(0)

        def sent(place: int) -> Callable[[Any], None]:
            def done(result: Any) -> None:
                results[place] = _result(result)
                left.release()

            return done

        def failed(problem: Exception) -> None:
            problems.append(problem)
            left.release()

        for place, each in enumerate(messages):
            self._routed(self._producer.send_async, each, sent(place), failed)
        for _ in messages:
            assert left.acquire(timeout=_TIMEOUT / 1000), "not answered"
        if problems:
            raise problems[0]
        return results


class Receiver:
    """
    A consumer that messages are pushed to.
    """

    def __init__(self, command: Command) -> None:
        self._name = command["name"]
        self._properties = ["failTimes", *command["properties"]]
        # In order, the client itself does not count.
        self._times: Counter[str] = Counter()
        model = client.MessageModel
        self._consumer = client.PushConsumer(
            command["group"],
            command.get("orderly", False),
            model.BROADCASTING if command.get("broadcast") else model.CLUSTERING,
        )
        self._consumer.set_namesrv_addr(command["nameServers"])
        self._consumer.set_instance_name(command["name"])
        # Of several, those after one that fails would not be shown.
        self._consumer.set_message_batch_max_size(1)
        for each in command["subscriptions"]:
            topic, expression = each["topic"].encode(), each["expression"].encode()
            _check(ffi.dll.Subscribe(self._consumer._handle, topic, expression))
        # Not its own subscribe, which tells the client of success whatever is raised.
        self._consumer._register_callback(self._take)
        self._consumer.start()

    def stop(self) -> None:
        """
        Leave.
        """
        self._consumer.shutdown()

    def _take(self, consumer: Any, handle: Any) -> int:
        status = ffi._CConsumeStatus
        shown = _shown(client.RecvMessage(handle), self._properties)
        tell({"to": self._name, "message": shown})
        times = max(shown["reconsumeTimes"], self._times[shown["msgId"]])
        self._times[shown["msgId"]] += 1
        fails = times < int(shown["properties"].get("failTimes", "0"))
        return int(status.RECONSUME_LATER if fails else status.CONSUME_SUCCESS)


class Puller:
    """
    A consumer that fetches messages.
    """

    def __init__(self, command: Command) -> None:
        self._properties = command["properties"]
        self._consumer = client.PullConsumer(command["group"])
        self._consumer.set_namesrv_addr(command["nameServers"])
        self._consumer.start()

    def stop(self) -> None:
        """
        Leave.
        """
        self._consumer.shutdown()

    def _queues(self, topic: str) -> tuple[Any, int]:
        queues = ctypes.POINTER(ffi._CMessageQueue)()
        count = ctypes.c_int()
        _check(
            ffi.dll.FetchSubscriptionMessageQueues(
                self._consumer._handle,
                topic.encode(),
                ctypes.pointer(queues),
                ctypes.pointer(count),
            )
        )
        return queues, count.value

    def queues(self, command: Command) -> list[int]:
        """
        The queues of a topic.
        """
        queues, count = self._queues(command["topic"])
        found = [int(queues[each].queueId) for each in range(count)]
        _check(ffi.dll.ReleaseSubscriptionMessageQueue(queues))
        return found

    def pull(self, command: Command) -> Command:
        """
        Pull once.
        """
        queues, count = self._queues(command["topic"])
        queue = next(
            queues[each] for each in range(count) if queues[each].queueId == command["queueId"]
        )
        for _ in range(_PULLS):
            result = ffi.dll.Pull(
                self._consumer._handle,
                ctypes.pointer(queue),
                command["expression"].encode(),
                command["offset"],
                command["count"],
            )
            # What it also says while another of its threads is connecting.
            if _PULLED[result.pullStatus] != "BROKER_TIMEOUT":
                break
            time.sleep(0.2)
        shown = {
            "status": _PULLED[result.pullStatus],
            "next": result.nextBeginOffset,
            "min": result.minOffset,
            "max": result.maxOffset,
            "messages": [
                _shown(client.RecvMessage(result.msgFoundList[each]), self._properties)
                for each in range(result.size)
            ],
        }
        ffi.dll.ReleasePullResult(result)
        _check(ffi.dll.ReleaseSubscriptionMessageQueue(queues))
        return shown


_members: dict[str, Any] = {}


def run(command: Command) -> Any:
    """
    Do what a command says.
    """
    name = command["name"]
    match command["op"]:
        case "producer":
            _members[name] = Sender(command)
        case "consumer":
            _members[name] = Receiver(command)
        case "puller":
            _members[name] = Puller(command)
        case "stop":
            _members.pop(name).stop()
        case op:
            return getattr(_members[name], op)(command)
    return None


def serve(command: Command) -> None:
    """
    Do what a command says, and tell what became of it.
    """
    try:
        result = run(command)
    except Exception as problem:
        traceback.print_exc()
        tell({"id": command["id"], "error": f"{type(problem).__name__}: {problem}"})
    else:
        tell({"id": command["id"], "result": result})


if __name__ == "__main__":
    for line in sys.stdin:
        threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
