# SPDX-License-Identifier: Apache-2.0
"""
C{make demo}: a day of a shop's orders, and the jobs that evaluate it.

    python examples/pipeline.py [FOLDER]

It starts a name server and a broker and sends a day of orders, some of them twice, some
late and some that no consumer can process.  Two groups consume them, one fast and one slow,
while further orders arrive.  Meanwhile three jobs run with Spark: archive, metrics and the
report on dead letters.  All results are in the folder, C{build/demo} by default.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from txrocket.blocking import Client, Settings
from txrocket.message import Message, MessageExt
from txrocket.testing import ChildCluster

TOPIC = "Orders"
COUNT = 10_000
DAY = 86_400

# The seconds between two orders while the jobs run.
PAUSE = 0.02

# Groups: one that keeps up, and one that lags.
BILLING, REPORTS = "billing", "reports"


def order(number: int, chance: random.Random) -> tuple[str, Message]:
    """
    The kind of an order, and its message.
    """
    kind = chance.choices(("good", "negative", "unknown"), (0.994, 0.004, 0.002))[0]
    amount = round(chance.lognormvariate(3, 1), 2) * (-1 if kind == "negative" else 1)
    currency = "???" if kind == "unknown" else "EUR"
    body = json.dumps({"order": number, "amount": amount, "currency": currency})
    tag = chance.choice(("new", "new", "paid", "shipped"))
    return kind, Message(TOPIC, body.encode(), tag, f"order-{number}")


def day(midnight: float, chance: random.Random) -> Iterator[tuple[str, float, Message]]:
    """
    A day of orders, each with its time, in the order in which they are sent.
    """
    late: list[tuple[str, float, Message]] = []
    for number in range(COUNT):
        # More in the evening than at night.
        made = midnight + DAY * ((number + chance.random()) / COUNT) ** 0.7
        kind, message = order(number, chance)
        if chance.random() < 0.01:
            late.append(("late", made, message))
            continue
        yield kind, made, message
        if chance.random() < 0.02:
            yield "twice", made, message
        if late and chance.random() < 0.01:
            yield late.pop(0)
    yield from late


def send(nameServers: list[str]) -> Counter[str]:
    """
    Send the day.

    @return: the number of messages of each kind.
    """
    midnight = time.time() // DAY * DAY - DAY
    sent: Counter[str] = Counter()
    with Client(Settings(nameServers, timeout=30.0)) as client:
        client.createTopic(TOPIC, 4)
        for kind, made, message in day(midnight, random.Random(2026)):
            client.send(message, key=message.keys[0], born=made)
            sent[kind] += 1
            if sent.total() % 2500 == 0:
                print(f"  {sent.total():,} sent", flush=True)
    return sent


def bill(message: MessageExt) -> Any:
    """
    A listener that cannot process every order.
    """
    from txrocket.client import ConsumeLater

    found = json.loads(message.body)
    if found["currency"] == "???":
        # Not retried: it becomes a dead letter at once.
        return ConsumeLater(delayLevel=-1)
    if found["amount"] < 0:
        raise ValueError(f"order {found['order']} of {found['amount']}")
    return None


async def shop(reactor: Any, nameServers: str) -> None:
    """
    Consume, and send further orders, with traces, until the process is ended.  It has its
    own process, because it needs a reactor.
    """
    from twisted.internet.task import deferLater

    from txrocket import ConsumeFromWhere
    from txrocket.client import Cluster, Producer, PushConsumer

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    chance = random.Random(2027)
    number = COUNT
    async with Cluster(nameServers, reactor) as cluster:
        billing = PushConsumer(
            cluster, BILLING, bill, consumeFromWhere=first, maxReconsumeTimes=1, trace=True
        )
        reports = PushConsumer(
            cluster, REPORTS, lambda message: None, consumeFromWhere=first, pullInterval=0.5
        )
        for each in (billing, reports):
            each.subscribe(TOPIC)
        async with billing, reports, Producer(cluster, "shop", trace=True) as producer:
            while True:
                await producer.send(order(number, chance)[1])
                await deferLater(reactor, PAUSE)
                number += 1


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
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    names = ("--name-servers", ";".join(nameServers))
    # The commands as a user would type them.
    folder = os.path.relpath(folder)
    archive, metrics, dead = (f"{folder}/{each}" for each in ("archive", "metrics", "dead-letters"))
    for given in (
        ("archive", "--topics", TOPIC, "--folder", archive, "--batch", "4000"),
        (
            *("metrics", "--topics", TOPIC, "--folder", metrics),
            *("--every", "30 minutes", "--when", "bornTimestamp"),
            *("--where", "bornTimestamp < current_date()"),
            *("--latency-every", "2 seconds", "--samples", "10", "--pause", "1"),
        ),
        ("dead-letters", "--folder", dead),
    ):
        print(f"\n$ txrocket-pipeline {shlex.join(given)}", flush=True)
        if job([*given, *names], spark):
            raise SystemExit(1)
    spark.stop()
    print(f"\nThe archive is in {archive}, to be read with Spark.")
    print(f"The metrics are in {metrics}: open {metrics}/metrics.html in a browser.")
    print(f"The report on dead letters is in {dead}.")


def main(folder: str = "build/demo") -> None:
    """
    Run the demo.
    """
    from pyspark_rocketmq.javahome import NoJava, findJava

    try:
        print(f"Java: {findJava()}")
    except NoJava as error:
        raise SystemExit(str(error)) from None
    folder = os.path.abspath(folder)
    shutil.rmtree(folder, ignore_errors=True)
    settings = {
        "traceTopicEnable": True,
        # A failed message is retried after a second and not after ten.
        "messageDelayLevel": " ".join(["1s"] * 18),
    }
    with ChildCluster(folder=f"{folder}/cluster", settings=settings, timeout=120.0) as cluster:
        print(f"A name server is at {cluster.nameServers[0]}, a broker at {cluster.brokers[0]}")
        sent = send(cluster.nameServers)
        print(
            f"{sent.total():,} orders of yesterday sent: {sent['twice']} came twice,"
            f" {sent['late']} late, {sent['negative'] + sent['unknown']} cannot be billed."
        )
        print(f"{BILLING} and {REPORTS} consume them while more orders come.", flush=True)
        program = [sys.executable, __file__, "shop", cluster.nameServers[0]]
        with open(f"{folder}/shop.log", "wb") as log, subprocess.Popen(program, stderr=log) as shop:
            try:
                jobs(cluster.nameServers, folder)
            finally:
                shop.terminate()


if __name__ == "__main__":
    if sys.argv[1:2] == ["shop"]:
        from twisted.internet.task import react

        react(shop, sys.argv[2:])
    else:
        main(*sys.argv[1:])
