# SPDX-License-Identifier: Apache-2.0
"""
txrocket's store, driven from outside as C{JavaStore.java} drives RocketMQ's:
commands come in as lines of JSON, answers go out.  Run as a process of its own,
so that it can be killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from base64 import b64decode
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from tests.interop.content import content
from txrocket.bulk import SentMessage
from txrocket.message import Message
from txrocket.protocol.record import TRANSACTION_ROLLBACK_TYPE, encodeProperties
from txrocket.protocol.record.batch import encodeBatch
from txrocket.store.dispatch import SCHEDULE_TOPIC
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import StoreSettings, delayLevels

__all__ = ["Driver"]


def _host(pair: list[Any]) -> bytes:
    return bytes.fromhex(pair[0]) + int(pair[1]).to_bytes(4, "big")


def _delayed(command: dict[str, Any], levels: int) -> dict[str, Any]:
    """
    Where a delayed message goes, which Java's store decides by itself.
    """
    properties = command["properties"]
    level = min(int(properties.get("DELAY", "0")), levels)
    if not level or command.get("sysFlag", 0) & TRANSACTION_ROLLBACK_TYPE:
        return command
    real = {"REAL_TOPIC": command["topic"], "REAL_QID": str(command["queueId"])}
    return command | {
        "topic": SCHEDULE_TOPIC,
        "queueId": level - 1,
        "properties": properties | {"DELAY": str(level)} | real,
    }


class Driver:
    """
    A store on a clock that goes as the real one does, but by 2 ms at least from
    one message to the next.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.clock = Clock()
        self.clock.advance(time.time())
        self.store = MessageStore(settings, self.clock, maybeDeferred, b"")
        self.store.start()

    def put(self, command: dict[str, Any]) -> dict[str, Any]:
        """
        Store a message, or several.
        """
        self.clock.advance(max(0.002, time.time() - self.clock.seconds()))
        # One store, several addresses: a broker gets another when it moves.
        self.store.appender.storeHost = _host(command["storeHost"])
        shared = {
            "bornTimestamp": command["bornTimestamp"],
            "bornHost": _host(command["bornHost"]),
            "sysFlag": command.get("sysFlag", 0),
            "reconsumeTimes": command.get("reconsumeTimes", 0),
        }
        if command["op"] == "batch":
            topic = command["topic"]
            batch = encodeBatch(
                [
                    Message(
                        topic,
                        b64decode(each["body"]),
                        flag=each["flag"],
                        properties=each["properties"],
                    )
                    for each in command["messages"]
                ]
            )
            sent = SentMessage(
                None,
                (topic, command["queueId"]),
                batch,
                b"",
                shared["bornTimestamp"],
                sysFlag=shared["sysFlag"],
                reconsumeTimes=shared["reconsumeTimes"],
            )
            placed = self.store.appendBatch(sent, shared["bornHost"])
        else:
            command = _delayed(command, len(delayLevels(self.store.settings.messageDelayLevel)))
            placed = self.store.put(
                command["topic"],
                command["queueId"],
                b64decode(command["body"]),
                encodeProperties(command["properties"]),
                flag=command["flag"],
                preparedTransactionOffset=command.get("preparedTransactionOffset", 0),
                **shared,
            )
        self.clock.advance(0)
        return {"status": "PUT_OK", "offset": placed.offset, "queueOffset": placed.queueOffset}

    def stop(self) -> None:
        """
        Close the folder.
        """
        self.store.stop()


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main(folder: str, *sizes: str) -> None:
    """
    @param sizes: of log files, queue files, slots and entries.
    """
    names = (
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
    )
    given: dict[str, Any] = dict(zip(names, map(int, sizes), strict=True))
    driver = Driver(StoreSettings(folder, **given))
    _say({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        match command["op"]:
            case "put" | "batch":
                _say(driver.put(command))
            case "dump":
                for each in content(driver.store):
                    _say(each)
                _say({"end": driver.store.log.written})
            case "stop":
                driver.stop()
                _say({"stopped": True})
                return
            case "halt":
                os._exit(9)


if __name__ == "__main__":
    main(*sys.argv[1:])
