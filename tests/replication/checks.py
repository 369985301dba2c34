# SPDX-License-Identifier: Apache-2.0
"""
What must hold after a schedule, when everything has healed.
"""

from __future__ import annotations

from collections import defaultdict

from tests.replication.powercluster import Contents
from tests.replication.schedule import Schedule, Violation
from txrocket.protocol.record import decodeRecords
from txrocket.store.log.commitlog import HOLE_TOPIC
from txrocket.store.messagestore import MessageStore

__all__ = ["check"]


def check(schedule: Schedule) -> None:
    """
    Hold the brokers against each other, and against what clients were told.

    @raise Violation: if a promise was broken.
    """
    contents = {each: schedule.cluster.contents(each) for each in schedule.cluster.members}
    [master] = schedule.cluster.masters()
    final = contents[master]
    for address, each in contents.items():
        _checkLog(address, each, final)
        _checkQueues(schedule, address, each)
        _checkOffsets(schedule, address)
        missing = {*schedule.traffic.topics, *schedule.traffic.groups} - schedule.cluster.names(
            address
        )
        if missing and schedule.isSync and schedule.isCareful:
            raise Violation(f"{address} lacks topics or groups that were acknowledged: {missing}")
    _checkMessages(schedule, final)
    _checkKept(schedule, contents, final)


def _checkLog(address: str, contents: Contents, final: Contents) -> None:
    """
    All have the same bytes, and the same epochs for them.
    """
    if contents.end != final.end:
        raise Violation(f"the log of {address} ends at {contents.end}, not at {final.end}")
    first = max(contents.first, final.first)
    if contents.log[first - contents.first :] != final.log[first - final.first :]:
        raise Violation(f"the log of {address} has other bytes than the master's")
    held = [each for each in final.epochs if first <= each.start < final.end]
    own = [each for each in contents.epochs if first <= each.start < final.end]
    if own != held:
        raise Violation(f"the epochs of {address} are {own}, not {held}")


def _checkQueues(schedule: Schedule, address: str, contents: Contents) -> None:
    """
    Queues and index have what the log has.
    """
    store = schedule.cluster.broker(address).store
    queues: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for each in contents.records:
        queues[each.topic, each.queueId].append((each.queueOffset, each.commitLogOffset))
    # In place of records that a power loss has damaged; their numbers are not given again.
    queues.pop((HOLE_TOPIC, 0), None)
    for (topic, queueId), expected in queues.items():
        low, high = store.minOffset(topic, queueId), store.maxOffset(topic, queueId)
        offsets = [each[0] for each in expected]
        if schedule.losses:
            _checkSome(store, f"{address}: {topic}", topic, queueId, expected)
            continue
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            raise Violation(f"{address}: {topic}-{queueId} has the offsets {offsets}")
        if (low, high) != (offsets[0], offsets[-1] + 1):
            raise Violation(
                f"{address}: {topic}-{queueId} goes from {low} to {high}, and the log from"
                f" {offsets[0]} to {offsets[-1] + 1}"
            )
        at = low
        while at < high:
            entries = store.entries(topic, queueId, at, high - at)
            if not entries:
                raise Violation(f"{address}: {topic}-{queueId} has nothing at {at}")
            for number, entry in enumerate(entries):
                if (at + number, entry[0]) != expected[at + number - low]:
                    raise Violation(f"{address}: {topic}-{queueId} at {at + number} is {entry}")
            at += len(entries)
    for topic, queueId, _ in store.queues:
        if (topic, queueId) not in queues and store.maxOffset(topic, queueId) > store.minOffset(
            topic, queueId
        ):
            raise Violation(f"{address}: {topic}-{queueId} has messages that the log has not")
    for each in contents.records[-3:]:
        for key in each.keys:
            found = store.query(each.topic, key, 0, 1 << 62, 32)[0]
            places = {one.commitLogOffset for one in decodeRecords(b"".join(found))}
            if each.commitLogOffset not in places:
                raise Violation(f"{address}: {each.topic} by {key} gives {places}")


def _checkSome(
    store: MessageStore, where: str, topic: str, queueId: int, expected: list[tuple[int, int]]
) -> None:
    """
    A queue has the records of the log, and between them numbers without a record.
    """
    for number, place in expected:
        entries = store.entries(topic, queueId, number, 1)
        if not entries or entries[0][0] != place:
            raise Violation(f"{where} at {number} is {entries}, not at {place}")


def _checkOffsets(schedule: Schedule, address: str) -> None:
    """
    No consumer is beyond the end of its queue.
    """
    broker = schedule.cluster.broker(address)
    keys = broker.tables.offsets.keys()
    for topic, group in keys:
        for queueId, offset in broker.tables.offsets.of(group, topic).items():
            end = broker.store.maxOffset(topic, queueId)
            if offset > end:
                raise Violation(
                    f"{address}: {group} is at {offset} of {topic}, which ends at {end}"
                )


def _checkMessages(schedule: Schedule, final: Contents) -> None:
    """
    What was acknowledged is there, where the answer said.
    """
    places = {each.body: (each.topic, each.queueOffset) for each in final.records}
    mayLose = not schedule.isCareful or (not schedule.isSync and schedule.promotions)
    if not schedule.isFlushed and schedule.losses and not schedule.isSync:
        mayLose = True
    if mayLose or schedule.retentions:
        return
    for each in schedule.traffic.acknowledged:
        if each.body in schedule.excused:
            continue
        if each.body not in places:
            raise Violation(f"{each.body[:7]!r} was acknowledged, and is lost")
        if not each.isDelayed and places[each.body] != (each.topic, each.offset):
            raise Violation(f"{each} was acknowledged, and is at {places[each.body]}")


def _checkKept(schedule: Schedule, contents: dict[str, Contents], final: Contents) -> None:
    """
    Nothing that was acknowledged has vanished: a file of some broker has it.
    """
    kept = final.bodies
    for address, each in contents.items():
        found, spoiled = each.kept()
        kept |= found
        if spoiled:
            raise Violation(f"{address}: {spoiled} have something else than whole records")
    if schedule.retentions or (schedule.losses and not schedule.isFlushed):
        return
    for sent in schedule.traffic.acknowledged:
        if sent.body not in kept:
            raise Violation(f"{sent.body[:7]!r} was acknowledged, and no file has it")
