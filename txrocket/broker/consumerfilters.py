# SPDX-License-Identifier: Apache-2.0
"""
The expressions by which groups choose messages, tags apart, in memory and in
C{consumerFilter.json}; Java's C{ConsumerFilterManager}::

    connected consumers --(every 10 s)--> filters by topic and group --> file
                                            |  born, dead
                                            +-- dead for 24 hours: forgotten

What a pull wants is told by the connected consumers, and nothing of this is needed
for it.  Kept are, so that it outlives them and the broker:

- for a group's retried messages, what the group wanted of a topic that it does not
  subscribe to any more (C{filterSupportRetry});
- for Java's broker, since when a filter was there: with C{enableCalcFilterBitMap} it
  has bits for the messages that came later, in the positions that the file has.

At most C{maxConsumerFilterNum} are kept, the first that come.

The table follows the connected consumers and is not told of each heartbeat: Java
keeps an expression if another one comes with an older version, and by that a group
may be given what it asked for last week.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Cooperator
from twisted.logger import Logger

from txrocket.broker.clients import Consumers
from txrocket.broker.kept import Kept
from txrocket.broker.pieces import Pieces
from txrocket.broker.settings import FilterSettings
from txrocket.errors import ResponseError
from txrocket.filters.bloom import Bloom
from txrocket.filters.expressions import ExpressionTypes
from txrocket.filters.tags import isTagType
from txrocket.model import SubscriptionData
from txrocket.protocol.bodycodec import decodeBody, encodeBody
from txrocket.protocol.javajson import Gradual, finish
from txrocket.store.flush import InThread
from txrocket.store.tables import Table

__all__ = ["SAVE_PERIOD", "ConsumerFilters"]

#: How often the table is written, in seconds.
SAVE_PERIOD = 10.0

# A filter that was alive when a broker ended is taken to have died so many
# milliseconds before the start, or when it was born.
_PRESUMED = 30_000

# Groups and filters that are looked at without a pause.
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


class _ByGroup(msgspec.Struct, frozen=True):
    """
    C{FilterDataMapByTopic}.
    """

    groupFilterData: dict[str, _Filter] = {}
    topic: str = ""


class _ByTopic(msgspec.Struct, frozen=True):
    """
    The file.
    """

    filterDataByTopic: dict[str, _ByGroup] = {}


class ConsumerFilters:
    """
    The filters of the groups at a broker.
    """

    _log = Logger()

    def __init__(
        self,
        table: Table,
        inThread: InThread,
        consumers: Consumers,
        expressionTypes: ExpressionTypes,
        settings: FilterSettings,
        now: Callable[[], int],
        slices: Cooperator | None = None,
        evaluates: Callable[[], bool] = lambda: True,
    ) -> None:
        """
        @param now: the time in milliseconds.
        @param slices: as L{Kept} has it.
        @param evaluates: whether the broker evaluates expressions now.  While it does
            not, new ones are not compiled, and so not kept.
        """
        self._evaluates = evaluates
        self._pieces = Pieces(self._member, lambda: (b'{"filterDataByTopic":{', b"}}"))
        self._kept = Kept(table, self._pieces, inThread, slices)
        self._consumers = consumers
        self._expressionTypes = expressionTypes
        self._span = settings.filterDataCleanTimeSpan
        self._limit = settings.maxConsumerFilterNum
        self._refused = False
        self._bloom = Bloom(settings.maxErrorRateOfBloomFilter, settings.expectConsumerNumUseFilter)
        self._now = now
        self._table: dict[tuple[str, str], _Filter] = {}
        self._byTopic: dict[str, dict[str, _Filter]] = {}
        self._changed = False

    def load(self) -> None:
        """
        Read C{consumerFilter.json}.  It is passed over if it was written with other
        settings of the bloom filter, as by Java, and if nothing of it can be read: the
        groups bring their expressions when they connect.
        """

        def mended(older: _ByTopic | None, spoiled: Sequence[bytes]) -> _ByTopic | None:
            return older

        saved = self._kept.load(lambda data: decodeBody(_ByTopic, data), mended)
        if saved is None:
            return
        filters = {
            (topic, group): each
            for topic, byGroup in saved.filterDataByTopic.items()
            for group, each in byGroup.groupFilterData.items()
        }
        if any(each.bloomFilterData != self._bits(*key) for key, each in filters.items()):
            self._log.info("consumerFilter.json has bits of another bloom filter: begun anew")
            return
        presumed = self._now() - _PRESUMED
        for key, each in filters.items():
            self._put(key, _died(each, each.deadTime or max(each.bornTime, presumed)))
        # Or it would be taken to have died anew at every start.
        self._changed = self._table != filters

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """
        What a group wanted of a topic when it was last connected, if that is known and
        was none of tags.
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
        What is kept of a group's filter for a topic, as JSON, for administrators; of
        one by tags there is nothing, which is C{null}.
        """
        return encodeBody(self._table.get((topic, group))).decode()

    def save(self) -> Deferred[None]:
        """
        Look what the connected consumers want now, and write the table if it has
        changed.  A failure is logged: it is written the next time.

        @return: a Deferred that fires once nothing is being written.
        """
        finish(self.follow())
        return self.write()

    def write(self) -> Deferred[None]:
        """
        Write the table if it has changed.  A failure is logged: it is written the next
        time.

        @return: a Deferred that fires once nothing is being written.
        """
        if not self._changed:
            return self._kept.idle()
        self._changed = False
        return self._kept.save().addErrback(self._kept.failed)

    def follow(self) -> Gradual[None]:
        """
        Look what the connected consumers want now.
        """
        now = self._now()
        alive = set()
        groups = [(name, list(wanted)) for name, wanted in self._consumers.subscriptions()]
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
        # Once and not every ten seconds, until there is room again.
        if not self._refused:
            self._refused = True
            self._log.warn(
                "The filter of group {group} for topic {topic} is not kept, nor are other new"
                " ones: maxConsumerFilterNum is {limit}",
                group=group,
                topic=topic,
                limit=self._limit,
            )

    def _renewed(
        self, key: tuple[str, str], subscription: SubscriptionData, now: int
    ) -> _Filter | None:
        """
        What becomes of a filter that is alive.
        """
        known = self._table.get(key)
        if known is not None and (known.expression, known.expressionType) == (
            subscription.subString,
            subscription.expressionType,
        ):
            return msgspec.structs.replace(
                known, clientVersion=subscription.subVersion, deadTime=0, dead=False
            )
        if not self._evaluates():
            return None
        try:
            self._expressionTypes.compile(subscription)
        except ResponseError:
            # Whoever pulls with it is told; Java does not keep such either.
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
            self._pieces.touch([topic])
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

    def _member(self, topic: str) -> bytes | None:
        filters = self._byTopic.get(topic)
        if filters is None:
            return None
        return b"%s:%s" % (encodeBody(topic), encodeBody(_ByGroup(filters, topic)))


def _died(each: _Filter, when: int) -> _Filter:
    return msgspec.structs.replace(each, deadTime=when, dead=True)
