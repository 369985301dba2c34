# SPDX-License-Identifier: Apache-2.0
"""
A master and its slaves in memory, on a clock, for tests.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from txrocket.message import MessageExt
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.bodies.replication import (
    HADemoteRequestHeader,
    HAPromoteRequestHeader,
    HAStatus,
)
from txrocket.protocol.codes import ReplicationCode, RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from txrocket.protocol.headers.fields import Header
from txrocket.protocol.record import decodeRecords
from txrocket.remoting.peers import Peers
from txrocket.remoting.remoting import Remoting
from txrocket.testing.memory.cluster import MemoryCluster

__all__ = ["COMMIT", "HOLD", "GroupCase"]

# Bits of a pull's sysFlag: it brings an offset to commit, it may be held, and it has a
# subscription.
COMMIT, HOLD, BROUGHT = 1, 2, 4


class GroupCase(SynchronousTestCase):
    """
    The base: C{self.master} and C{self.slaves}, addresses of running brokers.
    """

    role = "SYNC_MASTER"
    slaveCount = 1
    settings: dict[str, Any] = {}

    def setUp(self) -> None:
        self.cluster = MemoryCluster(
            slaves=self.slaveCount, settings={"brokerRole": self.role, **self.settings}
        )
        self.cluster.start()
        self.addCleanup(self.cluster.stop)
        [self.master] = self.cluster.brokers
        self.slaves = self.cluster.slaves
        self.peers = Peers(Remoting(self.cluster.clock), self.cluster.connect, lambda failures: 0.1)
        self.cluster.advance(1.0)

    def ask(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> Deferred[RemotingCommand]:
        """
        Send a request.
        """
        return self.peers.request(address, requestCommand(code, header, body), 30.0)

    def answer(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """
        Send a request, and wait for the answer.
        """
        return self.cluster.resultOf(self.ask(address, code, header, body))

    def sending(
        self, body: bytes = b"body", address: str = "", properties: str = "", topic: str = "T"
    ) -> Deferred[RemotingCommand]:
        """
        Send a message to the first queue of a topic.
        """
        now = int(self.cluster.wall() * 1000)
        header = SendMessageRequestHeaderV2("P", topic, "TBW102", 4, 0, 0, now, 0, properties, 0)
        return self.ask(address or self.master, RequestCode.SEND_MESSAGE_V2, header, body)

    def send(
        self, body: bytes = b"body", address: str = "", properties: str = "", topic: str = "T"
    ) -> int:
        """
        Send a message, and give the code of the answer.
        """
        return self.cluster.resultOf(self.sending(body, address, properties, topic)).code

    def pulling(
        self, address: str, offset: int = 0, *, flag: int = 0, topic: str = "T", commit: int = 0
    ) -> Deferred[RemotingCommand]:
        """
        Pull from the first queue of a topic.
        """
        header = PullMessageRequestHeader(
            "G", topic, 0, offset, 32, BROUGHT | flag, commit, 20_000, 0, "*"
        )
        return self.ask(address, RequestCode.PULL_MESSAGE, header)

    def pull(
        self, address: str, offset: int = 0, *, flag: int = 0, topic: str = "T", commit: int = 0
    ) -> RemotingCommand:
        """
        Pull, and wait for the answer.
        """
        pulling = self.pulling(address, offset, flag=flag, topic=topic, commit=commit)
        return self.cluster.resultOf(pulling)

    def messages(self, address: str, topic: str = "T") -> list[MessageExt]:
        """
        All messages of the first queue of a topic.
        """
        answer = self.pull(address, topic=topic)
        return decodeRecords(answer.body, checkCrc=True) if answer.code == 0 else []

    def bodies(self, address: str, topic: str = "T") -> list[bytes]:
        """
        The bodies of all messages of the first queue of a topic.
        """
        return [each.body for each in self.messages(address, topic)]

    def create(self, topic: str, address: str = "") -> Deferred[RemotingCommand]:
        """
        Create a topic.
        """
        header = CreateTopicRequestHeader(topic, "TBW102", 4, 4, 6, "SINGLE_TAG")
        return self.ask(address or self.master, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def status(self, address: str) -> HAStatus:
        """
        A broker's role and all that belongs to it.
        """
        answer = self.answer(address, ReplicationCode.HA_STATUS)
        self.assertEqual(0, answer.code)
        return decodeBody(HAStatus, answer.body)

    def promote(self, address: str, *, force: bool = False) -> RemotingCommand:
        """
        Promote a broker.
        """
        return self.answer(address, ReplicationCode.HA_PROMOTE, HAPromoteRequestHeader(force))

    def demote(self, address: str, *, force: bool = False) -> RemotingCommand:
        """
        Demote a broker.
        """
        return self.answer(address, ReplicationCode.HA_DEMOTE, HADemoteRequestHeader(force))

    def log(self, address: str) -> bytes:
        """
        The log of a broker.
        """
        replica = self.cluster.broker(address).store.replica
        data = b""
        while replica.first + len(data) < replica.end:
            data += replica.read(replica.first + len(data), 1 << 20)
        return data

    def assertEqualLogs(self, *addresses: str) -> None:
        """
        All brokers have the same log.
        """
        first, *others = [self.log(each) for each in addresses]
        for each in others:
            self.assertEqual(first, each)
