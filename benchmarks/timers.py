# SPDX-License-Identifier: Apache-2.0
"""
Messages with delivery times: the cost of a million parked ones for a broker, and the
lateness of others meanwhile.

    python -m benchmarks.timers

A broker in its own process gets a million messages that are due within the next hours, is
restarted, and then gets some that are due soon.  The lateness of these is read from its
files: the time at which each was due, and the time at which it was delivered.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator

import attrs
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from benchmarks.broker import QUEUE, TOPIC, Asker, Broker
from benchmarks.load import cpuSeconds, drive, memory
from txrocket.message import MessageExt
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import SendMessageRequestHeaderV2
from txrocket.protocol.record import decodeRecords
from txrocket.store.messagestore import MessageStore
from txrocket.store.settings import StoreSettings

_BODY = b"x" * 100
_HOUR = 3_600_000

# The number of different times among the parked messages.
_TIMES = 20_000


@attrs.frozen
class Size:
    """
    The amounts of work.

    @ivar pending: the messages that are parked for hours.
    @ivar soon: the messages due one after the other, and the seconds in which they are.
    @ivar burst: the messages due in the same millisecond.
    @ivar ahead: the seconds from the sends to the first of these.
    """

    pending: int = 1_000_000
    soon: int = 20_000
    spread: float = 10.0
    burst: int = 20_000
    ahead: float = 5.0


def timed(when: int, number: int) -> RemotingCommand:
    """
    A send of a message that is due at a time.
    """
    header = SendMessageRequestHeaderV2(
        producerGroup="bench_producer",
        topic=TOPIC,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=QUEUE,
        sysFlag=0,
        bornTimestamp=1794800784197,
        flag=0,
        properties=f"UNIQ_KEY\x01{number:032X}\x02TIMER_DELIVER_MS\x01{when}",
    )
    return requestCommand(RequestCode.SEND_MESSAGE_V2, header, _BODY)


def _line(what: str, figure: str, more: str = "") -> None:
    print(f"{what:48} {figure:>12}  {more}".rstrip())


def _send(broker: Broker, times: list[int], count: int) -> float:
    """
    Send messages to the broker.

    @return: its CPU microseconds for each.
    """
    asker = Asker(broker.port)
    with asker.socket:
        # Check the answer of one message alone; the load only counts the others.
        asker.send(timed(times[-1], 0))
        asker.expect(ResponseCode.SUCCESS)
    frames = [timed(when, number).encode() for number, when in enumerate(times)]
    before = cpuSeconds(broker.pid)
    drive(broker.port, frames, count - 1, 1, 64)
    return 1e6 * (cpuSeconds(broker.pid) - before) / count


def _wait(pending: Broker, size: Size) -> None:
    """
    Park messages, and print the cost.
    """
    before = memory(pending.pid)[0]
    now = int(time.time() * 1000)
    # Due in one to eleven hours, so that all are in buckets of the timer wheel.
    times = [now + _HOUR + each * 10 * _HOUR // _TIMES for each in range(_TIMES)]
    cost = _send(pending, times, size.pending)
    after = memory(pending.pid)[0]
    _line(f"{size.pending:,} messages that wait, each", f"{cost:.1f} us")
    _line("memory of its own, more than before (RssAnon)", f"{after - before:.1f} MB")


def _deliver(broker: Broker, size: Size) -> int:
    """
    Send messages that are due soon, and wait for them.

    @return: the time of the burst.
    """
    first = int((time.time() + size.ahead) * 1000)
    step = size.spread * 1000 / size.soon
    last = first + int(size.spread * 1000)
    _send(broker, [first + int(each * step) for each in range(size.soon)], size.soon)
    burst = last + 2000
    _send(broker, [burst], size.burst)
    cpu = cpuSeconds(broker.pid)
    time.sleep(max(0.0, burst / 1000 - time.time()))
    while cpuSeconds(broker.pid) - cpu > 0.05:
        cpu = cpuSeconds(broker.pid)
        time.sleep(1.0)
    return burst


def _delivered(folder: str) -> Iterator[MessageExt]:
    """
    The delivered messages, from a broker's files.
    """
    clock = Clock()
    clock.advance(time.time())
    store = MessageStore(StoreSettings(folder), clock, maybeDeferred, b"")
    store.start()
    offset = 0
    while offset < store.maxOffset(TOPIC, QUEUE):
        got = store.get(TOPIC, QUEUE, offset, 32)
        yield from decodeRecords(got.data)
        offset = got.nextOffset
    store.stop()


def _lateness(folder: str, size: Size, burst: int) -> None:
    """
    Print the lateness of messages.
    """
    inRow: list[int] = []
    atOnce: list[int] = []
    for message in _delivered(folder):
        due = int(message.properties["TIMER_DELIVER_MS"])
        late = message.storeTimestamp - due
        (atOnce if due == burst else inRow).append(late)
    if (len(inRow), len(atOnce)) != (size.soon, size.burst):
        raise AssertionError(f"{len(inRow)} and {len(atOnce)} messages have come")
    inRow.sort()
    rate = f"{size.soon / size.spread:,.0f} a second"
    _line(f"lateness at {rate}, p50", f"{statistics.median(inRow):.1f} ms")
    _line("the same, p99", f"{inRow[len(inRow) * 99 // 100]:.1f} ms", "(aim 50)")
    _line("the same, the latest", f"{inRow[-1]:.1f} ms")
    _line(f"{size.burst:,} of the same millisecond, the last", f"{max(atOnce):.1f} ms")


def main(size: Size | None = None) -> None:
    """
    Measure, and print one line for each.
    """
    size = size or Size()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        broker = Broker(folder)
        empty = broker.started
        try:
            _wait(broker, size)
        finally:
            broker.stop()
        broker = Broker(folder)
        try:
            _line("start with them, until the port accepts", f"{broker.started:.2f} s")
            _line("start without", f"{empty:.2f} s")
            _line("memory of its own after that (RssAnon)", f"{memory(broker.pid)[0]:.1f} MB")
            burst = _deliver(broker, size)
            _line("memory of its own in the end (RssAnon)", f"{memory(broker.pid)[0]:.1f} MB")
        finally:
            broker.stop()
        _lateness(folder, size, burst)


if __name__ == "__main__":
    main()
