# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.tables.consumerfilters}.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.broker.peers import Connected, consumer
from tests.store.support import Disk, atOnce
from txrocket.broker.clients.consumers import Consumers
from txrocket.broker.plugins import Plugins, checkPlugins
from txrocket.broker.settings import FilterSettings, PullSettings
from txrocket.broker.tables.consumerfilters import ConsumerFilters
from txrocket.broker.tables.savedtable import TableFile
from txrocket.config import Live
from txrocket.model import SubscriptionData
from txrocket.store.jsontable import Table, checked

FIXTURE = Path(__file__).parents[1] / "fixtures" / "filters.json"

DAY = 86_400_000
START = 1_700_000_000_000


def sql(topic: str, expression: str, version: int = 1) -> SubscriptionData:
    """
    A subscription by SQL92.
    """
    return SubscriptionData(topic, expression, expressionType="SQL92", subVersion=version)


class World:
    """
    A broker's consumers and their filters.

    @ivar now: the time in milliseconds.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.disk = Disk()
        self.now = START
        self.start()

    def start(self, **settings: int) -> None:
        """
        Begin as after a start, with no consumer connected.
        """
        self.consumers = Consumers(Clock(), lambda group: True)
        self.connected: dict[str, Connected] = {}
        self.filters = ConsumerFilters(
            TableFile(Table(self.disk, self.path), atOnce),
            self.consumers.subscriptions,
            checkPlugins(Plugins()).expressionTypes,
            FilterSettings(**settings),
            Live(PullSettings(enablePropertyFilter=True)),
            lambda: self.now,
        )
        self.filters.load()

    def heartbeat(self, group: str, *subscriptions: SubscriptionData) -> None:
        """
        The one consumer of a group tells of itself.
        """
        data = replace(consumer(group), subscriptionDataSet=frozenset(subscriptions))
        connection = self.connected.setdefault(group, Connected())
        self.consumers.register(data, connection.client("c"), self.now)

    def leave(self, group: str) -> None:
        """
        It goes.
        """
        self.connected.pop(group).lose()

    def saved(self) -> dict[str, Any]:
        """
        What is in the file after it was written, by topic and group.
        """
        self.filters.save()
        with open(self.path, "rb") as file:
            topics = json.loads(file.read())["filterDataByTopic"]
        return {
            f"{topic}@{group}": each
            for topic, groups in topics.items()
            for group, each in groups["groupFilterData"].items()
        }


class FiltersTests(SynchronousTestCase):
    """
    L{ConsumerFilters}.
    """

    def setUp(self) -> None:
        self.world = World(os.path.join(self.mktemp(), "config", "consumerFilter.json"))

    def test_filterIsWrittenAsJava(self) -> None:
        """
        A filter is written as by Java, with its bits in the bloom filter of the default
        settings.
        """
        self.world.heartbeat("CID_shop", sql("orders", "price > 5", 7))
        self.assertEqual(
            self.world.saved(),
            {
                "orders@CID_shop": {
                    "bloomFilterData": {"bitNum": 112, "bitPos": [73, 77, 27]},
                    "bornTime": START,
                    "clientVersion": 7,
                    "consumerGroup": "CID_shop",
                    "dead": False,
                    "deadTime": 0,
                    "expression": "price > 5",
                    "expressionType": "SQL92",
                    "topic": "orders",
                }
            },
        )

    def test_fullTableRefusesNewFilters(self) -> None:
        """
        No more filters are kept than C{maxConsumerFilterNum}, which is logged once; those
        that are kept are renewed, and one that is forgotten makes room.
        """
        self.world.start(maxConsumerFilterNum=1, filterDataCleanTimeSpan=1000)
        self.world.heartbeat("G", sql("T", "a > 5"))
        self.world.saved()
        self.world.heartbeat("H", sql("T", "a > 6"))
        with capturedLogs() as events:
            for _ in range(3):
                self.assertEqual(list(self.world.saved()), ["T@G"])
        self.assertEqual([(each["group"], each["limit"]) for each in events], [("H", 1)])
        self.world.leave("G")
        self.world.saved()
        self.world.now += 1000
        self.world.saved()
        self.assertEqual(list(self.world.saved()), ["T@H"])

    def test_tagsAreNotSaved(self) -> None:
        """
        Tags are not kept, nor is what is no expression, or of a type that no filter
        evaluates.
        """
        self.world.heartbeat(
            "G",
            SubscriptionData("T", "a || b"),
            SubscriptionData("U", "a", expressionType=""),
            sql("V", "a >"),
            sql("W", ""),
            SubscriptionData("X", "a", expressionType="NONE"),
        )
        self.world.filters.save()
        self.assertFalse(os.path.exists(self.world.path))

    def test_otherExpressionIsBornAnew(self) -> None:
        """
        Another expression is another filter, born now; the same one in another version is
        the same filter.  An expression that cannot be compiled removes the filter.
        """
        self.world.heartbeat("G", sql("T", "a > 1", 1))
        self.world.saved()
        self.world.now += 1000
        self.world.heartbeat("G", sql("T", "a > 1", 2))
        kept = self.world.saved()["T@G"]
        self.assertEqual((kept["bornTime"], kept["clientVersion"]), (START, 2))
        self.world.heartbeat("G", sql("T", "a > 2", 3))
        kept = self.world.saved()["T@G"]
        self.assertEqual((kept["bornTime"], kept["expression"]), (START + 1000, "a > 2"))
        self.world.heartbeat("G", sql("T", "a >", 4))
        self.assertEqual(self.world.saved(), {})

    def test_lastMemberLeavingKillsFilter(self) -> None:
        """
        A filter dies with its group's last member, or when the group leaves the topic,
        and lives again when it comes back.
        """
        for leave in (self.world.leave, self.world.heartbeat):
            self.world.heartbeat("G", sql("T", "a > 1"))
            self.world.saved()
            self.world.now += 5000
            leave("G")
            kept = self.world.saved()["T@G"]
            self.assertEqual((kept["dead"], kept["deadTime"]), (True, self.world.now))
            self.world.now += 5000
            self.assertEqual(self.world.saved()["T@G"], kept)
            self.world.heartbeat("G", sql("T", "a > 1"))
            kept = self.world.saved()["T@G"]
            self.assertEqual((kept["dead"], kept["deadTime"]), (False, 0))
            self.assertEqual(kept["bornTime"], START)

    def test_changeToTagsEndsFilter(self) -> None:
        """
        A filter ends too when the group changes to tags.  With Java it lives on.
        """
        self.world.heartbeat("G", sql("T", "a > 1", 1))
        self.world.saved()
        self.world.heartbeat("G", SubscriptionData("T", "*", subVersion=2))
        self.assertTrue(self.world.saved()["T@G"]["dead"])

    def test_deadFilterIsRemovedAfterADay(self) -> None:
        """
        After a day it is forgotten, or after as long as the settings say.
        """
        for span, given in ((DAY, {}), (1000, {"filterDataCleanTimeSpan": 1000})):
            self.world.start(**given)
            self.world.heartbeat("G", sql("T", "a > 1"))
            self.world.saved()
            self.world.leave("G")
            self.world.saved()
            self.world.now += span - 1
            self.assertIn("T@G", self.world.saved())
            self.assertIsNotNone(self.world.filters.subscription("G", "T"))
            self.world.now += 1
            self.assertEqual(self.world.saved(), {})
            self.assertIsNone(self.world.filters.subscription("G", "T"))

    def test_formerSubscriptionOutlivesRestart(self) -> None:
        """
        A group's former expression is known while its filter is kept, also after a restart.
        """
        self.world.heartbeat("G", sql("T", "a > 1", 5))
        self.assertIsNone(self.world.filters.subscription("G", "T"))
        self.world.saved()
        self.world.start()
        self.assertEqual(self.world.filters.subscription("G", "T"), sql("T", "a > 1", 5))
        self.assertIsNone(self.world.filters.subscription("T", "G"))

    def test_describedShowsTheFile(self) -> None:
        """
        An administrator is shown what the file has of a filter.
        """
        self.assertEqual(self.world.filters.described("G", "T"), "null")
        self.world.heartbeat("G", sql("T", "a > 1", 5))
        kept = self.world.saved()["T@G"]
        self.assertEqual(json.loads(self.world.filters.described("G", "T")), kept)

    def test_restartPresumesDeath(self) -> None:
        """
        A group that was connected when the broker ended counts as gone half a minute before
        the start, but not before it came.
        """
        self.world.heartbeat("G", sql("T", "a > 1"))
        self.world.saved()
        self.world.now += 100_000
        self.world.heartbeat("H", sql("T", "a > 1"))
        self.world.saved()
        self.world.now += 1000
        self.world.start()
        kept = self.world.saved()
        self.assertEqual(kept["T@G"]["deadTime"], START + 101_000 - 30_000)
        self.assertEqual(kept["T@H"]["deadTime"], START + 100_000)

    def test_bitsOfOtherBloomAreSkipped(self) -> None:
        """
        A file with bits of another bloom filter is skipped, as by Java.
        """
        self.world.heartbeat("G", sql("T", "a > 1"))
        self.world.saved()
        self.world.start(expectConsumerNumUseFilter=64)
        self.assertIsNone(self.world.filters.subscription("G", "T"))
        self.world.start(maxErrorRateOfBloomFilter=1)
        self.assertIsNone(self.world.filters.subscription("G", "T"))

    def test_unchangedTableIsNotWritten(self) -> None:
        """
        The file is left alone while nothing changes.
        """
        self.world.heartbeat("G", sql("T", "a > 1"))
        self.world.saved()
        os.unlink(self.world.path)
        self.world.now += 10_000
        self.world.filters.save()
        self.assertFalse(os.path.exists(self.world.path))

    def test_damagedFileIsSetAside(self) -> None:
        """
        A file that cannot be read is kept under another name, and the broker starts: the
        groups bring their expressions with them.
        """
        os.makedirs(os.path.dirname(self.world.path))
        Path(self.world.path).write_text("{")
        self.world.start()
        [aside] = Path(self.world.path).parent.glob("*.damaged-*")
        self.assertEqual("{", aside.read_text())
        self.assertIsNone(self.world.filters.subscription("G", "T"))


class JavaTests(SynchronousTestCase):
    """
    A C{consumerFilter.json} that RocketMQ's broker wrote.
    """

    def test_javasFileIsReadAndRewritten(self) -> None:
        """
        It is read, and when all of its groups have come back what is written is what
        was read.
        """
        text = json.loads(FIXTURE.read_text("utf-8"))["file"]
        path = os.path.join(self.mktemp(), "consumerFilter.json")
        os.makedirs(os.path.dirname(path))
        Path(path).write_text(text)
        world = World(path)
        world.now = 4_000_000_100_000
        world.start()
        wanted = "price > 5 AND city = '北京'"
        shop = sql("orders", wanted, 3_999_999_999_000)
        self.assertEqual(world.filters.subscription("CID_shop", "orders"), shop)
        paid = world.filters.subscription("CID_shop", "payments")
        assert paid is not None
        world.heartbeat("CID_shop", shop, paid)
        world.saved()
        written = checked(Path(path).read_bytes(), strict=True)
        self.assertEqual(json.loads(written), json.loads(text))


class FiltersMachine(RuleBasedStateMachine):
    """
    Groups that come, go and change their minds, at a broker that is started anew now
    and then, against a model: the last expression of each group and topic that could
    be compiled, and when it was last seen in use, or less than 0: when it was first
    seen not to be.
    """

    names = st.sampled_from(["G", "H"])
    wishes = st.dictionaries(
        st.sampled_from(["T", "U"]), st.sampled_from(["a > 1", "b = 'x'", "bad >", "*"])
    )

    def __init__(self) -> None:
        super().__init__()
        self.folder = mkdtemp()
        self.world = World(os.path.join(self.folder, "config", "consumerFilter.json"))
        self.version = 0
        self.wanted: dict[str, dict[str, str]] = {}
        self.kept: dict[tuple[str, str], tuple[str, int]] = {}

    @rule(group=names, wishes=wishes)
    def heartbeat(self, group: str, wishes: dict[str, str]) -> None:
        """
        A group tells what it wants.
        """
        self.version += 1
        self.wanted[group] = wishes
        self.world.heartbeat(
            group,
            *(
                SubscriptionData(topic, "*", subVersion=self.version)
                if expression == "*"
                else sql(topic, expression, self.version)
                for topic, expression in wishes.items()
            ),
        )

    @rule(group=names)
    def leave(self, group: str) -> None:
        """
        A group goes, if it is there.
        """
        if self.wanted.pop(group, None) is not None:
            self.world.leave(group)

    @rule(hours=st.sampled_from([0, 1, 12, 24]))
    def wait(self, hours: int) -> None:
        """
        Time goes by; the table is written at its end.
        """
        self.world.now += hours * 3_600_000
        self.save()

    @rule()
    def restart(self) -> None:
        """
        The broker is stopped and started anew.
        """
        self.save()
        self.wanted.clear()
        self.world.start()
        # Half a minute does not count: time goes by in hours here.
        for key, (expression, seen) in self.kept.items():
            self.kept[key] = expression, seen if seen < 0 else -self.world.now

    def save(self) -> None:
        """
        The table is written.
        """
        self.world.filters.save()
        now = self.world.now
        for group, wishes in self.wanted.items():
            for topic, expression in wishes.items():
                if expression == "bad >":
                    self.kept.pop((topic, group), None)
                elif expression != "*":
                    self.kept[topic, group] = expression, now
        for key, (expression, _) in list(self.kept.items()):
            wish = self.wanted.get(key[1], {}).get(key[0])
            if wish != expression:
                self.seenDead(key)

    def seenDead(self, key: tuple[str, str]) -> None:
        """
        A filter that no group uses is removed a day after that was first seen.
        """
        expression, seen = self.kept[key]
        if seen >= 0:
            self.kept[key] = expression, -self.world.now
        elif self.world.now + seen >= DAY:
            del self.kept[key]

    @invariant()
    def agrees(self) -> None:
        """
        What is known of former wishes is what the model has.
        """
        for group in ("G", "H"):
            for topic in ("T", "U"):
                found = self.world.filters.subscription(group, topic)
                expected = self.kept.get((topic, group))
                assert (found.subString if found else None) == (expected[0] if expected else None)

    def teardown(self) -> None:
        """
        Leave nothing behind.
        """
        rmtree(self.folder)


class ModelTests(SynchronousTestCase):
    """
    Filters against the model.
    """

    def test_filtersMatchModel(self) -> None:
        """
        Whatever groups do, and however often the broker is started, the filter of a group
        is its last one.
        """
        run_state_machine_as_test(FiltersMachine, settings=settings(max_examples=60))
