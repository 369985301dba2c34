# SPDX-License-Identifier: Apache-2.0
"""
A writer that sends rows as messages.

A task sends its rows in order, in batches of one topic and queue each, and ends when
brokers have stored all of them.  If it fails, Spark repeats it from its first row, so that
a message is sent at least once.  It has the same id each time, so that consumers can
recognise a duplicate::

    rows --> RowMessage --> waiting, by topic and queue --> sendData
                        --> send, if a batch cannot have it
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.read.topicinfo import clientFor, retry
from pyspark_rocketmq.write.rowmessages import RowIds, RowMessage, checkColumns, rowMessages
from txrocket.blocking import Client
from txrocket.client.sansio.topicroute import writeQueues
from txrocket.errors import ConfigError, InvalidMessage
from txrocket.message import Message, splitProperties
from txrocket.model import MessageQueue
from txrocket.protocol.record.batch import encodeItem

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Outbox", "Pace", "StreamWriter", "TableWriter", "WriteResult"]

# RocketMQ advises against larger batches, even if a request could be larger.
_BATCH_BYTES: Final = 1 << 20

_RETRY_PREFIX: Final = "%RETRY%"

# The least seconds to sleep.
_MOMENT: Final = 0.05

# Spark's local properties of a task of a stream.
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


class WriteResult(WriterCommitMessage):
    """
    The result of a task.

    @ivar count: the number of messages sent.
    """

    def __init__(self, count: int) -> None:
        self.count = count


class Outbox:
    """
    Collects messages into batches by topic and queue, and sends the batches.
    """

    def __init__(self, client: Client, options: SinkOptions) -> None:
        self._client = client
        self._most = options.sendBatchSize
        self._limit = client.settings.maxMessageSize
        self._room = min(self._limit, _BATCH_BYTES)
        self._waiting: dict[tuple[str, MessageQueue | None], list[bytes]] = {}
        self._sizes: dict[tuple[str, MessageQueue | None], int] = {}
        self._known: dict[tuple[str, str | None, int], MessageQueue] = {}

    def put(self, each: RowMessage) -> None:
        """
        Add a message to its batch.  If the batch is full, send it first.
        """
        queue = self._queue(each)
        item = encodeItem(each.body, each.properties, each.flag)
        if (
            each.delayLevel > 0
            or each.topic.startswith(_RETRY_PREFIX)
            # The limit applies to a batch with the fields around each body.
            or len(item) > self._limit
        ):
            self._single(each, queue)
            return
        key = each.topic, queue
        waiting = self._waiting.setdefault(key, [])
        size = self._sizes.get(key, 0) + len(item)
        if waiting and (size > self._room or len(waiting) >= self._most):
            self._send(key)
            waiting, size = self._waiting.setdefault(key, []), len(item)
        waiting.append(item)
        self._sizes[key] = size

    def flush(self) -> None:
        """
        Send all batches.
        """
        for key in list(self._waiting):
            self._send(key)

    def _send(self, key: tuple[str, MessageQueue | None]) -> None:
        items = self._waiting.pop(key)
        del self._sizes[key]
        topic, queue = key
        data = b"".join(items)
        retry(
            self._client.settings.timeout,
            lambda left: self._client.sendData(topic, data, queue, timeout=left),
        )

    def _single(self, each: RowMessage, queue: MessageQueue | None) -> None:
        message = Message(
            each.topic,
            each.body,
            flag=each.flag,
            delayTimeLevel=each.delayLevel,
            properties=splitProperties(each.properties.decode()),
        )
        retry(
            self._client.settings.timeout,
            lambda left: self._client.send(message, queue, timeout=left),
        )

    def _queue(self, each: RowMessage) -> MessageQueue | None:
        """
        The queue that a row names; L{None} if it names none.
        """
        if each.queueId is None:
            return None
        key = each.topic, each.brokerName, each.queueId
        if key not in self._known:
            route = retry(
                self._client.settings.timeout,
                lambda left: self._client.route(each.topic, timeout=left),
            )
            fitting = [
                queue
                for queue in writeQueues(each.topic, route)
                if queue.queueId == each.queueId and each.brokerName in (None, queue.brokerName)
            ]
            if not fitting:
                at = "" if each.brokerName is None else f" at {each.brokerName}"
                raise InvalidMessage(
                    f"topic {each.topic} has no queue {each.queueId}{at} that can be written to"
                )
            # If no broker is named, always choose the same one, to keep the order of rows.
            self._known[key] = min(fitting)
        return self._known[key]


class Pace:
    """
    Limits the messages in a second.
    """

    def __init__(
        self,
        rate: int | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        @param rate: messages in a second; L{None} is no limit.
        """
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._began = now()

    def wait(self, count: int, before: Callable[[], object]) -> None:
        """
        Wait until the next message is due.

        @param count: the number of messages so far.
        @param before: called before it waits.
        """
        if self._rate is not None:
            early = self._began + count / self._rate - self._now()
            # Shorter waits add up until they are long enough to sleep.
            if early > _MOMENT:
                before()
                self._sleep(early)


class _Sink:
    """
    The common part of the writers of tables and streams.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """
        @raise ConfigError: if a column is not valid.
        """
        self.options = options
        self._columns = checkColumns(
            ((each.name, each.dataType.simpleString()) for each in schema), options.topic
        )

    def send(self, batches: Iterator[pa.RecordBatch], job: str, batch: int) -> WriteResult:
        """
        Send the rows of a task.
        """
        context = TaskContext.get()
        ids = RowIds(job, batch, context.partitionId() if context else 0)
        outbox = Outbox(clientFor(self.options.settings), self.options)
        pace = Pace(self.options.maxRate)
        count = 0
        for each in batches:
            columns = {
                name: each.column(column).to_pylist() for name, column in self._columns.items()
            }
            rows = rowMessages(columns, each.num_rows, self.options.topic, ids, count)
            for index, message in enumerate(rows, count):
                pace.wait(index, outbox.flush)
                outbox.put(message)
            count += each.num_rows
        outbox.flush()
        return WriteResult(count)


class TableWriter(_Sink, DataSourceArrowWriter):
    """
    Sends the rows of a table.
    """

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        """
        @raise ConfigError: if a column is not valid, or the mode is to overwrite.
        """
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: write with mode("append")')
        super().__init__(options, schema)
        # Chosen once on the driver, so that all attempts of a task give the same ids.
        self._job = options.jobId or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        """
        Send the rows of a task.
        """
        return self.send(iterator, self._job, 0)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """
    Sends the rows of a stream.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        """
        Send the rows of a task of a micro-batch.  After a restart from its checkpoint, a
        stream and the batch that it repeats have the same ids as before.
        """
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        if query is None or batch is None:
            raise ConfigError(
                "Spark does not say which micro-batch this is; Spark 4.2 or newer is needed"
            )
        return self.send(iterator, self.options.jobId or query, int(batch))
