# SPDX-License-Identifier: Apache-2.0
"""
Rows sent as messages.

A task sends its rows in batches, of one topic and queue each, in their order, and is done
when brokers have all of them.  If it fails it is tried again from its first row, so a
message comes at least once; it has the same id each time, so that consumers can leave out
the second::

    rows --> Outgoing --> waiting, by topic and queue --> sendData
                                                     --> send, what cannot be in a batch
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

from pyspark_rocketmq.cluster import clientFor, patiently
from pyspark_rocketmq.messages import Outgoing, RowIds, checkColumns, outgoing
from pyspark_rocketmq.options import SinkOptions
from txrocket.blocking import Client
from txrocket.client.topicroute import writeQueues
from txrocket.errors import ConfigError, InvalidMessage
from txrocket.message import Message, splitProperties
from txrocket.model import MessageQueue
from txrocket.protocol.batch import encodeItem

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Outbox", "Pace", "Sent", "StreamWriter", "TableWriter"]

# RocketMQ advises no larger batches than that, whatever fits a request.
_BATCH_BYTES: Final = 1 << 20

_RETRY_PREFIX: Final = "%RETRY%"

# In seconds.
_MOMENT: Final = 0.05

# What Spark tells a task of a stream.
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


class Sent(WriterCommitMessage):
    """
    What a task has done.

    @ivar count: how many messages it sent.
    """

    def __init__(self, count: int) -> None:
        self.count = count


class Outbox:
    """
    Messages on their way.
    """

    def __init__(self, client: Client, options: SinkOptions) -> None:
        self._client = client
        self._most = options.sendBatchSize
        self._limit = client.settings.maxMessageSize
        self._room = min(self._limit, _BATCH_BYTES)
        self._waiting: dict[tuple[str, MessageQueue | None], list[bytes]] = {}
        self._sizes: dict[tuple[str, MessageQueue | None], int] = {}
        self._known: dict[tuple[str, str | None, int], MessageQueue] = {}

    def put(self, each: Outgoing) -> None:
        """
        Take a message, and send what is worth a request.
        """
        queue = self._queue(each)
        item = encodeItem(each.body, each.properties, each.flag)
        if (
            each.delayLevel > 0
            or each.topic.startswith(_RETRY_PREFIX)
            # Of a batch, what is around a body counts as well.
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
        Send all that waits.
        """
        for key in list(self._waiting):
            self._send(key)

    def _send(self, key: tuple[str, MessageQueue | None]) -> None:
        items = self._waiting.pop(key)
        del self._sizes[key]
        topic, queue = key
        data = b"".join(items)
        patiently(
            self._client.settings.timeout,
            lambda left: self._client.sendData(topic, data, queue, timeout=left),
        )

    def _single(self, each: Outgoing, queue: MessageQueue | None) -> None:
        message = Message(
            each.topic,
            each.body,
            flag=each.flag,
            delayTimeLevel=each.delayLevel,
            properties=splitProperties(each.properties.decode()),
        )
        patiently(
            self._client.settings.timeout,
            lambda left: self._client.send(message, queue, timeout=left),
        )

    def _queue(self, each: Outgoing) -> MessageQueue | None:
        """
        The queue that a row asks for.
        """
        if each.queueId is None:
            return None
        key = each.topic, each.brokerName, each.queueId
        if key not in self._known:
            route = patiently(
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
            # If no broker is named, always the same one: a queue keeps its order.
            self._known[key] = min(fitting)
        return self._known[key]


class Pace:
    """
    So many in a second, and no more.
    """

    def __init__(
        self,
        rate: int | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        @param rate: how many; L{None} is no limit.
        """
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._began = now()

    def wait(self, count: int, before: Callable[[], object]) -> None:
        """
        Wait until it is time for the next.

        @param count: how many there have been.
        @param before: called before it waits.
        """
        if self._rate is not None:
            early = self._began + count / self._rate - self._now()
            # A moment that is too short to be slept is slept later.
            if early > _MOMENT:
                before()
                self._sleep(early)


class _Sink:
    """
    What writers of tables and of streams have in common.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """
        @raise ConfigError: if a column is wrong.
        """
        self.options = options
        self._columns = checkColumns(
            ((each.name, each.dataType.simpleString()) for each in schema), options.topic
        )

    def send(self, batches: Iterator[pa.RecordBatch], job: str, batch: int) -> Sent:
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
                name: each.column(given).to_pylist() for name, given in self._columns.items()
            }
            rows = outgoing(columns, each.num_rows, self.options.topic, ids, count)
            for index, message in enumerate(rows, count):
                pace.wait(index, outbox.flush)
                outbox.put(message)
            count += each.num_rows
        outbox.flush()
        return Sent(count)


class TableWriter(_Sink, DataSourceArrowWriter):
    """
    Sends the rows of a table.
    """

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        """
        @raise ConfigError: if a column is wrong, or what is there is to be replaced.
        """
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: write with mode("append")')
        super().__init__(options, schema)
        # Once, here on the driver: all attempts of a task are to give the same ids.
        self._job = options.jobId or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """
        Send the rows of a task.
        """
        return self.send(iterator, self._job, 0)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """
    Sends the rows of a stream.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """
        Send the rows of a task of a micro-batch.  A stream that is started again from
        its checkpoint has the same id, and so has the batch that it repeats.
        """
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        if query is None or batch is None:
            raise ConfigError(
                "Spark does not say which micro-batch this is; Spark 4.2 or newer is needed"
            )
        return self.send(iterator, self.options.jobId or query, int(batch))
