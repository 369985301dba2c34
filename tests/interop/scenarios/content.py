# SPDX-License-Identifier: Apache-2.0
"""
What messages can hold, and how they are found again.
"""

from __future__ import annotations

from tests.interop.cells import Cell, scenario, sleep
from tests.interop.driver import Puller, Refused, Shown, received
from tests.interop.messages import PROPERTIES, check, checkResults, many, noise

_LIMIT = 4 << 20


@scenario("Compression", "sync compress", "push")
async def compression(cell: Cell) -> None:
    """
    A body of more than 4 KiB is compressed on the wire, and arrives as it was.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    consumer = await cell.consumer(topic, properties=PROPERTIES)
    sent = many(topic, 6)
    for number, each in enumerate(sent):
        each["body"] = b"%d, and the same again and again; " % number * 3000
    await producer.send(sent)
    await consumer.until(6)
    check(sent, consumer.got)
    for each in consumer.got:
        assert each["storeSize"] < len(each["body"]) // 10, each["storeSize"]


@scenario("Large messages", "sync", "push")
async def large(cell: Cell) -> None:
    """
    Almost 4 MiB, which no compression makes smaller; more is refused.
    """
    topic = await cell.topic()
    producer = await cell.producer(maxSize=8 << 20)
    consumer = await cell.consumer(topic, properties=PROPERTIES)
    sent = many(topic, 3)
    for number, each in enumerate(sent):
        each["body"] = noise(_LIMIT - 4096, number)
    await producer.send(sent)
    await consumer.until(3)
    check(sent, consumer.got)
    [tooLarge] = many(topic, 1)
    tooLarge["body"] = noise(_LIMIT + 4096)
    try:
        await producer.send([tooLarge])
    except Refused:
        return
    raise AssertionError("more than 4 MiB were taken")


_WORDS = ["茶", "中文标签", "🍵", "👩‍👩‍👧", "naïve", "Ω≈ç√", "العربية", "𠮷野家"]


@scenario("Chinese and emoji", "sync unicode", "push tags unicode")
async def unicode(cell: Cell) -> None:
    """
    In bodies, tags, keys and properties; also as what is subscribed to.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    # The Go client tells brokers hashes of the bytes of such tags, where Java's and all
    # others' are of UTF-16.
    wanted = _WORDS if cell.pairing.consumer == "go" else _WORDS[:-1]
    expression = "*" if cell.pairing.consumer == "go" else " || ".join(wanted)
    consumer = await cell.consumer(topic, expression, properties=["number", "言葉", "mood"])
    sent = [
        {
            "topic": topic,
            "body": f"{word} {word}".encode(),
            "tags": word,
            "keys": [f"{topic}-{word}", f"{topic}-又{word}"],
            "properties": {"number": str(number), "言葉": word, "mood": f"{word}😀"},
        }
        for number, word in enumerate(_WORDS)
    ]
    results = await producer.send(sent)
    await consumer.until(len(wanted))
    await sleep(1.0)
    check(sent[: len(wanted)], consumer.got, ["number", "言葉", "mood"])
    checkResults(sent[: len(wanted)], results[: len(wanted)], consumer.got)


@scenario("Query by key", "sync", "byKey")
async def byKey(cell: Cell) -> None:
    """
    By one of its keys; those of several messages find all of them.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    sent = many(topic, 20)
    sent[3]["keys"].append("茶🍵")
    await producer.send(sent)
    puller = await cell.puller(properties=PROPERTIES)
    for key, wanted in (
        (f"{topic}-key7", sent[7:8]),
        ("茶🍵", sent[3:4]),
        (f"{topic}-even1", sent[1::2]),
    ):
        check(wanted, await _byKey(puller, topic, key, len(wanted)))
    try:
        assert not await puller.ask("byKey", topic=topic, key="none of them")
    except Refused as refused:
        # Java throws where it finds nothing.
        assert "no message" in str(refused), refused


async def _byKey(puller: Puller, topic: str, key: str, count: int) -> list[Shown]:
    """
    The index may be behind the log for a moment.
    """
    found: list[Shown] = []
    for _ in range(300):
        try:
            found = [received(each) for each in await puller.ask("byKey", topic=topic, key=key)]
        except Refused:
            found = []
        if len(found) >= count:
            break
        await sleep(0.2)
    return found


@scenario("Query by id", "sync", "byId")
async def byId(cell: Cell) -> None:
    """
    By the id that the broker gave, and by the one that the sender gave.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    sent = many(topic, 10)
    results = await producer.send(sent)
    puller = await cell.puller(properties=PROPERTIES)
    await _byKey(puller, topic, f"{topic}-key9", 1)
    for name in ("offsetMsgId", "msgId"):
        if results[0].get(name):
            found = await puller.ask("byId", topic=topic, msgId=results[5][name])
            check(sent[5:6], [received(found)])


@scenario("Query by time", "queue", "pull byTime")
async def byTime(cell: Cell) -> None:
    """
    The first message that was stored at a time or after it.
    """
    topic = await cell.topic(1)
    producer = await cell.producer()
    for each in many(topic, 10):
        await producer.send([each], "queue", queueId=0)
        await sleep(0.02)
    await cell.stored(topic, 10)
    puller = await cell.puller()
    times = [each["storeTimestamp"] for each in (await puller.pull(topic, 0, 0))["messages"]]
    assert sorted(set(times)) == times, times
    for offset, timestamp in enumerate(times):
        found = await puller.ask("byTime", topic=topic, queueId=0, timestamp=timestamp)
        assert found == offset, (found, offset)
    assert await puller.ask("byTime", topic=topic, queueId=0, timestamp=times[0] - 5000) == 0
    late = await puller.ask("byTime", topic=topic, queueId=0, timestamp=times[-1] + 5000)
    assert late in (9, 10), late
