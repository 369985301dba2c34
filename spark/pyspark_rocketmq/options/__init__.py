# SPDX-License-Identifier: Apache-2.0
"""
The options of source, sink and store reader, parsed and checked.

They are checked on the driver when a table or stream is made, so that a wrong option does
not fail in a task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from pyspark_rocketmq.options.parser import CONNECTION, OptionParser
from pyspark_rocketmq.read.offsets import EARLIEST, LATEST, Position, parseQueues
from txrocket.blocking import Settings
from txrocket.client.sansio.pullrequest import wantedTags
from txrocket.errors import ConfigError, RocketError
from txrocket.filters.tags import EVERYTHING, TAG
from txrocket.model import MessageQueue
from txrocket.protocol.names import checkGroupName, checkSendTopic, checkTopicName

__all__ = [
    "SINK",
    "SOURCE",
    "STORE",
    "SinkOptions",
    "SourceOptions",
    "StoreOptions",
    "TopicChoice",
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

# Names of options in older connectors.
_SOURCE_ALIASES: Final = {
    "nameServer": "nameServers",
    "topic": "subscribe",
    "subExpression": "tags",
}
_SINK_ALIASES: Final = {"nameServer": "nameServers"}
_STORE_ALIASES: Final = {"topic": "subscribe"}


@attrs.frozen
class TopicChoice:
    """
    The topics to be read, or the queues of them.

    @ivar topics: the names of topics; empty if there is a pattern.
    @ivar pattern: a regular expression that matches the whole name of a topic.
    @ivar queues: the queues that C{assign} names; L{None} for all queues.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: tuple[MessageQueue, ...] | None = None

    def matches(self, topic: str) -> bool:
        """
        Whether a topic is to be read.
        """
        if self.pattern is None:
            return topic in self.topics
        return re.fullmatch(self.pattern, topic) is not None


@attrs.frozen
class SourceOptions:
    """
    The options of the source.

    @ivar settings: the client's settings.
    @ivar expression: the filter of messages: tags, or SQL92.
    @ivar starting: where to begin.
    @ivar ending: where a table ends.
    @ivar maxOffsets: the most messages of a micro-batch; L{None} is no limit.
    @ivar minOffsets: the fewest messages of a micro-batch.
    @ivar maxDelay: the seconds that fewer messages wait for a micro-batch.
    @ivar minPartitions: the wanted number of tasks.
    @ivar maxPartitions: the highest number of tasks.
    @ivar pullBatchSize: the most messages of a pull.
    @ivar arrowBatchRows: the rows of a batch of columns.
    @ivar groupId: the group whose offsets are committed to brokers; L{None} for none.
    """

    settings: Settings
    choice: TopicChoice
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

        @param streaming: whether they are options of a stream; L{None} if that is not
            known yet.
        @raise ConfigError: if an option is not valid; it lists all problems.
        """
        parser = OptionParser(options, SOURCE, _SOURCE_ALIASES)
        group = parser.text("groupId", None)
        if group is not None:
            _try(parser, "groupId", lambda: checkGroupName(group))
        if parser.truth("commitOffsets", False) and group is None:
            parser.problems.append("the option commitOffsets needs a groupId")
        expression, expressionType = _expression(parser)
        starting, ending = _starting(parser, streaming), _ending(parser)
        if streaming:
            for each in parser.exclusive(*_ENDING):
                parser.wrong(each, "a stream has no end")
        read = cls(
            settings=parser.settings(**({} if group is None else {"consumerGroup": group})),  # type: ignore[arg-type]
            choice=_choice(parser, _CHOICE),
            expression=expression,
            expressionType=expressionType,
            starting=starting,
            ending=ending,
            maxOffsets=parser.number("maxOffsetsPerTrigger", None),
            minOffsets=parser.number("minOffsetsPerTrigger", None),
            # A quarter of an hour, as Kafka's source has it.
            maxDelay=parser.duration("maxTriggerDelay", 900.0),
            minPartitions=parser.number("minPartitions", None),
            maxPartitions=parser.number("maxPartitions", None),
            failOnDataLoss=parser.truth("failOnDataLoss", True),
            includeProperties=parser.truth("includeProperties", True),
            # More than brokers give by default, for brokers that are configured to give more.
            pullBatchSize=parser.number("pullBatchSize", 1024),
            arrowBatchRows=parser.number("arrowBatchRows", 8192),
            pushDownFilters=parser.truth("pushDownFilters", False),
            groupId=group if parser.truth("commitOffsets", False) else None,
        )
        _order(parser, "minPartitions", read.minPartitions, "maxPartitions", read.maxPartitions)
        _order(
            parser,
            *("minOffsetsPerTrigger", read.minOffsets, "maxOffsetsPerTrigger", read.maxOffsets),
        )
        parser.check()
        return read


@attrs.frozen
class SinkOptions:
    """
    The options of the sink.

    @ivar topic: the topic of all rows; L{None} if each row has its own.
    @ivar sendBatchSize: the most messages of a request.
    @ivar maxRate: the most messages that a task sends in a second; L{None} is no limit.
    @ivar jobId: the seed of message ids, so that they are the same when the job runs
        again; L{None} for a random seed.
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
        parser = OptionParser(options, SINK, _SINK_ALIASES)
        topic = parser.text("topic", None)
        if topic is not None:
            _try(parser, "topic", lambda: checkSendTopic(topic))
        group = parser.text("producerGroup", "SPARK_PRODUCER")
        _try(parser, "producerGroup", lambda: checkGroupName(group))
        read = cls(
            settings=parser.settings(  # type: ignore[arg-type]
                producerGroup=group, maxMessageSize=parser.number("maxMessageSize", 4 << 20)
            ),
            topic=topic,
            sendBatchSize=parser.number("sendBatchSize", 1000),
            maxRate=parser.number("maxRowsPerSecond", None),
            jobId=parser.text("jobId", None),
        )
        parser.check()
        return read


