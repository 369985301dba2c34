# SPDX-License-Identifier: Apache-2.0
"""
C{make demo}: a day of a shop's orders, and what the jobs make of it.

    python examples/pipeline.py [FOLDER]

It starts a name server and a broker, sends a day of orders, some of them twice, some late
and some that nobody can deal with, has two groups consume them, and then runs three jobs
with Spark: archive, metrics and the report on dead letters.  All is in the folder in the
end, C{build/demo} by default.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from txrocket.blocking import Client, Settings
from txrocket.message import Message, MessageExt
from txrocket.testing import ChildCluster

TOPIC = "Orders"
COUNT = 10_000
LIVE = 500
DAY = 86_400

# Groups: one that deals with all orders, and one that falls behind.
BILLING, REPORTS = "billing", "reports"


def day(count: int, midnight: float, chance: random.Random) -> Iterator[tuple[float, Message]]:
    """
    A day of orders, each with when it was made, in the order in which they are sent.
    """
    waiting: list[tuple[float, Message]] = []
    for number in range(count):
        # More in the evening than at night.
        made = midnight + DAY * ((number + chance.random()) / count) ** 0.7
        tag = chance.choice(("new", "new", "paid", "shipped"))
        amount = round(chance.lognormvariate(3, 1), 2)
        if chance.random() < 0.004:
            amount = -amount
        currency = "EUR" if chance.random() > 0.002 else "???"
        order = {"order": number, "amount": amount, "currency": currency}
        message = Message(TOPIC, json.dumps(order).encode(), tag, f"order-{number}")
        if chance.random() < 0.01:
            waiting.append((made, message))
            continue
        yield made, message
        if chance.random() < 0.02:
            yield made, message
        if waiting and chance.random() < 0.01:
            yield waiting.pop(0)
    yield from waiting


def send(nameServers: list[str]) -> int:
    """
    Send the day.

    @return: how many messages there were.
    """
    midnight = time.time() // DAY * DAY - DAY
    count = 0
    with Client(Settings(nameServers, timeout=30.0)) as client:
        client.createTopic(TOPIC, 4)
        for made, message in day(COUNT, midnight, random.Random(20_26)):
            client.send(message, key=message.keys[0], born=made)
            count += 1
            if count % 2000 == 0:
                print(f"  {count:,} orders sent", flush=True)
    return count


def bill(message: MessageExt) -> Any:
    """
    A listener that cannot deal with every order.
    """
    from txrocket.client import ConsumeLater

    order = json.loads(message.body)
    if order["currency"] == "???":
        # Never: it is dead at once.
        return ConsumeLater(delayLevel=-1)
    if order["amount"] < 0:
        raise ValueError(f"order {order['order']} of {order['amount']}")
    return None


async def shop(reactor: Any, nameServers: str, enough: str) -> None:
    """
    Consume, and send some more orders meanwhile, with traces of all that.  This runs in a
    process of its own, since it needs a reactor.

    @param enough: how many messages the slower group consumes.
    """
    from twisted.internet.task import deferLater

    from txrocket import ConsumeFromWhere
    from txrocket.client import Cluster, Producer, PushConsumer

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    seen = 0

    def count(message: MessageExt) -> None:
        nonlocal seen
        seen += 1

    async with Cluster(nameServers, reactor) as cluster:
        billing = PushConsumer(
            cluster, BILLING, bill, consumeFromWhere=first, maxReconsumeTimes=1, trace=True
        )
        reports = PushConsumer(cluster, REPORTS, count, consumeFromWhere=first, pullInterval=0.05)
        for each in (billing, reports):
            each.subscribe(TOPIC)
        async with billing, Producer(cluster, "shop", trace=True) as producer:
            async with reports:
                while seen < int(enough):
                    await deferLater(reactor, 0.1)
            for number in range(COUNT, COUNT + LIVE):
                order = {"order": number, "amount": 9.99, "currency": "EUR"}
                message = Message(TOPIC, json.dumps(order).encode(), "live", f"order-{number}")
                await producer.send(message)
                await deferLater(reactor, 0.002)
            # Those that failed come once more, and are dead then.
            await deferLater(reactor, 5.0)


def jobs(nameServers: list[str], folder: str) -> None:
    """
    Run the jobs, all in one session.
    """
    from pyspark_rocketmq import sparkSession
    from pyspark_rocketmq.jobs.command import main as job

    spark = sparkSession(
        "demo",
        "local[2]",
        {
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    names = ("--name-servers", ";".join(nameServers))
    archive, metrics, dead = (f"{folder}/{each}" for each in ("archive", "metrics", "dead-letters"))
    for given in (
        ("archive", "--topics", TOPIC, "--folder", archive, "--batch", "4000"),
        *(
            ("metrics", "--archive", archive, "--folder", metrics, *more)
            for more in (("--every", "30 minutes", "--when", "bornTimestamp"),)
        ),
        ("dead-letters", "--folder", dead),
    ):
        print(f"\n$ txrocket-pipeline {' '.join(given)}", flush=True)
        if job([*given, *names], spark):
            raise SystemExit(1)
    spark.stop()
    print(f"\nThe archive is in {archive}, to be read with Spark.")
    print(f"The metrics are in {metrics}: open {metrics}/metrics.html in a browser.")
    print(f"The report on dead letters is in {dead}.")


def main(folder: str = "build/demo") -> None:
    """
    All of it.
    """
    from pyspark_rocketmq.java import NoJava, findJava

    try:
        print(f"Java: {findJava()}")
    except NoJava as error:
        raise SystemExit(str(error)) from None
    folder = os.path.abspath(folder)
    shutil.rmtree(folder, ignore_errors=True)
    settings = {
        "traceTopicEnable": True,
        # What fails comes again after a second and not after ten.
        "messageDelayLevel": " ".join(["1s"] * 18),
    }
    with ChildCluster(folder=f"{folder}/cluster", settings=settings, timeout=120.0) as cluster:
        print(f"A name server is at {cluster.nameServers[0]}, a broker at {cluster.brokers[0]}")
        count = send(cluster.nameServers)
        print(f"{count:,} orders sent; {BILLING} and {REPORTS} consume them", flush=True)
        subprocess.run(
            [sys.executable, __file__, "shop", cluster.nameServers[0], str(count * 2 // 3)],
            check=True,
            timeout=300,
        )
        jobs(cluster.nameServers, folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["shop"]:
        from twisted.internet.task import react

        react(shop, sys.argv[2:])
    else:
        main(*sys.argv[1:])
