# SPDX-License-Identifier: Apache-2.0
"""
Statistics of a broker; Java's C{BrokerStatsManager}, C{StoreStatsService} and
C{BrokerStats}.

Every message is counted, so counting is three additions.  Administrators ask for sums over
the last minute, hour and day, which are computed from periodic samples of the counters::

    put, got --> counters --> every 10 s, 7 kept ---> the last minute
                         \\--> every 10 min, 7 kept -> the last hour
                          \\-> every hour, 25 kept --> the last day

As in Java, a window is empty before its first sample, and a new counter counts as 0 one
period before its first sample.  A counter that has not changed for a day is removed.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from txrocket.protocol.bodies import BrokerStatsData, BrokerStatsItem
from txrocket.protocol.fastjson import Gradual

__all__ = ["SAMPLE_PERIOD", "Stats"]

#: How many seconds lie between two samples.
SAMPLE_PERIOD = 10.0

_LONGEST = 61  # samples of the totals: ten minutes

# Counters that are sampled in one slice.
_STEP: Final = 512

# Java's classes of the time that an append took.
_PUT_TIMES = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]"),
    *("[500ms~1s]", "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)


class _Counter:
    """
    The counts of one key, and their samples.

    @ivar count: messages.
    @ivar size: bytes.
    @ivar times: calls.
    @ivar samples: for each window, count, size and times of each sample.
    """

    __slots__ = ("count", "samples", "size", "times")

    def __init__(self) -> None:
        self.count = self.size = self.times = 0
        # Arrays, not tuples, because there may be tens of thousands of counters.
        self.samples = array("q"), array("q"), array("q")

    def add(self, other: _Counter) -> None:
        """
        Count what another has counted.
        """
        self.count += other.count
        self.size += other.size
        self.times += other.times


class _Window:
    """
    When samples for a span of time were taken; the same times for all counters.
    """

    def __init__(self, index: int, periods: int, kept: int, boot: int) -> None:
        """
        @param index: which of a counter's samples are this window's.
        @param periods: every how many periods a sample is taken.
        @param kept: how many are kept.
        @param boot: when counting began.
        """
        self._index = index
        self._periods = periods
        self._kept = kept
        self._taken = [boot]

    def isDue(self, tick: int) -> bool:
        """
        Whether a sample is due after a number of periods.
        """
        return tick % self._periods == 0

    def sample(self, now: int, counters: Iterable[_Counter]) -> Gradual[None]:
        """
        Take a sample.
        """
        taken = self._taken
        taken.append(now)
        del taken[: -self._kept]
        index, room = self._index, 3 * self._kept
        for count, counter in enumerate(counters, 1):
            if count % _STEP == 0:
                yield
            samples = counter.samples[index]
            if not samples:
                samples.extend((0, 0, 0))
            samples.extend((counter.count, counter.size, counter.times))
            if len(samples) > room:
                del samples[:3]

    def item(self, counter: _Counter, measure: int) -> BrokerStatsItem:
        """
        What was counted in the window.

        @param measure: 0 for messages, 1 for bytes.
        """
        samples = counter.samples[self._index]
        if not samples:
            return BrokerStatsItem()
        total = samples[measure - 3] - samples[measure]
        times = samples[-1] - samples[2]
        elapsed = self._taken[-1] - self._taken[-(len(samples) // 3)]
        return BrokerStatsItem(
            total, total * 1000 / elapsed if elapsed > 0 else 0.0, total / times if times else 0.0
        )

    def isStill(self, counter: _Counter) -> bool:
        """
        Whether nothing was counted in the whole of the window.
        """
        samples = counter.samples[self._index]
        return len(samples) == 3 * self._kept and samples[2] == counter.times


class _Totals(NamedTuple):
    """
    The totals since the start, and the time at which they were taken.
    """

    at: int
    put: int = 0
    putSize: int = 0
    got: int = 0
    found: int = 0
    missed: int = 0


class Stats:
    """
    A broker's statistics.
    """

    def __init__(
        self, cluster: str, now: Callable[[], int], elapsed: Callable[[], int] | None = None
    ) -> None:
        """
        @param cluster: the cluster's name, which is Java's key of the broker's sums.
        @param now: the time of day in milliseconds, which decides when a day ends.
        @param elapsed: a clock that nobody can set, in milliseconds, for rates; without
            it, C{now}.
        """
        self._now = now
        self._elapsed = elapsed or now
        self._cluster = cluster
        self._topics: dict[str, _Counter] = {}
        self._groups: dict[tuple[str, str], _Counter] = {}
        self._backs: dict[tuple[str, str], _Counter] = {}
        # The sums of removed counters.
        self._goneTopics, self._goneGroups = _Counter(), _Counter()
        # For the whole broker, brought up to date when a sample is taken.
        self._allPut, self._allGot = _Counter(), _Counter()
        self._missed = self._failed = 0
        self._boot = now()
        self._since = boot = self._elapsed()
        self._minute = _Window(0, 1, 7, boot)
        self._hour = _Window(1, 60, 7, boot)
        self._day = _Window(2, 360, 25, boot)
        self._ticks = 0
        self._date = _date(self._boot)
        self._yesterdayMorning = self._thisMorning = _Totals(boot)
        self._history = [self._thisMorning]

    # --- counting ----------------------------------------------------------

    def put(self, topic: str, count: int, size: int, times: int = 1) -> None:
        """
        Messages were stored.

        @param size: of their records.
        @param times: the number of requests.
        """
        try:
            counter = self._topics[topic]
        except KeyError:
            counter = self._topics[topic] = _Counter()
        counter.count += count
        counter.size += size
        counter.times += times

    def got(self, group: str, topic: str, count: int, size: int) -> None:
        """
        A group got messages.

        @param size: of their records.
        """
        try:
            counter = self._groups[topic, group]
        except KeyError:
            counter = self._groups[topic, group] = _Counter()
        counter.count += count
        counter.size += size
        counter.times += 1

    def sentBack(self, group: str, topic: str) -> None:
        """
        A group has sent a message back.

        @param topic: the one that the message was sent to first.
        """
        try:
            counter = self._backs[topic, group]
        except KeyError:
            counter = self._backs[topic, group] = _Counter()
        counter.count += 1
        counter.times += 1

    def missed(self) -> None:
        """
        A pull found nothing.
        """
        self._missed += 1

    def failed(self) -> None:
        """
        A message could not be stored.
        """
        self._failed += 1

    def forgetTopic(self, topic: str) -> None:
        """
        A topic was deleted.
        """
        self._forget(
            [topic] if topic in self._topics else [],
            [each for each in self._groups if each[0] == topic],
            [each for each in self._backs if each[0] == topic],
        )

    def forgetGroup(self, group: str) -> None:
        """
        A group was deleted.
        """
        self._forget(
            [],
            [each for each in self._groups if each[1] == group],
            [each for each in self._backs if each[1] == group],
        )

    def sample(self) -> Gradual[None]:
        """
        Take samples; called every L{SAMPLE_PERIOD} seconds.
        """
        self._ticks += 1
        totals = self._totals()
        self._history.append(totals)
        del self._history[:-_LONGEST]
        self._allPut.count, self._allGot.count = totals.put, totals.got
        # These begin with their first count, as any other.
        whole = [each for each in (self._allPut, self._allGot) if each.count]
        yield
        tables = self._topics, self._groups, self._backs
        counters = [*(each for table in tables for each in table.values()), *whole]
        for window in (self._minute, self._hour, self._day):
            if window.isDue(self._ticks):
                yield from window.sample(totals.at, counters)
        if self._day.isDue(self._ticks):
            self._forget(
                [key for key, each in self._topics.items() if self._day.isStill(each)],
                [key for key, each in self._groups.items() if self._day.isStill(each)],
                [key for key, each in self._backs.items() if self._day.isStill(each)],
            )
        if (date := _date(self._now())) != self._date:
            self._date = date
            self._yesterdayMorning, self._thisMorning = self._thisMorning, totals

    # --- telling -----------------------------------------------------------

    def data(self, name: str, key: str) -> BrokerStatsData | None:
        """
        The sums under one of Java's names and a key; L{None} if nothing was counted.
        """
        counter: _Counter | None = None
        what, _, measure = name.rpartition("_")
        if what == "TOPIC_PUT":
            counter = self._topics.get(key)
        elif what == "GROUP_GET":
            topic, _, group = key.partition("@")
            counter = self._groups.get((topic, group))
        elif name == "SNDBCK_PUT_NUMS":
            topic, _, group = key.partition("@")
            counter = self._backs.get((topic, group))
        elif key == self._cluster and name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            counter = self._allPut if what == "BROKER_PUT" else self._allGot
        if counter is None or measure not in ("NUMS", "SIZE"):
            return None
        windows = self._minute, self._hour, self._day
        return BrokerStatsData(*(each.item(counter, int(measure == "SIZE")) for each in windows))

    def consumeTps(self, group: str, topic: str) -> float:
        """
        How many messages of a topic a group gets a second, in the last minute.
        """
        counter = self._groups.get((topic, group))
        return 0.0 if counter is None else self._minute.item(counter, 0).tps

    def runtime(self) -> dict[str, str]:
        """
        What Java's C{StoreStatsService} and C{BrokerStats} tell an operator.

        The time of an append is not measured: an append ends in memory here, and only the
        disk takes long, which many sends wait for together.
        """
        totals = self._totals()
        seconds = (totals.at - self._since) // 1000
        minutes, hours, days = seconds // 60 % 60, seconds // 3600 % 24, seconds // 86400
        table = {
            "bootTimestamp": self._boot,
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]",
            "putMessageEntireTimeMax": 0,
            "putMessageTimesTotal": totals.put,
            "putMessageFailedTimes": self._failed,
            "putMessageSizeTotal": totals.putSize,
            "putMessageDistributeTime": "".join(f"{each}:0 " for each in _PUT_TIMES),
            "putMessageAverageSize": totals.putSize / max(totals.put, 1),
            "dispatchMaxBuffer": 0,
            "getMessageEntireTimeMax": 0,
            "putTps": self._rates("put"),
            "getFoundTps": self._rates("found"),
            "getMissTps": self._rates("missed"),
            "getTotalTps": self._rates("found", "missed"),
            "getTransferedTps": self._rates("got"),
            "putLatency99": "0.00",
            "putLatency999": "0.00",
            "msgPutTotalYesterdayMorning": self._yesterdayMorning.put,
            "msgPutTotalTodayMorning": self._thisMorning.put,
            "msgPutTotalTodayNow": totals.put,
            "msgGetTotalYesterdayMorning": self._yesterdayMorning.got,
            "msgGetTotalTodayMorning": self._thisMorning.got,
            "msgGetTotalTodayNow": totals.got,
        }
        return {name: str(value) for name, value in table.items()}

    # --- inside ------------------------------------------------------------

    def _totals(self) -> _Totals:
        topics = [*self._topics.values(), self._goneTopics]
        groups = [*self._groups.values(), self._goneGroups]
        return _Totals(
            self._elapsed(),
            sum(each.count for each in topics),
            sum(each.size for each in topics),
            sum(each.count for each in groups),
            sum(each.times for each in groups),
            self._missed,
        )

    def _forget(
        self, topics: list[str], groups: list[tuple[str, str]], backs: list[tuple[str, str]]
    ) -> None:
        # The totals since the start keep what these have counted.
        for topic in topics:
            self._goneTopics.add(self._topics.pop(topic))
        for group in groups:
            self._goneGroups.add(self._groups.pop(group))
        for back in backs:
            del self._backs[back]

    def _rates(self, *names: str) -> str:
        """
        Rates per second over 10 seconds, a minute and ten minutes; blank where the broker
        has not run that long.
        """
        rates = []
        for steps in (1, 6, 60):
            if len(self._history) > steps:
                first, last = self._history[-1 - steps], self._history[-1]
                total = sum(getattr(last, each) - getattr(first, each) for each in names)
                elapsed = last.at - first.at
                rates.append(str(total * 1000 / elapsed if elapsed > 0 else 0.0))
            else:
                rates.append("")
        return " ".join(rates)


def _date(now: int) -> tuple[int, ...]:
    return time.localtime(now / 1000)[:3]
