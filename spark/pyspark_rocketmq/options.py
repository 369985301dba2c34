# SPDX-License-Identifier: Apache-2.0
"""
The options of source, sink and store reader, read and checked.

What is wrong is found when a table or stream is made, and not when the first task fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from pyspark_rocketmq.given import CONNECTION, Given
from pyspark_rocketmq.offsets import EARLIEST, LATEST, Position, parseQueues
from txrocket.blocking import Settings
from txrocket.client.pulled import wantedTags
from txrocket.errors import ConfigError, RocketError
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.model import MessageQueue
from txrocket.protocol.names import checkGroupName, checkSendTopic, checkTopicName

__all__ = [
    "SINK",
    "SOURCE",
    "STORE",
    "Chosen",
    "SinkOptions",
    "SourceOptions",
    "StoreOptions",
]

SQL92: Final = "SQL92"

_CHOICE: Final = ("subscribe", "subscribePattern", "assign")
_STARTING: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

#: The names of the source's options.
SOURCE: Final = (
    *CONNECTION,
    *_CHOICE,
    *_STARTING,
    *_ENDING,
    *("tags", "sql", "includeProperties", "failOnDataLoss"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("minPartitions", "maxPartitions", "pullBatchSize", "arrowBatchRows", "pushDownFilters"),
    *("groupId", "commitOffsets"),
)
#: The names of the sink's.
SINK: Final = (
    *CONNECTION,
    *("topic", "producerGroup", "sendBatchSize", "maxRowsPerSecond", "maxMessageSize", "jobId"),
)
#: The names of the store reader's.
STORE: Final = (
    *("path", "subscribe", "subscribePattern", "startingTimestamp", "endingTimestamp"),
    *("brokerName", "splitBytes", "checkCrc", "failOnDataLoss", "includeProperties"),
)

# What users of older connectors write.
_SOURCE_ALIASES: Final = {
    "nameServer": "nameServers",
    "topic": "subscribe",
    "subExpression": "tags",
}
_SINK_ALIASES: Final = {"nameServer": "nameServers"}
_STORE_ALIASES: Final = {"topic": "subscribe"}


@attrs.frozen
class Chosen:
    """
    Which topics, or which queues of them.

    @ivar topics: their names.
    @ivar pattern: a regular expression that their whole names match, if that is what
        chooses them.
    @ivar queues: the only queues, if they were named.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: tuple[MessageQueue, ...] | None = None

    def matches(self, topic: str) -> bool:
        """
        Whether a topic is chosen.
        """
        if self.pattern is None:
            return topic in self.topics
        return re.fullmatch(self.pattern, topic) is not None


