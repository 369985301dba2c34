# SPDX-License-Identifier: Apache-2.0
"""
All that clients can get from a broker: pulls of every queue, keys, tags, tables, a push consumer.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import attrs

from tests.damage.template import FIRST, TAGS, TOPICS, Template
from tests.damage.world import World
from txrocket.client.consumer.push.pushconsumer import PushConsumer
from txrocket.client.producer.producer import Producer
from txrocket.errors import MalformedRecord, RocketError
from txrocket.message import Message, MessageExt
from txrocket.model import MessageQueue
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
)
from txrocket.protocol.record import decodeRecord, measureRecord

Place = tuple[str, int, int]

_SUBSCRIPTION: Final = 4
# So few that many pulls are of one file of the log, which the compiled module serves.
_BATCH: Final = 8
_PUSH_SECONDS: Final = 45
_PUSH_PATIENCE: Final = 150
_GOES_ON: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@attrs.define
class Audit:
    """
    What was got.

    @ivar pulled: by place, what pulls of everything gave.
    @ivar tagged: the places that pulls of one tag gave.
    @ivar keyed: by topic and key, the places that were found.
    @ivar state: the tables.
    @ivar sent: what was sent anew, by place.
    @ivar pushed: what the push consumer's listener was given.
    @ivar faults: what a client met that must not be.
    @ivar told: what a client met that tells of damage.
    """

    pulled: dict[Place, MessageExt] = attrs.field(factory=dict)
    tagged: set[Place] = attrs.field(factory=set)
    keyed: dict[tuple[str, str], set[Place]] = attrs.field(factory=dict)
    state: dict[str, Any] = attrs.field(factory=dict)
    sent: dict[Place, bytes] = attrs.field(factory=dict)
    pushed: list[MessageExt] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)
    told: list[str] = attrs.field(factory=list)


class Auditor:
    """
    Gets it.
    """

    def __init__(self, world: World, template: Template, keys: list[tuple[str, str]]) -> None:
        self._world = world
        self._template = template
        self._keys = keys
        self._audit = Audit()

    def run(self) -> Audit:
        """
        Get everything, one thing after the other.
        """
        audit = self._audit
        self._tables()
        for (topic, queueId), end in sorted(self._template.ends.items()):
            for each in self._pullAll(topic, queueId, "*", end):
                audit.pulled[each.topic, each.queueId, each.queueOffset] = each
            if topic == "Orders":
                for each in self._pullAll(topic, queueId, TAGS[0], end):
                    audit.tagged.add((each.topic, each.queueId, each.queueOffset))
        for topic, key in self._keys:
            header = QueryMessageRequestHeader(topic, key, 64, 0, 2**62)
            found = self._world.ask(RequestCode.QUERY_MESSAGE, header)
            audit.keyed[topic, key] = {
                (each.topic, each.queueId, each.queueOffset)
                for each in self._decoded(found.body, f"query {topic} {key}")
            }
        self._send()
        self._push()
        return audit

    def _tables(self) -> None:
        world, state = self._world, self._audit.state
        for name, code, member in (
            ("topics", RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable"),
            ("groups", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"),
            ("offsets", RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable"),
            ("delays", RequestCode.GET_ALL_DELAY_OFFSET, "offsetTable"),
        ):
            answer = world.ask(code)
            try:
                state[name] = json.loads(_quoted(answer.body))[member]
            except (ValueError, KeyError):
                state[name] = answer.body
        state["filter"] = world.servers.broker().tables.filters.described("choosers", "Orders")

    # --- pulls -----------------------------------------------------------

    def _decoded(self, data: bytes, where: str) -> list[MessageExt]:
        """
        The records of an answer.  One whose body does not match its checksum is left out, as a
        client does.
        """
        found: list[MessageExt] = []
        position = 0
        while position < len(data):
            try:
                message = decodeRecord(data, position, checkCrc=True)
            except MalformedRecord as error:
                try:
                    decodeRecord(data, position)
                    position += measureRecord(data, position)[0]
                except (MalformedRecord, RocketError):
                    self._audit.faults.append(f"garbled answer: {where}")
                    return found
                self._audit.told.append(f"client: {error}")
                continue
            except RocketError as error:
                self._audit.told.append(f"client: {error}")
                position += measureRecord(data, position)[0]
                continue
            found.append(message)
            position += message.storeSize
        return found

    def _pullAll(self, topic: str, queueId: int, tags: str, end: int) -> list[MessageExt]:
        found: list[MessageExt] = []
        offset, where = 0, f"pull {topic} {queueId}"
        while True:
            header = PullMessageRequestHeader(
                *("auditors", topic, queueId, offset, _BATCH, _SUBSCRIPTION, 0, 0, 0, tags)
            )
            answer = self._world.ask(RequestCode.PULL_MESSAGE, header)
            if answer.code == ResponseCode.SUCCESS:
                messages = self._decoded(answer.body, where)
                for each in messages:
                    if (each.topic, each.queueId) != (topic, queueId):
                        self._audit.faults.append(f"a record of another queue: {where}")
                    elif not offset <= each.queueOffset:
                        self._audit.faults.append(f"a record of another offset: {where}")
                    else:
                        found.append(each)
            elif answer.code not in _GOES_ON:
                self._audit.told.append(f"{where}: {answer.code} {answer.remark}")
                return found
            place = answer.decodeHeader(PullMessageResponseHeader)
            if place.nextBeginOffset <= offset:
                if place.nextBeginOffset < min(end, place.maxOffset):
                    self._audit.faults.append(f"stall: {where} stays at {offset}")
                return found
            offset = place.nextBeginOffset

    # --- sends -----------------------------------------------------------

    def _queues(self) -> list[tuple[str, int]]:
        return sorted(key for key in self._template.ends if key[0] in TOPICS)

    def _send(self) -> None:
        producer = self._world.join(Producer(self._world.client(), "senders"))
        for topic, queueId in self._queues():
            for number in range(2):
                body = f"new {topic} {queueId} {number}".encode()
                queue = MessageQueue(topic, "broker-0", queueId)
                try:
                    result = self._world.wait(producer.send(Message(topic, body), queue))
                except RocketError as error:
                    self._audit.faults.append(f"send {topic} {queueId}: {error}")
                    continue
                place = topic, queueId, result.queueOffset
                if place in self._audit.sent:
                    self._audit.faults.append(f"offset given twice: new {place}")
                self._audit.sent[place] = body
        self._world.leave(producer)
        for topic, queueId, number in self._audit.sent:
            again = {
                (each.topic, each.queueId, each.queueOffset): each.body
                for each in self._pullFrom(topic, queueId, number)
            }
            if again.get((topic, queueId, number)) != self._audit.sent[topic, queueId, number]:
                self._audit.faults.append(f"unreachable: new {topic} {queueId} {number}")

    def _pullFrom(self, topic: str, queueId: int, offset: int) -> list[MessageExt]:
        header = PullMessageRequestHeader(
            *("auditors", topic, queueId, offset, 4, _SUBSCRIPTION, 0, 0, 0, "*")
        )
        answer = self._world.ask(RequestCode.PULL_MESSAGE, header)
        return self._decoded(answer.body, f"pull {topic} {queueId}") if answer.body else []

    # --- the push consumer -----------------------------------------------

    def _push(self) -> None:
        world = self._world
        consumer = PushConsumer(
            world.client(), "readers", self._audit.pushed.append, consumeFromWhere=FIRST
        )
        for topic in TOPICS:
            consumer.subscribe(topic)
        world.join(consumer)
        world.servers.advance(_PUSH_SECONDS)
        began, lag = world.age, self._lag()
        while lag and world.age < began + _PUSH_PATIENCE:
            world.servers.advance(10)
            lag = self._lag()
        for each in lag:
            self._audit.faults.append(f"stall: push {each}")
        world.leave(consumer)

    def _lag(self) -> list[str]:
        """
        The queues of which the group has not consumed all.
        """
        lag = []
        for topic, queueId in self._queues():
            answer = self._world.ask(
                RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic, queueId)
            )
            if answer.code != ResponseCode.SUCCESS:
                continue
            end = answer.decodeHeader(GetMaxOffsetResponseHeader).offset
            answer = self._world.ask(
                RequestCode.QUERY_CONSUMER_OFFSET,
                QueryConsumerOffsetRequestHeader("readers", topic, queueId),
            )
            done = -1
            if answer.code == ResponseCode.SUCCESS:
                done = answer.decodeHeader(QueryConsumerOffsetResponseHeader).offset
            if done != end:
                lag.append(f"{topic} {queueId}: {done} of {end}")
        return lag


def _quoted(body: bytes) -> bytes:
    """
    fastjson's maps may have numbers for keys, which JSON has not.
    """
    return re.sub(rb"([{,])(-?\d+):", rb'\1"\2":', body)
