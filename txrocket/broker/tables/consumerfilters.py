# SPDX-License-Identifier: Apache-2.0
"""
The expressions by which groups choose messages, tags apart, in memory and in
C{consumerFilter.json}; Java's C{ConsumerFilterManager}::

    connected consumers --(every 10 s)--> filters by topic and group --> file
                                            |  born, dead
                                            +-- dead for 24 hours: forgotten

A pull uses the subscription of a connected consumer, and needs nothing of this.  The table
outlives the consumers and the broker for two reasons:

- C{filterSupportRetry}: a retried message is filtered by the group's former subscription
  to a topic that it does not subscribe to any more.
- Java's broker: with C{enableCalcFilterBitMap} it computes bits for each message that comes
  after a filter was born, in the positions that the file has.

The table holds at most C{maxConsumerFilterNum} filters; later ones are refused.

The table follows the connected consumers and not each heartbeat.  Java ignores an
expression with an older version, and so may filter by an expression of last week.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocket.broker.settings import FilterSettings, PullSettings
from txrocket.broker.tables.savedtable import SavedTable, TableFile
from txrocket.broker.tables.tabletext import TableText
from txrocket.config import Live
from txrocket.errors import ResponseError
from txrocket.filters.bloom import Bloom
from txrocket.filters.expressions import ExpressionTypes
from txrocket.filters.tags import isTagType
from txrocket.model import SubscriptionData
from txrocket.protocol.bodies.codec import decodeBody, encodeBody
from txrocket.protocol.fastjson import Gradual, finish

__all__ = ["SAVE_PERIOD", "ConsumerFilters", "TopicFilters"]

#: How often the table is written, in seconds.
SAVE_PERIOD = 10.0

# A filter that was alive when a broker ended counts as dead since this many milliseconds
# before the start, or since its birth.
_PRESUMED = 30_000

# Groups and filters that are looked at in one slice.
_STEP: Final = 256


class _Bits(msgspec.Struct, frozen=True):
    """
    C{BloomFilterData}.
    """

    bitNum: int = 0
    bitPos: tuple[int, ...] = ()


class _Filter(msgspec.Struct, frozen=True):
    """
    C{ConsumerFilterData}.  It is dead if it has died since it was born.
    """

    bloomFilterData: _Bits = _Bits()
    bornTime: int = 0
    clientVersion: int = 0
    consumerGroup: str = ""
    dead: bool = False
    deadTime: int = 0
    expression: str = ""
    expressionType: str = ""
    topic: str = ""


class TopicFilters(msgspec.Struct, frozen=True):
    """
    C{FilterDataMapByTopic}.
    """

    groupFilterData: dict[str, _Filter] = {}
    topic: str = ""


class _ByTopic(msgspec.Struct, frozen=True):
    """
    The file.
    """

    filterDataByTopic: dict[str, TopicFilters] = {}


class ConsumerFilters:
    """
    The filters of the groups at a broker.

    @ivar isCopy: whether this broker is a slave, and the table its master's.
    """

    _log = Logger()

    def __init__(
        self,
        file: TableFile,
        connected: Callable[[], Iterable[tuple[str, Iterable[SubscriptionData]]]],
        expressionTypes: ExpressionTypes,
        settings: FilterSettings,
        pull: Live[PullSettings],
        now: Callable[[], int],
    ) -> None:
        """
        @param connected: the subscriptions of the connected consumers, by group.
        @param pull: says whether the broker evaluates expressions.  While it does not,
            new expressions are neither compiled nor saved.
        @param now: the time of day in milliseconds.
        """
        self._pull = pull
        self._text = TableText(self.encodeMember, lambda: (b'{"filterDataByTopic":{', b"}}"))
        self._saved = SavedTable(file, self._text)
        self._connected = connected
        self._expressionTypes = expressionTypes
        self._span = settings.filterDataCleanTimeSpan
        self._limit = settings.maxConsumerFilterNum
        self._refused = False
        self._bloom = Bloom(settings.maxErrorRateOfBloomFilter, settings.expectConsumerNumUseFilter)
        self._now = now
        self._table: dict[tuple[str, str], _Filter] = {}
        self._byTopic: dict[str, dict[str, _Filter]] = {}
        self._changed = False
        self.isCopy = False
        self._watchers: list[Callable[[str], None]] = []

    def watch(self, touched: Callable[[str], None]) -> None:
        """
        Have a function called with each topic whose filters change.
        """
        self._watchers.append(touched)

    def topics(self) -> Iterable[str]:
        """
        The topics that have filters.
        """
        return self._byTopic.keys()

    def adopt(self, put: Mapping[str, TopicFilters], removed: Iterable[str]) -> None:
        """
        Take over the filters of topics from the master's table.
        """
        fresh = {topic: each.groupFilterData for topic, each in put.items()}
        fresh |= {topic: {} for topic in removed}
        for topic, filters in fresh.items():
            for group in {*self._byTopic.get(topic, ()), *filters}:
                self._put((topic, group), filters.get(group))

    def load(self) -> None:
        """
        Read C{consumerFilter.json}.  As in Java, ignore a file that was written with other
        settings of the bloom filter.  Ignore a file that cannot be read, too: groups send
        their expressions when they connect.
        """

        def mended(older: _ByTopic | None, spoiled: Sequence[bytes]) -> _ByTopic | None:
            return older

        saved = self._saved.load(lambda data: decodeBody(_ByTopic, data), mended)
        if saved is None:
            return
        filters = {
            (topic, group): each
            for topic, byGroup in saved.filterDataByTopic.items()
            for group, each in byGroup.groupFilterData.items()
        }
        if any(each.bloomFilterData != self._bits(*key) for key, each in filters.items()):
            self._log.info("consumerFilter.json has bits of another bloom filter, and is ignored")
            return
        presumed = self._now() - _PRESUMED
        for key, each in filters.items():
            self._put(key, _died(each, each.deadTime or max(each.bornTime, presumed)))
        # Else the next start would compute another time of death.
        self._changed = self._table != filters

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """
        A group's subscription to a topic when it was last connected; L{None} if that is not
        known or was one of tags.
        """
        found = self._table.get((topic, group))
        if found is None:
            return None
        return SubscriptionData(
            topic,
            found.expression,
            expressionType=found.expressionType,
            subVersion=found.clientVersion,
        )

    def described(self, group: str, topic: str) -> str:
        """
        A group's filter for a topic as JSON, for administrators; C{null} if the group has
        none but tags.
        """
        return encodeBody(self._table.get((topic, group))).decode()

    def save(self) -> Deferred[None]:
        """
        Follow the connected consumers, and write the table if it has changed.  A failure is
        logged, and the next call writes the table.

        @return: a Deferred that fires once nothing is being written.
        """
        finish(self.follow())
        return self.write()

    def write(self) -> Deferred[None]:
        """
        Write the table if it has changed.  A failure is logged, and the next call writes
        the table.

        @return: a Deferred that fires once nothing is being written.
        """
        if not self._changed:
            return self._saved.idle()
        self._changed = False
        return self._saved.save().addErrback(self._saved.failed)

    def follow(self) -> Gradual[None]:
        """
        Bring the table up to date with the subscriptions of the connected consumers.  A slave
        gets it from its master.
        """
        if self.isCopy:
            return
        now = self._now()
        alive = set()
        groups = [(name, list(wanted)) for name, wanted in self._connected()]
        for count, (group, wanted) in enumerate(groups, 1):
            if count % _STEP == 0:
                yield
            for subscription in wanted:
                if subscription.subString and not isTagType(subscription.expressionType):
                    key = subscription.topic, group
                    alive.add(key)
                    if key in self._table or len(self._table) < self._limit:
                        self._put(key, self._renewed(key, subscription, now))
                    else:
                        self._refuse(*key)
                    # A new expression is compiled.
                    yield
        for count, (key, each) in enumerate(list(self._table.items()), 1):
            if count % _STEP == 0:
                yield
            if key not in alive:
                if not each.dead:
                    self._put(key, _died(each, now))
                elif now - each.deadTime >= self._span:
                    self._put(key, None)

    def _refuse(self, topic: str, group: str) -> None:
        # Log it once, and not every ten seconds, until there is room again.
        if not self._refused:
            self._refused = True
            self._log.warn(
                "The filter of group {group} for topic {topic} is not saved, nor are other new"
                " ones: maxConsumerFilterNum is {limit}",
                group=group,
                topic=topic,
                limit=self._limit,
            )

    def _renewed(
        self, key: tuple[str, str], subscription: SubscriptionData, now: int
    ) -> _Filter | None:
        """
        The new state of a filter that a connected group uses.
        """
        known = self._table.get(key)
        if known is not None and (known.expression, known.expressionType) == (
            subscription.subString,
            subscription.expressionType,
        ):
            return msgspec.structs.replace(
                known, clientVersion=subscription.subVersion, deadTime=0, dead=False
            )
        if not self._pull.now.enablePropertyFilter:
            return None
        try:
            self._expressionTypes.compile(subscription)
        except ResponseError:
            # A pull with this expression gets the error.  Java does not save it either.
            return None
        return _Filter(
            self._bits(*key),
            now,
            subscription.subVersion,
            key[1],
            expression=subscription.subString,
            expressionType=subscription.expressionType,
            topic=key[0],
        )

    def _put(self, key: tuple[str, str], value: _Filter | None) -> None:
        if value != self._table.get(key):
            topic, group = key
            self._changed = True
            self._text.touch([topic])
            for touched in self._watchers:
                touched(topic)
            if value is None:
                del self._table[key]
                self._refused = False
                del self._byTopic[topic][group]
                if not self._byTopic[topic]:
                    del self._byTopic[topic]
            else:
                self._table[key] = self._byTopic.setdefault(topic, {})[group] = value

    def _bits(self, topic: str, group: str) -> _Bits:
        return _Bits(self._bloom.bits, self._bloom.positions(f"{group}#{topic}"))

    def encodeMember(self, topic: str) -> bytes | None:
        """
        The filters of a topic as JSON, with their name; L{None} if there are none.
        """
        filters = self._byTopic.get(topic)
        if filters is None:
            return None
        return b"%s:%s" % (encodeBody(topic), encodeBody(TopicFilters(filters, topic)))


def _died(each: _Filter, when: int) -> _Filter:
    return msgspec.structs.replace(each, deadTime=when, dead=True)