@attrs.frozen
class StoreOptions:
    """
    The options of the store reader.

    @ivar paths: folders of stores, or of their logs.
    @ivar choice: the topics; L{None} for all.
    @ivar starting: read only messages stored at this time or later, in milliseconds.
    @ivar ending: read only messages stored before this time.
    @ivar brokerName: the broker of the store, which its files do not name.
    @ivar splitBytes: the most bytes of a log that one task reads.
    """

    paths: tuple[str, ...]
    choice: TopicChoice | None
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
        parser = OptionParser(options, STORE, _STORE_ALIASES)
        paths = parser.texts("path")
        if "path" not in parser:
            parser.problems.append("no folder is given: load(path), or the option path")
        some = any(each in parser for each in _CHOICE[:2])
        read = cls(
            paths=paths,
            choice=_choice(parser, _CHOICE[:2]) if some else None,
            starting=parser.number("startingTimestamp", None, 0),
            ending=parser.number("endingTimestamp", None, 0),
            brokerName=parser.text("brokerName", None),
            splitBytes=parser.number("splitBytes", 128 << 20, 1 << 20),
            checkCrc=parser.truth("checkCrc", False),
            failOnDataLoss=parser.truth("failOnDataLoss", True),
            includeProperties=parser.truth("includeProperties", True),
        )
        _order(parser, "startingTimestamp", read.starting, "endingTimestamp", read.ending)
        parser.check()
        return read


def _choice(parser: OptionParser, names: tuple[str, ...]) -> TopicChoice:
    there = parser.exclusive(*names)
    if not there:
        parser.problems.append(f"no topic is chosen: give one of the options {', '.join(names)}")
    topics = parser.texts("subscribe")
    for each in topics:
        _try(parser, "subscribe", lambda name=each: checkTopicName(name))  # type: ignore[misc]
    pattern = parser.text("subscribePattern", None)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            parser.wrong("subscribePattern", f"{pattern!r} is not a regular expression: {error}")
    if "assign" not in there:
        return TopicChoice(topics, pattern)
    try:
        queues = parseQueues("assign", parser.text("assign", ""))
    except ConfigError as error:
        parser.problems += error.problems
        return TopicChoice()
    return TopicChoice(tuple(dict.fromkeys(each.topic for each in queues)), None, queues)


def _expression(parser: OptionParser) -> tuple[str, str]:
    parser.exclusive("tags", "sql")
    sql = parser.text("sql", None)
    if sql is not None:
        return sql, SQL92
    tags = parser.text("tags", EVERYTHING)
    _try(parser, "tags", lambda: wantedTags(tags))
    return tags, TAG


def _starting(parser: OptionParser, streaming: bool | None) -> Position:
    found = _position(parser, _STARTING)
    if found is None:
        return Position(LATEST if streaming else EARLIEST, option=_STARTING[0])
    if streaming is False and found.value == LATEST and not found.byTime:
        parser.wrong(_STARTING[0], "a table that begins at latest has no rows")
    return found


def _ending(parser: OptionParser) -> Position:
    found = _position(parser, _ENDING)
    if found is None:
        return Position(LATEST, option=_ENDING[0])
    if found.value == EARLIEST and not found.byTime:
        parser.wrong(_ENDING[0], "a table that ends at earliest has no rows")
    return found


def _position(parser: OptionParser, names: tuple[str, ...]) -> Position | None:
    there = parser.exclusive(*names)
    if not there:
        return None
    offsets, timestamp, byTimestamp = names
    if there[0] == timestamp:
        return Position(parser.number(timestamp, 0, 0), True, timestamp)
    text = parser.text(there[0], "")
    if not text:
        return None
    try:
        if there[0] == byTimestamp:
            return Position.times(byTimestamp, text)
        return Position.word(offsets, text)
    except ConfigError as error:
        parser.problems += error.problems
        return None


def _try(parser: OptionParser, name: str, check: Callable[[], object]) -> None:
    try:
        check()
    except RocketError as error:
        parser.wrong(name, str(error))


def _order(parser: OptionParser, low: str, least: int | None, high: str, most: int | None) -> None:
    if least is not None and most is not None and least > most:
        parser.problems.append(f"the option {low}={least} is more than {high}={most}")
