# SPDX-License-Identifier: Apache-2.0
"""
The ways of receiving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from tests.interop.cells import Cell, scenario, sleep
from tests.interop.driver import Consumer, Shown
from tests.interop.messages import PROPERTIES, bodies, check, checkResults, many
from tests.live.servers import reactor

# How many seconds to wait for what should not come.
_LONGER = 1.0

# How many seconds it may take until an offset is kept.
_COMMITTED = 30.0

# The properties that RocketMQ gives every message with a tag and a key; and those that
# consumers add, or the C++ producer.
_OWN = {"TAGS", "KEYS", "UNIQ_KEY", "CLUSTER"}
_ADDED = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "WAIT"}


@scenario("Push, concurrently", "sync", "push")
async def pushConcurrently(cell: Cell) -> None:
    """
    Messages from before and after the consumer's start come once; another consumer of its
    group goes on at the offsets.
    """
    topic, group = await cell.topic(), cell.group()
    producer = await cell.producer()
    first = many(topic, 100)
    results = await producer.send(first)
    consumer = await cell.consumer(topic, group=group, properties=PROPERTIES)
    await consumer.until(100)
    second = many(topic, 100, start=100)
    results += await producer.send(second)
    await consumer.until(200)
    await sleep(_LONGER)
    check(first + second, consumer.got)
    checkResults(first + second, results, consumer.got)
    if cell.pairing.consumer != "cpp":
        names = {name for each in consumer.got for name in each["properties"]}
        own = _OWN - {"UNIQ_KEY"} if cell.pairing.producer == "node" else _OWN
        assert names - _ADDED == {*own, *PROPERTIES}, names
    await consumer.stop()
    third = many(topic, 10, start=200)
    await producer.send(third)
    another = await cell.consumer(topic, group=group, properties=PROPERTIES)
    await another.until(10)
    await sleep(_LONGER)
    check(third, another.got)


@scenario("Push, orderly", "selector", "orderly")
async def pushOrderly(cell: Cell) -> None:
    """
    The messages of a key come in order, also where one fails at first and comes again.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    consumer = await cell.consumer(topic, orderly=True, properties=PROPERTIES)
    sent: dict[str, list[Shown]] = {}
    for place, key in enumerate(("tea", "coffee", "water")):
        sent[key] = many(topic, 20, start=100 * place)
        sent[key][5]["properties"]["failTimes"] = "1"
        await producer.send(sent[key], "selector", key=key)
    await consumer.until(63)
    await sleep(_LONGER)
    for messages in sent.values():
        expected = [each["body"] for each in messages]
        expected.insert(5, expected[5])
        own = [each["body"] for each in consumer.got if each["body"] in expected]
        assert own == expected, own


@scenario("Pull", "queue", "pull")
async def pull(cell: Cell) -> None:
    """
    From any offset, as many as are wanted; outside of the queue, one is told where it
    is.
    """
    topic = await cell.topic(2)
    producer = await cell.producer()
    sent = many(topic, 50)
    await producer.send(sent, "queue", queueId=1)
    await cell.stored(topic, 50)
    puller = await cell.puller(properties=PROPERTIES)
    assert await puller.queues(topic) == [0, 1]
    result = await puller.pull(topic, 1, 10, 7)
    assert (result["status"], result["next"]) == ("FOUND", 17), result
    assert (result["min"], result["max"]) == (0, 50), result
    check(sent[10:17], result["messages"])
    result = await puller.pull(topic, 1, 40, 32)
    assert (result["status"], result["next"]) == ("FOUND", 50), result
    check(sent[40:], result["messages"])
    result = await puller.pull(topic, 1, 1000)
    assert (result["status"], result["next"]) == ("OFFSET_ILLEGAL", 50), result
    if cell.pairing.consumer != "go":
        # It waits there, for 20 seconds.
        result = await puller.pull(topic, 1, 50)
        assert (result["status"], result["next"]) == ("NO_NEW_MSG", 50), result


@scenario("Pull, and commit offsets", "queue", "pull commit")
async def commit(cell: Cell) -> None:
    """
    Offsets are kept for the group, and a consumer that messages are pushed to begins
    there.
    """
    topic, group = await cell.topic(1), cell.group()
    producer = await cell.producer()
    sent = many(topic, 30)
    await producer.send(sent, "queue", queueId=0)
    puller = await cell.puller(group)
    assert await puller.ask("committed", topic=topic, queueId=0) in (-1, 0)
    await puller.ask("commit", topic=topic, queueId=0, offset=20)
    await puller.stop()
    again = await cell.puller(group)
    # Offsets are told without an answer, and the broker may serve another connection first.
    end = reactor.seconds() + _COMMITTED
    while (found := await again.ask("committed", topic=topic, queueId=0)) != 20:
        assert reactor.seconds() < end, found
        await sleep(0.1)
    await again.stop()
    consumer = await cell.consumer(topic, group=group, properties=PROPERTIES)
    await consumer.until(10)
    await sleep(_LONGER)
    check(sent[20:], consumer.got)


