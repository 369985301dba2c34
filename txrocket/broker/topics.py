# SPDX-License-Identifier: Apache-2.0
"""
The broker's topics, in memory and in C{topics.json}; Java's C{TopicConfigManager}.

A topic comes into being in one of three ways:

  - A producer sends to it, and names a topic to inherit from (always TBW102),
    which the broker has and lets be inherited from.
  - A consumer group heartbeats: its retry topic is made.
  - An administrator makes it.

Each time, name servers must hear of it at once, so whoever made this table is
told of every change.

Clients and administrators make at most C{maxTopicNum} topics.  The topics of groups,
C{%RETRY%} and C{%DLQ%}, are counted apart, so that neither kind takes the other's
room; a group that exists always gets its own two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.task import Cooperator
from twisted.logger import Logger

from txrocket.broker.kept import Kept
from txrocket.broker.names import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    RETRY_PREFIX,
    isSystemTopic,
    retryTopic,
)
from txrocket.broker.pieces import Pieces
from txrocket.broker.salvage import decodeTable, legible
from txrocket.broker.settings import TopicSettings
from txrocket.broker.wheel import TIMER_QUEUES
from txrocket.errors import RemoteSystemError, TopicNotExist
from txrocket.model import PERM_INHERIT, PERM_READ, PERM_WRITE, DataVersion, TopicConfig
from txrocket.protocol.bodies import TopicConfigSerializeWrapper
from txrocket.protocol.bodycodec import encodeBody
from txrocket.protocol.names import replyTopic, topicFault
from txrocket.store.flush import InThread
from txrocket.store.follow import SCHEDULE_TOPIC, TIMER_TOPIC
from txrocket.store.tables import Table

__all__ = ["UNIT_FLAG", "UNIT_SUB_FLAG", "Topics"]

# Bits of topicSysFlag.
UNIT_FLAG = 1
UNIT_SUB_FLAG = 2

_BOTH = PERM_READ | PERM_WRITE

# What the topics of groups begin with.
_OF_GROUPS = (RETRY_PREFIX, DLQ_PREFIX)

# More queues than any topic has: a number beyond it was damaged.
_MOST_QUEUES = 65536

# Queues of SCHEDULE_TOPIC_XXXX: as many as there are delay levels, by default.
_SCHEDULE_QUEUES = 18


class Topics:
    """
    The topics of a broker.

    @ivar settings: may be replaced while the broker runs.
    @ivar version: changes with every change of a topic.
    @ivar own: the topics that the broker has for itself.
    @ivar unsaved: those that are not on the disk yet.
    """

    _log = Logger()

    def __init__(
        self,
        table: Table,
        inThread: InThread,
        ownNames: tuple[str, str],
        settings: TopicSettings,
        now: Callable[[], int],
        slices: Cooperator | None = None,
    ) -> None:
        """
        @param ownNames: the cluster's and the broker's name.
        @param now: the time in milliseconds.
        @param slices: as L{Kept} has it.
        """
        self.settings = settings
        self._now = now
        self._changed: Callable[[], None] = lambda: None
        self.version = DataVersion(now(), 0)
        self._table = _ownTopics(*ownNames, settings)
        self.own = frozenset(self._table)
        self._ofGroups = 0
        self._refused = 0
        self._ordered = {each.topicName for each in self._table.values() if each.order}
        # The change that each has come with, in order.
        self._pending: dict[str, int] = {}
        self.unsaved = self._pending.keys()
        self._pieces = Pieces(self._member, self._frame)
        self._pieces.touch(self._table)
        # The same with other permissions, and which, while name servers are told so.
        self._limited: tuple[int, Pieces[str]] | None = None
        self._kept = Kept(table, self._pieces, inThread, slices)
        self._whole = True

    def load(self) -> None:
        """
        Read C{topics.json}.  If it is damaged, the table before it is read, and with it
        what is legible of the newer one; L{complete} does the rest.
        """
        saved = self._kept.load(
            lambda data: decodeTable(TopicConfigSerializeWrapper, data, b"topicConfigTable"),
            self._mended,
        )
        self._whole = saved is not None and not self._kept.damaged
        if saved is not None:
            self._table |= saved.topicConfigTable
            self._ofGroups = sum(each.startswith(_OF_GROUPS) for each in self._table)
            self.version = saved.dataVersion
            self._ordered = {each.topicName for each in self._table.values() if each.order}
            self._pieces.touch(saved.topicConfigTable)
            # The broker serves no request yet.
            self._pieces.refresh(len(self._table))

    def _mended(
        self, older: TopicConfigSerializeWrapper | None, spoiled: Sequence[bytes]
    ) -> TopicConfigSerializeWrapper:
        # A damaged number cannot be told from a changed one, so the table before has
        # the last word where it has one.
        table = dict(older.topicConfigTable) if older is not None else {}
        for text in spoiled:
            for name, config in legible(text, TopicConfig):
                if name not in table and name == config.topicName and _plausible(config):
                    table[name] = config
        version = older.dataVersion if older is not None else self.version
        return TopicConfigSerializeWrapper(table, version)

    def complete(self, queues: Mapping[str, int]) -> None:
        """
        Make sure that messages are within reach, if the table was damaged or missing: a
        topic whose queues are in the store is made, and no queue is hidden.

        @param queues: how many queues the store has of each topic.
        """
        if self._whole:
            return
        made = []
        for name, count in queues.items():
            config = self._table.get(name)
            if config is None and not isSystemTopic(name) and topicFault(name) is None:
                self._put(TopicConfig(name, count, count))
                made.append(name)
            elif config is not None and config.readQueueNums < count:
                self._put(replace(config, readQueueNums=count))
                made.append(name)
        if made:
            self._log.error(
                "The table of topics lacks {count} topics or some of their queues, which the"
                " store has; they are made anew with default permissions: {names}",
                count=len(made),
                names=", ".join(made[:100]),
            )
        if made or self._kept.damaged:
            self._save(*made).addErrback(self._kept.failed)

    def follow(self, changed: Callable[[], None]) -> None:
        """
        Have a function called after every change.
        """
        self._changed = changed

    @property
    def table(self) -> Mapping[str, TopicConfig]:
        """
        All topics by name.
        """
        return self._table

    def get(self, name: str) -> TopicConfig | None:
        """
        A topic, if there is one of that name.
        """
        return self._table.get(name)

    def put(self, config: TopicConfig) -> Deferred[None]:
        """
        Make or change a topic.

        @return: a Deferred that fires once it is on the disk.
        @raise RemoteSystemError: if it is new and there are as many as there may be.
        """
        if config.topicName not in self._table and (full := self._full(config.topicName)):
            raise RemoteSystemError(f"topic {config.topicName} is not made: {full}")
        self._put(config)
        return self._save(config.topicName)

    def remove(self, name: str) -> Deferred[None]:
        """
        Forget a topic.

        @return: a Deferred that fires once that is on the disk.
        """
        if self._table.pop(name, None) is not None:
            self._touch(name)
            self._ofGroups -= name.startswith(_OF_GROUPS)
        self._ordered.discard(name)
        return self._save()

    def inherit(
        self, name: str, defaultTopic: str, queues: int, unit: bool, address: str
    ) -> tuple[TopicConfig, Deferred[None]]:
        """
        Make a topic for a producer that sends to it.

        @param defaultTopic: the topic to inherit permissions and queues from.
        @param queues: how many queues the producer wants.
        @param address: the producer.
        @return: the topic, and a Deferred that fires once it is on the disk.
        @raise TopicNotExist: if it may not be made.
        """
        config, why = self._inherited(name, defaultTopic, queues, unit)
        if config is not None and (why := self._full(name)):
            self._refused += 1
        if config is None or why:
            # At the limit at the 1st, 10th, 100th ... time: a line for each send would
            # fill the disk.
            told = config is None or str(self._refused).strip("0") == "1"
            (self._log.warn if told else self._log.debug)(
                "{address} sends to topic {topic}, which is not there and is not made: {why}",
                address=address,
                topic=name,
                why=why,
            )
            raise TopicNotExist(f"topic {name} does not exist and is not made: {why}")
        self._log.info("{address} sends to a new topic: {config}", address=address, config=config)
        return config, self.put(config)

    def ensure(self, name: str, queues: int, flag: int = 0) -> TopicConfig:
        """
        A topic that the broker itself needs, made if it is not there.
        """
        config = self._table.get(name)
        if config is None:
            config = TopicConfig(name, queues, queues, _BOTH, topicSysFlag=flag)
            self._log.info("New topic: {config}", config=config)
            self._put(config)
            self._save(name).addErrback(self._kept.failed)
        return config

    def ensureRetryTopic(self, group: str, retryQueueNums: int, unit: bool) -> TopicConfig:
        """
        The topic of a group's messages that are to be tried again.
        """
        return self.ensure(retryTopic(group), retryQueueNums, UNIT_SUB_FLAG if unit else 0)

    def order(self, ordered: frozenset[str]) -> None:
        """
        Note which topics the name server has an order configured for.

        Nobody is told: two name servers that do not agree would each answer with
        a change, and so for ever.
        """
        changed = [each for each in ordered ^ self._ordered if each in self._table]
        for name in changed:
            self._put(replace(self._table[name], order=name in ordered))
        if changed:
            self._save(tell=False).addErrback(self._kept.failed)

    def renew(self) -> None:
        """
        Have all topics told anew: what is told of them has changed, though they
        have not.
        """
        self._save().addErrback(self._kept.failed)

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """
        All topics, as they are told and written.
        """
        return TopicConfigSerializeWrapper(self._table, self.version)

    def encoded(
        self, permission: int | None = None, before: bytes = b"", after: bytes = b""
    ) -> bytes:
        """
        The text of L{wrapper}.  Only what has changed since the last time is encoded.

        @param permission: what may be done with each topic; L{None} for what its own
            configuration says.
        @param before: comes before it.
        @param after: comes after it.
        """
        if permission is None:
            return self._pieces.text(before, after)()
        if self._limited is None or self._limited[0] != permission:

            def member(name: str) -> bytes | None:
                return self._member(name, perm=permission)

            self._limited = permission, Pieces(member, self._frame)
            self._limited[1].touch(self._table)
        return self._limited[1].text(before, after)()

    def stop(self) -> Deferred[None]:
        """
        A Deferred that fires once all changes are on the disk.  What could not be
        written is tried once more.
        """
        return self._kept.idle().addCallback(self._settle)

    def saved(self) -> Deferred[None]:
        """
        A Deferred that fires once the topics as they are now are on the disk.
        """
        return self._kept.saved().addCallback(self._settle)

    def _inherited(
        self, name: str, defaultTopic: str, queues: int, unit: bool
    ) -> tuple[TopicConfig | None, str]:
        """
        What a topic inherits, or why it inherits nothing.
        """
        retry = name.startswith(RETRY_PREFIX)
        flag = (UNIT_SUB_FLAG if retry else UNIT_FLAG) if unit else 0
        parent = self._table.get(defaultTopic)
        why = ""
        if parent is None:
            why = f"there is no topic {defaultTopic} to inherit from"
        elif defaultTopic == AUTO_CREATE_TOPIC and not self.settings.autoCreateTopicEnable:
            why = "autoCreateTopicEnable is false"
        elif not parent.perm & PERM_INHERIT:
            why = f"topic {defaultTopic} may not be inherited from"
        if parent is not None and not why:
            count = max(0, min(queues, parent.writeQueueNums))
            perm = parent.perm & ~PERM_INHERIT
            return TopicConfig(name, count, count, perm, parent.topicFilterType, flag), ""
        if retry:
            return TopicConfig(name, 1, 1, _BOTH, topicSysFlag=flag), ""
        return None, why

    def _full(self, name: str) -> str:
        """
        Why there is no room for a new topic; nothing if there is.
        """
        ofGroups = name.startswith(_OF_GROUPS)
        count = self._ofGroups if ofGroups else len(self._table) - self._ofGroups - len(self.own)
        if count < self.settings.maxTopicNum:
            return ""
        return (
            f"there are {count} {'retry topics and dead letters' if ofGroups else 'topics'}"
            f" already, and maxTopicNum is {self.settings.maxTopicNum}: delete some, or set"
            " maxTopicNum higher in the broker's file and start the broker anew"
        )

    def _save(self, *names: str, tell: bool = True) -> Deferred[None]:
        self.version = DataVersion(self._now(), self.version.counter + 1)
        if tell:
            self._changed()
        saved = self._kept.save()
        for name in names:
            self._pending.pop(name, None)
            self._pending[name] = self._kept.asked
        return saved.addCallback(self._settle)

    def _settle(self, none: None) -> None:
        """
        Strike off the topics that are on the disk now.
        """
        written = []
        for name, change in self._pending.items():
            if change > self._kept.done:
                break
            written.append(name)
        for name in written:
            del self._pending[name]

    def _put(self, config: TopicConfig) -> None:
        if config.topicName not in self._table and config.topicName.startswith(_OF_GROUPS):
            self._ofGroups += 1
        self._table[config.topicName] = config
        self._touch(config.topicName)
        if config.order:
            self._ordered.add(config.topicName)
        else:
            self._ordered.discard(config.topicName)

    def _touch(self, name: str) -> None:
        self._pieces.touch([name])
        if self._limited is not None:
            self._limited[1].touch([name])

    def _member(self, name: str, **changes: Any) -> bytes | None:
        config = self._table.get(name)
        if config is None:
            return None
        return b"%s:%s" % (encodeBody(name), encodeBody(replace(config, **changes)))

    def _frame(self) -> tuple[bytes, bytes]:
        return b'{"dataVersion":%s,"topicConfigTable":{' % encodeBody(self.version), b"}}"


def _plausible(config: TopicConfig) -> bool:
    """
    Whether a topic that was found in a damaged table can be one.
    """
    counts = config.readQueueNums, config.writeQueueNums
    return (
        topicFault(config.topicName) is None
        and all(0 <= each <= _MOST_QUEUES for each in counts)
        and 0 <= config.perm <= PERM_READ | PERM_WRITE | PERM_INHERIT
    )


def _ownTopics(cluster: str, broker: str, settings: TopicSettings) -> dict[str, TopicConfig]:
    def perm(enabled: bool) -> int:
        return PERM_INHERIT | (_BOTH if enabled else 0)

    topics = [
        TopicConfig("SELF_TEST_TOPIC", 1, 1),
        TopicConfig("BenchmarkTest", 1024, 1024),
        TopicConfig(cluster, perm=perm(settings.clusterTopicEnable)),
        TopicConfig(broker, 1, 1, perm(settings.brokerTopicEnable)),
        TopicConfig("OFFSET_MOVED_EVENT", 1, 1),
        TopicConfig(SCHEDULE_TOPIC, _SCHEDULE_QUEUES, _SCHEDULE_QUEUES),
        # For nobody to send to or to read.  A Java broker deletes the queues of topics
        # that it does not know of when it is asked to clean up.
        TopicConfig(TIMER_TOPIC, TIMER_QUEUES, TIMER_QUEUES, perm=0),
        TopicConfig(replyTopic(cluster), 1, 1),
    ]
    if settings.autoCreateTopicEnable:
        queues = settings.defaultTopicQueueNums
        topics.append(TopicConfig(AUTO_CREATE_TOPIC, queues, queues, perm(True)))
    if settings.traceTopicEnable:
        topics.append(TopicConfig(settings.msgTraceTopicName, 1, 1))
    return {each.topicName: each for each in topics}
