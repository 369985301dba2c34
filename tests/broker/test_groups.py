# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.broker.tables.groups}; the rules are those of Java's
C{SubscriptionGroupManager}.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.store.support import Disk, atOnce
from txrocket.broker.settings import GroupSettings
from txrocket.broker.tables.groups import Groups
from txrocket.broker.tables.savedtable import TableFile
from txrocket.config import Live
from txrocket.errors import RemoteSystemError, StoreFailed
from txrocket.model import DataVersion, SubscriptionGroupConfig
from txrocket.protocol.bodies import SubscriptionGroupWrapper
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.store.jsontable import Table


class GroupsTests(SynchronousTestCase):
    """
    The groups of a broker.
    """

    def setUp(self) -> None:
        self.disk = Disk()
        self.path = os.path.join(self.mktemp(), "config", "subscriptionGroup.json")
        self.now = 1000
        self.groups = self.make()

    def make(self, inThread: Any = atOnce, **settings: Any) -> Groups:
        """
        The groups as they are after a start.
        """
        self.settings = Live(GroupSettings(**settings))
        file = TableFile(Table(self.disk, self.path), inThread)
        groups = Groups(file, self.settings, lambda: self.now)
        groups.load()
        return groups

    def test_newBrokerHasJavasGroups(self) -> None:
        """
        A new broker has Java's groups for tools and proxies.
        """
        self.assertEqual(
            {
                "TOOLS_CONSUMER",
                "FILTERSRV_CONSUMER",
                "SELF_TEST_C_GROUP",
                "CID_ONS-HTTP-PROXY",
                "CID_ONSAPI_PULL",
                "CID_ONSAPI_PERMISSION",
                "CID_ONSAPI_OWNER",
            },
            set(self.groups.table),
        )

    def test_unknownGroupIsCreated(self) -> None:
        """
        A group that is asked for and not there is made, with Java's defaults, and
        is there after a restart.
        """
        self.now = 2000
        config = self.groups.find("G")
        self.assertEqual(SubscriptionGroupConfig("G"), config)
        self.assertIs(config, self.groups.find("G"))
        self.assertEqual(DataVersion(2000, 1), self.groups.version)
        again = self.make(autoCreateSubscriptionGroup=False)
        self.assertEqual(config, again.find("G"))
        self.assertEqual(DataVersion(2000, 1), again.version)

    def test_disabledCreationMakesNoGroup(self) -> None:
        """
        A group is not created where that is disabled, unless it is the broker's own.
        """
        self.settings.now = GroupSettings(autoCreateSubscriptionGroup=False)
        self.assertIsNone(self.groups.find("G"))
        self.assertIsNotNone(self.groups.find("CID_RMQ_SYS_TRANS"))
        self.assertNotIn("G", self.groups.table)

    def test_invalidNameMakesNoGroup(self) -> None:
        """
        A group with an invalid name is not created either.
        """
        for name in ("", "a b", "../G", "x" * 256):
            with self.assertRaises(RemoteSystemError):
                self.groups.find(name)
        self.assertEqual(0, self.groups.version.counter)

    def test_putGroupIsOnDisk(self) -> None:
        """
        A group can be made and changed; it is on the disk when that is said.
        """
        config = SubscriptionGroupConfig("G", consumeEnable=False, retryMaxTimes=3)
        self.successResultOf(self.groups.put(config))
        self.assertEqual(config, self.groups.find("G"))
        self.assertEqual(config, self.make().find("G"))

    def test_removedGroupIsGone(self) -> None:
        """
        A group can be forgotten; so can one that never was.
        """
        self.groups.find("G")
        self.successResultOf(self.groups.remove("G"))
        self.successResultOf(self.groups.remove("never"))
        self.assertNotIn("G", self.groups.table)
        self.assertNotIn("G", self.make().table)

    def test_unwrittenGroupIsToldOrLogged(self) -> None:
        """
        If a group cannot be written, a caller that puts it gets the error; where it was
        created on demand, that is logged.
        """
        self.disk.failing["pwrite"] = OSError("broken")
        self.failureResultOf(self.groups.put(SubscriptionGroupConfig("G")), StoreFailed)
        with capturedLogs() as events:
            self.assertIsNotNone(self.groups.find("H"))
        self.assertEqual([self.path], [each["path"] for each in events if "path" in each])

    def test_damagedKeepsWhatIsLegible(self) -> None:
        """
        With a damaged table the one before is taken, and with it the groups that only
        the damaged one has.
        """
        self.groups.put(SubscriptionGroupConfig("G", retryMaxTimes=3))
        self.groups.put(SubscriptionGroupConfig("H", consumeEnable=False))
        with open(self.path, "rb+") as file:
            data = file.read()
            file.seek(0)
            file.write(data.replace(b'"retryMaxTimes":3', b'"retryMaxTimes":7'))
        again = self.make()
        self.assertEqual(SubscriptionGroupConfig("G", retryMaxTimes=3), again.table["G"])
        self.assertEqual(SubscriptionGroupConfig("H", consumeEnable=False), again.table["H"])

    def test_damagedIsCompleted(self) -> None:
        """
        Groups that have consumed are made anew if the table is damaged, and only then.
        """
        os.makedirs(os.path.dirname(self.path))
        self.groups.complete(["G"])
        self.assertNotIn("G", self.groups.table)
        with open(self.path, "wb") as file:
            file.write(b"[]")
        again = self.make()
        with capturedLogs() as events:
            again.complete(["G", "no group"])
        self.assertEqual([LogLevel.error], [each["log_level"] for each in events])
        self.assertEqual(SubscriptionGroupConfig("G"), self.make().table["G"])
        self.assertNotIn("no group", again.table)

    def test_oneGroupChangedEncodesOneGroup(self) -> None:
        """
        A save encodes the groups that have changed, and no others.
        """
        for number in range(500):
            self.groups.find(f"G{number}")
        before = self.groups._text.encoded
        self.successResultOf(self.groups.put(SubscriptionGroupConfig("G7", retryMaxTimes=3)))
        self.successResultOf(self.groups.remove("G8"))
        self.groups.find("new")
        self.assertEqual(2, self.groups._text.encoded - before)
        self.assertEqual(self.groups.table, self.make().table)
        self.assertEqual(
            self.groups.wrapper(), decodeBody(SubscriptionGroupWrapper, self.groups.encoded())
        )

    def test_wrapperHasGroupsAndVersion(self) -> None:
        """
        The wrapper has all groups and the version.
        """
        self.groups.find("G")
        wrapper = self.groups.wrapper()
        self.assertEqual(self.groups.table, wrapper.subscriptionGroupTable)
        self.assertEqual(self.groups.version, wrapper.dataVersion)

    def test_flushWaitsForWrite(self) -> None:
        """
        A stop waits for what is being written.
        """
        done: Deferred[None] = Deferred()
        self.groups = self.make(lambda job: done)
        self.successResultOf(self.groups.flush())
        self.groups.find("G")
        self.assertNoResult(self.groups.flush())
        done.callback(None)