@scenario("Broadcast", "sync", "broadcast")
async def broadcast(cell: Cell) -> None:
    """
    Each member of the group gets all messages; one is the producer's client.
    """
    topic, group = await cell.topic(), cell.group()
    clients = [cell.pairing.consumer, cell.pairing.producer]
    consumers = [
        await cell.consumer(
            topic, group=group, client=client, broadcast=True, properties=PROPERTIES
        )
        for client in clients
    ]
    producer = await cell.producer()
    sent: list[Shown] = []
    # A new member begins with what comes after it; when that is, no client tells.
    while not all(each.got for each in consumers):
        assert len(sent) < 480, [len(each.got) for each in consumers]
        more = many(topic, 4, start=len(sent))
        await producer.send(more)
        sent += more
        await sleep(0.5)
    last = many(topic, 20, start=len(sent))
    await producer.send(last)
    for consumer in consumers:
        await consumer.until(lambda: set(bodies(last)) <= set(bodies(consumer.got)))  # noqa: B023
        await sleep(_LONGER)
        check(last, [each for each in consumer.got if each["body"] in bodies(last)])
        assert max(Counter(bodies(consumer.got)).values()) == 1


# Java's hash, by which brokers choose, is the same of the last two.
_TAGS = ["A", "B", "C", "AaAa", "BBBB"]


@scenario("Tags", "sync", "push tags")
async def tags(cell: Cell) -> None:
    """
    Only those with one of the tags come, also if another tag has the same hash.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    sent = [{**each, "tags": _TAGS[number % 5]} for number, each in enumerate(many(topic, 50))]
    consumer = await cell.consumer(topic, "A || AaAa", properties=PROPERTIES)
    await producer.send(sent)
    await consumer.until(20)
    await sleep(_LONGER)
    check([each for each in sent if each["tags"] in ("A", "AaAa")], consumer.got)


@scenario("SQL92", "sync", "push sql")
async def sql(cell: Cell) -> None:
    """
    Only those come of which the expression is true.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    expression = "number BETWEEN 10 AND 29 AND colour IN ('red', 'blue') AND absent IS NULL"
    consumer = await cell.consumer(topic, expression, "SQL92", properties=PROPERTIES)
    sent = many(topic, 50)
    await producer.send(sent)
    wanted = [each for each in sent[10:30] if each["properties"]["colour"] in ("red", "blue")]
    await consumer.until(len(wanted))
    await sleep(_LONGER)
    check(wanted, consumer.got)
    other = await cell.consumer(
        topic, "leaf = '红茶' OR NOT (number < 47.5)", "SQL92", properties=PROPERTIES
    )
    tea = many(topic, 1, start=5)
    tea[0]["properties"]["leaf"] = "红茶"
    await producer.send(tea)
    await other.until(3)
    await sleep(_LONGER)
    check(sent[48:] + tea, other.got)


@scenario("Members join and leave", "sync", "push", limit=400.0)
async def members(cell: Cell) -> None:
    """
    The queues are divided anew whenever a member comes or goes; one is the producer's
    client.  No message is lost.
    """
    topic, group = await cell.topic(6), cell.group()
    producer = await cell.producer()
    first = await cell.consumer(topic, group=group, properties=PROPERTIES)
    sent: list[Shown] = []

    async def more(count: int = 12) -> None:
        part = many(topic, count, start=len(sent))
        sent.extend(part)
        await producer.send(part)

    await more()
    await first.until(12)
    second = await cell.consumer(
        topic, group=group, client=cell.pairing.producer, properties=PROPERTIES
    )
    both = [first, second]
    # Each has three of the six queues in the end.
    await _shared(both, more)
    await first.stop()
    before = len(second.got)
    await more(30)
    last = {each["body"] for each in sent[-30:]}
    await second.until(lambda: last <= {each["body"] for each in second.got[before:]})
    missing = set(bodies(sent)) - {each["body"] for one in both for each in one.got}
    assert not missing, f"{len(missing)} of {len(sent)} are lost, such as {missing.pop()!r}"


async def _shared(consumers: list[Consumer], more: Callable[[], Awaitable[None]]) -> None:
    """
    Send until each consumer gets the messages of three queues that no other gets.
    """
    for _ in range(240):
        marks = [len(each.got) for each in consumers]
        await more()
        await sleep(0.5)
        queues = [
            {message["queueId"] for message in each.got[mark:]}
            for each, mark in zip(consumers, marks, strict=True)
        ]
        if [len(each) for each in queues] == [3, 3] and not queues[0] & queues[1]:
            return
    raise AssertionError(f"the queues are not divided: {queues}")
