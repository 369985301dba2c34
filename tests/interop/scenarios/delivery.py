# SPDX-License-Identifier: Apache-2.0
"""
Late delivery, deliveries that fail, transactions, requests and traces.
"""

from __future__ import annotations

import time

from tests.interop.cells import Cell, scenario, sleep
from tests.interop.driver import Puller, Refused, Shown
from tests.interop.messages import PROPERTIES, bodies, check, many
from tests.interop.servers import DELAYS
from tests.live.servers import reactor

_LONGER = 1.0

# How many seconds too late something may come, on a machine that has much else to do.
_LATE = 20.0


@scenario("Delay levels", "sync delay", "push")
async def delay(cell: Cell) -> None:
    """
    Each message comes when its delay is over, and not before; a level above the highest is
    the highest, and the stored level shows it.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    consumer = await cell.consumer(topic, properties=[*PROPERTIES, "DELAY"])
    # By then it surely waits for messages.
    await producer.send(many(topic, 4))
    await consumer.until(4)
    sent = many(topic, 6, start=4)
    levels = [1, 2, 1, 2, 18, 99]
    for each, level in zip(sent, levels, strict=True):
        each["delay"] = level
    began = reactor.seconds()
    await producer.send(sent)
    done = reactor.seconds()
    await consumer.until(10)
    check(sent, consumer.got[4:])
    for each, level in zip(sent, levels, strict=True):
        seconds = int(DELAYS[min(level, 18) - 1].removesuffix("s"))
        [got] = [got for got in consumer.got if got["body"] == each["body"]]
        assert got["properties"].get("DELAY") == str(min(level, 18)), got["properties"]
        came = got["at"]
        assert came - began >= seconds - 0.01, f"level {level}: too soon, {came - began:.3f} s"
        assert came - done <= seconds + _LATE, f"level {level}: too late, {came - done:.3f} s"


@scenario("Delivery at any time", "sync", "push", beyond=True)
async def anyTime(cell: Cell) -> None:
    """
    The properties of 5.x clients, and that of ali-ons, with clients that know nothing of
    them.
    """
    topic = await cell.topic()
    producer = await cell.producer()
    consumer = await cell.consumer(topic, properties=PROPERTIES)
    await producer.send(many(topic, 4))
    await consumer.until(4)
    now = int(time.time() * 1000)
    wishes = [
        ("TIMER_DELAY_MS", 1500, 1500),
        ("TIMER_DELAY_SEC", 3, 3000),
        ("TIMER_DELIVER_MS", now + 2500, 2500),
        ("__STARTDELIVERTIME", now + 4500, 4500),
    ]
    sent = many(topic, 4, start=4)
    for each, (name, value, _) in zip(sent, wishes, strict=True):
        each["properties"][name] = str(value)
    await producer.send(sent)
    await consumer.until(8)
    check(sent, consumer.got[4:])
    for each, (name, _, milliseconds) in zip(sent, wishes, strict=True):
        [came] = [
            got["storeTimestamp"] - now for got in consumer.got if got["body"] == each["body"]
        ]
        assert milliseconds <= came <= milliseconds + _LATE * 1000, f"{name}: after {came} ms"


@scenario("Retry, then dead letters", "sync", "push pull retry", limit=500.0)
async def retry(cell: Cell) -> None:
    """
    A failed message comes again up to the maximum of times, with its topic and its
    properties; then it is a dead letter.
    """
    topic, group = await cell.topic(), cell.group()
    producer = await cell.producer()
    sent = many(topic, 4)
    sent[1]["properties"]["failTimes"] = "2"
    sent[2]["properties"]["failTimes"] = "99"
    # The C++ client cannot say how often.
    await cell.retries(group, 3)
    consumer = await cell.consumer(
        topic, group=group, maxReconsumeTimes=3, properties=[*PROPERTIES, "ORIGIN_MESSAGE_ID"]
    )
    # One after the other: in the C++ client, those fail as well that are pulled together
    # with one that does.
    await producer.send(sent[:2])
    await consumer.until(1 + 3, 150.0)
    await producer.send(sent[2:])
    await consumer.until(1 + 3 + 4 + 1, 150.0)
    dead = f"%DLQ%{group}"
    await cell.stored(dead, 1)
    await sleep(_LONGER)
    for each, times in zip(sent, (1, 3, 4, 1), strict=True):
        own = [got for got in consumer.got if got["body"] == each["body"]]
        counted = [got["reconsumeTimes"] for got in own]
        assert counted == list(range(times)), counted
        check([each] * times, own)
        # It keeps the id by which its sender knows it; the client for Node gives none.
        assert len({got["msgId"] for got in own}) == 1 or cell.pairing.producer == "node", own
    await consumer.stop()
    # Nobody may read there by default.
    await cell.topic(1, dead, perm=6)
    [letter] = await cell.read(dead, 1, properties=[*PROPERTIES, "RETRY_TOPIC"])
    assert letter["body"] == sent[2]["body"], letter
    assert letter["tags"] == sent[2]["tags"], letter
    assert letter["properties"]["RETRY_TOPIC"] == topic, letter


def _told(messages: list[Shown], local: str, check: str = "UNKNOW") -> list[Shown]:
    for each in messages:
        each["properties"] |= {"local": local, "check": check}
    return messages


@scenario("Transaction, commit", "transaction", "push")
async def commit(cell: Cell) -> None:
    """
    A message of a transaction that takes place comes.
    """
    await _transactions(cell, "COMMIT_MESSAGE", "UNKNOW", comes=True)


@scenario("Transaction, rollback", "transaction", "push")
async def rollback(cell: Cell) -> None:
    """
    One of a transaction that does not take place does not.
    """
    await _transactions(cell, "ROLLBACK_MESSAGE", "COMMIT_MESSAGE", comes=False)


@scenario("Transaction, check", "transaction", "push", limit=500.0)
async def checked(cell: Cell) -> None:
    """
    If the sender has not said, the broker asks, and then the message comes or not.
    """
    await _transactions(cell, "UNKNOW", "COMMIT_MESSAGE", comes=True)
    await _transactions(cell, "UNKNOW", "ROLLBACK_MESSAGE", comes=False)


async def _transactions(cell: Cell, local: str, check_: str, *, comes: bool) -> None:
    topic = await cell.topic()
    consumer = await cell.consumer(topic, properties=PROPERTIES)
    producer = await cell.producer(transactional=True)
    sent = _told(many(topic, 8), local, check_)
    results = await producer.send(sent, "transaction")
    assert {each["state"] for each in results} == {local}, results
    if comes:
        await consumer.until(8)
        await sleep(_LONGER)
        check(sent, consumer.got)
    else:
        # Two rounds of asking would have brought it by then.
        await sleep(6.0)
        assert not consumer.got, consumer.got


@scenario("Request and reply", "request", "push reply")
async def request(cell: Cell) -> None:
    """
    The requester gets the reply; without one, it gets an error in time.
    """
    topic = await cell.topic()
    consumer = await cell.consumer(topic, reply=True, properties=PROPERTIES)
    producer = await cell.producer()
    for each in many(topic, 5):
        reply = await producer.request(each)
        assert reply["body"] == b"reply to " + each["body"], reply
    # Not once only: the Go client asks before the broker knows it, so that the first reply
    # fails, and with it the listener.
    wanted = set(bodies(many(topic, 5)))
    # The reply may be here before its consumer has told of the request.
    await consumer.until(lambda: wanted <= set(bodies(consumer.got)))
    assert set(bodies(consumer.got)) == wanted, bodies(consumer.got)
    silent = await cell.topic()
    began = reactor.seconds()
    try:
        await producer.request(many(silent, 1)[0], 2.0)
    except Refused:
        assert 1.5 < reactor.seconds() - began < 2 + _LATE, reactor.seconds() - began
    else:
        raise AssertionError("a reply that nobody sent")


@scenario("Message trace", "sync trace", "push trace")
async def trace(cell: Cell) -> None:
    """
    Java and we read the traces of the clients.
    """
    topic, group = await cell.topic(), cell.group()
    senders = cell.group()
    consumer = await cell.consumer(topic, group=group, trace=True, properties=PROPERTIES)
    producer = await cell.producer(senders, trace=True)
    sent = many(topic, 3)
    results = await producer.send(sent)
    await consumer.until(3)
    for reader in ("java", "ours"):
        if reader in cell.absent:
            continue
        puller = await cell.puller(client=reader)
        for each, result in zip(sent, results, strict=True):
            views = await _views(puller, result["msgId"])
            [published] = [view for view in views if view["msgType"] == "Pub"]
            assert published["groupName"] == senders, published
            assert published["topic"] == topic, published
            assert published["tags"] == each["tags"], published
            assert published["keys"].split() == each["keys"], published
            assert published["status"] == "success", published
            [before] = [view for view in views if view["msgType"] == "SubBefore"]
            assert before["groupName"] == group, before
            after = [view for view in views if view["msgType"] == "SubAfter"]
            assert [view["status"] for view in after] == ["success"], views


async def _views(puller: Puller, msgId: str) -> list[Shown]:
    """
    Traces are written a little later, in batches.
    """
    views: list[Shown] = []
    for _ in range(240):
        try:
            views = await puller.ask("trace", msgId=msgId)
        except Refused:
            views = []
        if {each["msgType"] for each in views} >= {"Pub", "SubBefore", "SubAfter"}:
            break
        await sleep(0.5)
    return views