@attrs.frozen
class SourceOptions:
    """
    What the source is told.

    @ivar settings: how to reach the cluster.
    @ivar expression: which messages: tags, or SQL92.
    @ivar starting: where to begin.
    @ivar ending: where a table ends.
    @ivar maxOffsets: how many messages a micro-batch has at most; L{None} is no limit.
    @ivar minOffsets: how many there must be for one.
    @ivar maxDelay: how many seconds fewer of them wait at most.
    @ivar minPartitions: how many tasks there should be at least.
    @ivar maxPartitions: how many there may be.
    @ivar pullBatchSize: how many messages a pull asks for.
    @ivar arrowBatchRows: how many rows Spark gets at a time.
    @ivar groupId: in whose name progress is told to brokers, if it is.
    """

    settings: Settings
    chosen: Chosen
    expression: str
    expressionType: str
    starting: Position
    ending: Position
    maxOffsets: int | None
    minOffsets: int | None
    maxDelay: float
    minPartitions: int | None
    maxPartitions: int | None
    failOnDataLoss: bool
    includeProperties: bool
    pullBatchSize: int
    arrowBatchRows: int
    pushDownFilters: bool
    groupId: str | None

    @classmethod
    def read(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
        """
        Read and check them.

        @param streaming: whether they are those of a stream; L{None} if that is not
            known yet.
        @raise ConfigError: saying all that is wrong.
        """
        given = Given(options, SOURCE, _SOURCE_ALIASES)
        group = given.text("groupId", None)
        if group is not None:
            _try(given, "groupId", lambda: checkGroupName(group))
        if given.truth("commitOffsets", False) and group is None:
            given.problems.append("the option commitOffsets needs a groupId")
        expression, expressionType = _expression(given)
        starting, ending = _starting(given, streaming), _ending(given)
        if streaming:
            for each in given.exclusive(*_ENDING):
                given.wrong(each, "a stream has no end")
        read = cls(
            settings=given.settings(**({} if group is None else {"consumerGroup": group})),  # type: ignore[arg-type]
            chosen=_chosen(given, _CHOICE),
            expression=expression,
            expressionType=expressionType,
            starting=starting,
            ending=ending,
            maxOffsets=given.number("maxOffsetsPerTrigger", None),
            minOffsets=given.number("minOffsetsPerTrigger", None),
            # A quarter of an hour, as Kafka's source has it.
            maxDelay=given.duration("maxTriggerDelay", 900.0),
            minPartitions=given.number("minPartitions", None),
            maxPartitions=given.number("maxPartitions", None),
            failOnDataLoss=given.truth("failOnDataLoss", True),
            includeProperties=given.truth("includeProperties", True),
            # More than brokers give by default: those that may give more do.
            pullBatchSize=given.number("pullBatchSize", 1024),
            arrowBatchRows=given.number("arrowBatchRows", 8192),
            pushDownFilters=given.truth("pushDownFilters", False),
            groupId=group if given.truth("commitOffsets", False) else None,
        )
        _order(given, "minPartitions", read.minPartitions, "maxPartitions", read.maxPartitions)
        _order(
            given,
            *("minOffsetsPerTrigger", read.minOffsets, "maxOffsetsPerTrigger", read.maxOffsets),
        )
        given.check()
        return read


@attrs.frozen
class SinkOptions:
    """
    What the sink is told.

    @ivar topic: the topic of all rows; L{None} if each row says its own.
    @ivar sendBatchSize: how many messages a request has at most.
    @ivar maxRate: how many messages a task sends in a second at most; L{None} is no
        limit.
    @ivar jobId: what the ids of a job's rows are made of in place of chance, so that
        they are the same when the job is run again.
    """

    settings: Settings
    topic: str | None
    sendBatchSize: int
    maxRate: int | None
    jobId: str | None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SinkOptions:
        """
        Read and check them.

        @raise ConfigError: saying all that is wrong.
        """
        given = Given(options, SINK, _SINK_ALIASES)
        topic = given.text("topic", None)
        if topic is not None:
            _try(given, "topic", lambda: checkSendTopic(topic))
        group = given.text("producerGroup", "SPARK_PRODUCER")
        _try(given, "producerGroup", lambda: checkGroupName(group))
        read = cls(
            settings=given.settings(  # type: ignore[arg-type]
                producerGroup=group, maxMessageSize=given.number("maxMessageSize", 4 << 20)
            ),
            topic=topic,
            sendBatchSize=given.number("sendBatchSize", 1000),
            maxRate=given.number("maxRowsPerSecond", None),
            jobId=given.text("jobId", None),
        )
        given.check()
        return read


@attrs.frozen
class StoreOptions:
    """
    What the store reader is told.

    @ivar paths: folders of stores, or of their logs.
    @ivar chosen: the topics; L{None} for all.
    @ivar starting: only messages stored at this time or later, in milliseconds.
    @ivar ending: only messages stored before.
    @ivar brokerName: whose store it is: files do not say.
    @ivar splitBytes: how much of a log one task reads at most.
    """

    paths: tuple[str, ...]
    chosen: Chosen | None
    starting: int | None
    ending: int | None
    brokerName: str | None
    splitBytes: int
    checkCrc: bool
    failOnDataLoss: bool
    includeProperties: bool

    @classmethod
    def read(cls, options: Mapping[str, str]) -> StoreOptions:
        """
        Read and check them.

        @raise ConfigError: saying all that is wrong.
        """
        given = Given(options, STORE, _STORE_ALIASES)
        paths = given.texts("path")
        if "path" not in given:
            given.problems.append("no folder is given: load(path), or the option path")
        some = any(each in given for each in _CHOICE[:2])
        read = cls(
            paths=paths,
            chosen=_chosen(given, _CHOICE[:2]) if some else None,
            starting=given.number("startingTimestamp", None, 0),
            ending=given.number("endingTimestamp", None, 0),
            brokerName=given.text("brokerName", None),
            splitBytes=given.number("splitBytes", 128 << 20, 1 << 20),
            checkCrc=given.truth("checkCrc", False),
            failOnDataLoss=given.truth("failOnDataLoss", True),
            includeProperties=given.truth("includeProperties", True),
        )
        _order(given, "startingTimestamp", read.starting, "endingTimestamp", read.ending)
        given.check()
        return read


def _chosen(given: Given, names: tuple[str, ...]) -> Chosen:
    there = given.exclusive(*names)
    if not there:
        given.problems.append(f"no topic is chosen: give one of the options {', '.join(names)}")
    topics = given.texts("subscribe")
    for each in topics:
        _try(given, "subscribe", lambda name=each: checkTopicName(name))  # type: ignore[misc]
    pattern = given.text("subscribePattern", None)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            given.wrong("subscribePattern", f"{pattern!r} is no regular expression: {error}")
    if "assign" not in there:
        return Chosen(topics, pattern)
    try:
        queues = parseQueues("assign", given.text("assign", ""))
    except ConfigError as error:
        given.problems += error.problems
        return Chosen()
    return Chosen(tuple(dict.fromkeys(each.topic for each in queues)), None, queues)


def _expression(given: Given) -> tuple[str, str]:
    given.exclusive("tags", "sql")
    sql = given.text("sql", None)
    if sql is not None:
        return sql, SQL92
    tags = given.text("tags", EVERYTHING)
    _try(given, "tags", lambda: wantedTags(tags))
    return tags, TAG


def _starting(given: Given, streaming: bool | None) -> Position:
    found = _position(given, _STARTING)
    if found is None:
        return Position(LATEST if streaming else EARLIEST, option=_STARTING[0])
    if streaming is False and found.value == LATEST and not found.byTime:
        given.wrong(_STARTING[0], "a table that begins at latest has no rows")
    return found


def _ending(given: Given) -> Position:
    found = _position(given, _ENDING)
    if found is None:
        return Position(LATEST, option=_ENDING[0])
    if found.value == EARLIEST and not found.byTime:
        given.wrong(_ENDING[0], "a table that ends at earliest has no rows")
    return found


def _position(given: Given, names: tuple[str, ...]) -> Position | None:
    there = given.exclusive(*names)
    if not there:
        return None
    offsets, timestamp, byTimestamp = names
    if there[0] == timestamp:
        return Position(given.number(timestamp, 0, 0), True, timestamp)
    text = given.text(there[0], "")
    if not text:
        return None
    try:
        if there[0] == byTimestamp:
            return Position.times(byTimestamp, text)
        return Position.word(offsets, text)
    except ConfigError as error:
        given.problems += error.problems
        return None


def _try(given: Given, name: str, check: Callable[[], object]) -> None:
    try:
        check()
    except RocketError as error:
        given.wrong(name, str(error))


def _order(given: Given, low: str, least: int | None, high: str, most: int | None) -> None:
    if least is not None and most is not None and least > most:
        given.problems.append(f"the option {low}={least} is more than {high}={most}")
