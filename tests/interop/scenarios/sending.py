# SPDX-License-Identifier: Apache-2.0
"""
The ways of sending.
"""

from __future__ import annotations

from tests.interop.cells import Cell, scenario
from tests.interop.messages import PROPERTIES, check, checkResults, many
from txrocket.protocol.javahash import javaHash


@scenario("Send, synchronously", "sync", "pull")
async def sendSync(cell: Cell) -> None:
    """
    To a topic that comes into being with the first message.
    """
    # The client for Node sends to topics only that there are.
    topic = await cell.topic() if cell.pairing.producer == "node" else cell.named("fresh")
    producer = await cell.producer()
    sent = many(topic, 20, flag=7)
    results = await producer.send(sent)
    got = await cell.read(topic, 20, properties=PROPERTIES)
    check(sent, got)
    checkResults(sent, results, got)
    assert {each.get("flag", 7) for each in got} <= {0, 7}, got[0]


@scenario("Send, asynchronously", "async", "pull")
async def sendAsync(cell: Cell) -> None:
    """
    Many at a time.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    sent = many(topic, 100)
    results = await producer.send(sent, "async")
    got = await cell.read(topic, 100, properties=PROPERTIES)
    check(sent, got)
    checkResults(sent, results, got)


@scenario("Send, oneway", "oneway", "pull")
async def sendOneway(cell: Cell) -> None:
    """
    No broker answers, and all messages arrive.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    sent = many(topic, 50)
    await producer.send(sent, "oneway")
    check(sent, await cell.read(topic, 50, properties=PROPERTIES))


@scenario(
    "Send, a batch",
    "batch",
    "pull",
    excepted={("cpp", "java"): "it marks a batch by 1, which RocketMQ's broker takes for false"},
)
async def sendBatch(cell: Cell) -> None:
    """
    All of it in one queue, in order.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    # The C++ client compresses a batch of more than 4 KiB as if it were one message.
    sent = many(topic, 10)
    [result] = await producer.send(sent, "batch")
    got = await cell.read(topic, 10, properties=PROPERTIES)
    check(sent, got)
    assert [each["body"] for each in got] == [each["body"] for each in sent]
    assert len({each["queueId"] for each in got}) == 1
    assert result["queueOffset"] == got[0]["queueOffset"], result
    if cell.pairing.producer in ("ours", "java"):
        assert result["msgId"].split(",") == [each["msgId"] for each in got], result


@scenario("Send, to a queue", "queue", "pull")
async def sendToQueue(cell: Cell) -> None:
    """
    To the queue that the sender names.
    """
    topic = await cell.topic(3)
    producer = await cell.producer()
    sent = []
    for queueId in (2, 0, 1):
        part = many(topic, 4, start=10 * queueId)
        sent += part
        for result in await producer.send(part, "queue", queueId=queueId):
            assert result["queueId"] == queueId, result
    got = await cell.read(topic, 12, properties=PROPERTIES)
    check(sent, got)
    for each in got:
        assert int(each["body"].split()[1]) // 10 == each["queueId"], each


@scenario("Send, by a selector", "selector", "pull")
async def sendBySelector(cell: Cell) -> None:
    """
    Those of a key are in one queue, in order; Java and we choose the same one.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    sent = {}
    for place, key in enumerate(("tea", "coffee", "könig", "王")):
        sent[key] = many(topic, 10, start=100 * place)
        await producer.send(sent[key], "selector", key=key)
    got = await cell.read(topic, 40, properties=PROPERTIES)
    check([each for messages in sent.values() for each in messages], got)
    for key, messages in sent.items():
        bodies = [each["body"] for each in messages]
        own = [each for each in got if each["body"] in bodies]
        assert [each["body"] for each in own] == bodies, key
        [queueId] = {each["queueId"] for each in own}
        if cell.pairing.producer in ("ours", "java"):
            assert queueId == abs(javaHash(key)) % 4, (key, queueId)
