# SPDX-License-Identifier: Apache-2.0
"""
The broker's topics, in memory and in C{topics.json}; Java's C{TopicConfigManager}.

A topic is created in one of three ways:

  - A producer sends to it and names a topic to inherit from, always TBW102.  The broker
    has that topic and allows to inherit from it.
  - A consumer group sends a heartbeat: the broker creates its retry topic.
  - An administrator creates it.

Name servers must hear of a change at once, so the owner of this table can have a function
called after each.

Clients and administrators create at most C{maxTopicNum} topics.  The topics of groups,
C{%RETRY%} and C{%DLQ%}, are counted apart, so that neither kind takes the other's
room.  A group that exists always gets its own two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace
from twisted.internet.defer import Deferred

from txrocket.broker.delivery.timerwheel import TIMER_QUEUES
from txrocket.broker.names import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    RETRY_PREFIX,
    isSystemTopic,
    retryTopic,
)
from txrocket.broker.settings import TopicSettings
from txrocket.broker.tables.configtable import ConfigTable
from txrocket.broker.tables.savedtable import TableFile
from txrocket.broker.tables.tabletext import TableText
from txrocket.config import Live
from txrocket.errors import TopicNotExist
from txrocket.model import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from txrocket.protocol.bodies import TopicConfigSerializeWrapper
from txrocket.protocol.names import replyTopic, topicFault
from txrocket.store.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC

__all__ = ["UNIT_FLAG", "UNIT_SUB_FLAG", "Topics"]

# Bits of topicSysFlag.
UNIT_FLAG = 1
UNIT_SUB_FLAG = 2

_BOTH = PERM_READ | PERM_WRITE

# The prefixes of the topics of groups.
_OF_GROUPS = (RETRY_PREFIX, DLQ_PREFIX)

# More queues than any topic has: a larger number is damaged.
_MOST_QUEUES = 65536

# Queues of SCHEDULE_TOPIC_XXXX: as many as there are delay levels, by default.
_SCHEDULE_QUEUES = 18


class Topics(ConfigTable[TopicConfig]):
    """
    The topics of a broker.

    @ivar own: the topics that the broker creates for itself.
    @ivar unsaved: the topics that are not on the disk yet.
    """

    noun = "topic"
    kind = TopicConfig
    wrapperKind = TopicConfigSerializeWrapper
    member = "topicConfigTable"

    def __init__(
        self,
        file: TableFile,
        ownNames: tuple[str, str],
        settings: Live[TopicSettings],
        now: Callable[[], int],
    ) -> None:
        """
        @param ownNames: the cluster's and the broker's name.
        @param now: the time of day in milliseconds.
        """
        super().__init__(file, _ownTopics(*ownNames, settings.now), now)
        self._settings = settings
        self._changed: Callable[[], None] = lambda: None
        self._ofGroups = 0
        self._ordered = {each.topicName for each in self._table.values() if each.order}
        # The number of the change that each came with, in order.
        self._pending: dict[str, int] = {}
        self.unsaved = self._pending.keys()
        # The text with another permission, and which, while name servers get that.
        self._limited: tuple[int, TableText[str]] | None = None
        self._intact = True

    def load(self) -> bool:
        """
        Read C{topics.json}.  If it is damaged, L{complete} adds what the store knows.
        """
        self._intact = super().load()
        self._ofGroups = sum(each.startswith(_OF_GROUPS) for each in self._table)
        self._ordered = {each.topicName for each in self._table.values() if each.order}
        return self._intact

    def complete(self, queues: Mapping[str, int]) -> None:
        """
        If the table was damaged or missing, create each topic whose queues the store has,
        and give each topic all of its queues, so that consumers reach all messages.

        @param queues: how many queues the store has of each topic.
        """
        if self._intact:
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
        if made or self._saved.damaged:
            self._saveLogged(*made)

    def follow(self, changed: Callable[[], None]) -> None:
        """
        Have a function called after every change.
        """
        self._changed = changed

    def inherit(
        self, name: str, defaultTopic: str, queues: int, unit: bool, address: str
    ) -> tuple[TopicConfig, Deferred[None]]:
        """
        Create a topic for a producer that sends to it.

        @param defaultTopic: the topic to inherit permissions and queues from.
        @param queues: how many queues the producer wants.
        @param address: the producer.
        @return: the topic, and a Deferred that fires once it is on the disk.
        @raise TopicNotExist: if it may not be created.
        """
        config, why = self._inherited(name, defaultTopic, queues, unit)
        if config is not None:
            why = self.fullReason(name)
        if config is None or why:
            told = config is None or self._isRefusalLogged()
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
        A topic that the broker itself needs, created if it does not exist.  A slave gets it
        from its master.
        """
        config = self._table.get(name)
        if config is None:
            config = TopicConfig(name, queues, queues, _BOTH, topicSysFlag=flag)
            if self.isCopy:
                return config
            self._log.info("New topic: {config}", config=config)
            self._put(config)
            self._saveLogged(name)
        return config

    def ensureRetryTopic(self, group: str, retryQueueNums: int, unit: bool) -> TopicConfig:
        """
        The topic of a group's retried messages, created if it does not exist.
        """
        return self.ensure(retryTopic(group), retryQueueNums, UNIT_SUB_FLAG if unit else 0)

    def order(self, ordered: frozenset[str]) -> None:
        """
        Set which topics the name server has an order configured for.

        Name servers are not told: two of them that do not agree would answer each change
        with another one, for ever.
        """
        if self.isCopy:
            return
        changed = [each for each in ordered ^ self._ordered if each in self._table]
        for name in changed:
            self._put(replace(self._table[name], order=name in ordered))
        if changed:
            # The change is counted and written, and no name server is told.
            super()._save().addCallback(self._forgetSaved).addErrback(self._saved.failed)

    def renew(self) -> None:
        """
        Have the name servers told of all topics again, because the broker's permission
        has changed.
        """
        self._saveLogged()

    def encoded(
        self, permission: int | None = None, before: bytes = b"", after: bytes = b""
    ) -> bytes:
        """
        The whole table as JSON.  Only members that have changed since the last time are
        encoded.

        @param permission: replaces that of each topic, unless it is L{None}.
        @param before: a prefix.
        @param after: a suffix.
        """
        if permission is None:
            return self._text.text(before, after)()
        if self._limited is None or self._limited[0] != permission:

            def member(name: str) -> bytes | None:
                return self.encodeMember(name, perm=permission)

            self._limited = permission, TableText(member, self._frame)
            self._limited[1].touch(self._table)
        return self._limited[1].text(before, after)()

    def flush(self) -> Deferred[None]:
        """
        Write the table if a change is not written yet.  A failure is logged.

        @return: a Deferred that fires once nothing is being written.
        """
        return super().flush().addCallback(self._forgetSaved)

    def saved(self) -> Deferred[None]:
        """
        A Deferred that fires once the topics as they are now are on the disk.
        """
        return self._saved.saved().addCallback(self._forgetSaved)

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
        elif defaultTopic == AUTO_CREATE_TOPIC and not self._settings.now.autoCreateTopicEnable:
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

    def nameOf(self, config: TopicConfig) -> str:
        """
        The name of a topic.
        """
        return config.topicName

    def fullReason(self, name: str) -> str:
        """
        Why there is no room for a new topic; empty if there is.
        """
        ofGroups = name.startswith(_OF_GROUPS)
        count = self._ofGroups if ofGroups else len(self._table) - self._ofGroups - len(self.own)
        if count < self._settings.now.maxTopicNum:
            return ""
        return (
            f"there are {count} {'retry topics and dead letters' if ofGroups else 'topics'}"
            f" already, and maxTopicNum is {self._settings.now.maxTopicNum}: delete some, or set"
            " maxTopicNum higher in the broker's file and start the broker anew"
        )

    def isPlausible(self, config: TopicConfig) -> bool:
        """
        Whether a topic from a damaged file can be right.
        """
        counts = config.readQueueNums, config.writeQueueNums
        return (
            topicFault(config.topicName) is None
            and all(0 <= each <= _MOST_QUEUES for each in counts)
            and 0 <= config.perm <= PERM_READ | PERM_WRITE | PERM_INHERIT
        )

    def _save(self, *names: str) -> Deferred[None]:
        saved = super()._save()
        for name in names:
            self._pending.pop(name, None)
            self._pending[name] = self._saved.asked
        self._changed()
        return saved.addCallback(self._forgetSaved)

    def _forgetSaved(self, none: None) -> None:
        """
        Take the topics that are on the disk now out of L{unsaved}.
        """
        written = []
        for name, change in self._pending.items():
            if change > self._saved.done:
                break
            written.append(name)
        for name in written:
            del self._pending[name]

    def _put(self, config: TopicConfig) -> None:
        name = config.topicName
        self._ofGroups += name not in self._table and name.startswith(_OF_GROUPS)
        super()._put(config)
        if config.order:
            self._ordered.add(name)
        else:
            self._ordered.discard(name)

    def _remove(self, name: str) -> None:
        self._ofGroups -= name in self._table and name.startswith(_OF_GROUPS)
        super()._remove(name)
        self._ordered.discard(name)

    def _touch(self, name: str) -> None:
        super()._touch(name)
        if self._limited is not None:
            self._limited[1].touch([name])


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
        # No client may send to it or read it.  A Java broker that is asked to clean up
        # deletes the queues of topics that it does not know.
        TopicConfig(TIMER_TOPIC, TIMER_QUEUES, TIMER_QUEUES, perm=0),
        TopicConfig(replyTopic(cluster), 1, 1),
    ]
    if settings.autoCreateTopicEnable:
        queues = settings.defaultTopicQueueNums
        topics.append(TopicConfig(AUTO_CREATE_TOPIC, queues, queues, perm(True)))
    if settings.traceTopicEnable:
        topics.append(TopicConfig(settings.msgTraceTopicName, 1, 1))
    return {each.topicName: each for each in topics}
