# SPDX-License-Identifier: Apache-2.0
"""
A schedule: what happens to a master and two slaves, by the chance of one number::

    seed --> settings, what clients do, what breaks, what the operator does --> everything heals
         --> checks

In a careful schedule the operator keeps to the rules under which nothing that a SYNC_MASTER has
acknowledged is lost:

 - a slave is promoted if the master is dead, or cut off from all slaves, and none of the other
   slaves is further, whether it runs or not;
 - a master that is cut off is ended before it can reach a slave that does not know the new one;
 - a dead broker that would lead is started only if nobody is further, or the master that there is
   can be found.

Otherwise the operator does anything.  Then messages may be lost, and still all brokers must
agree in the end, and what was acknowledged must be in a file.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.replication.powercluster import Place, PowerCluster
from tests.replication.traffic import Traffic
from txrocket.errors import ConfigError, RocketError
from txrocket.protocol.bodies.replication import HADemoteRequestHeader, HAPromoteRequestHeader
from txrocket.protocol.codes import ReplicationCode
from txrocket.protocol.command import RemotingCommand
from txrocket.protocol.headers.fields import Header

__all__ = ["Schedule", "Violation"]


class Violation(Exception):
    """
    A promise was broken.
    """


_SETTINGS = {
    "autoCreateTopicEnable": True,
    "flushDelayOffsetInterval": 2000,
    "haHousekeepingInterval": 4000,
    "haSendHeartbeatInterval": 1000,
    "mappedFileSizeCommitLog": 4096,
    "mappedFileSizeConsumeQueue": 600,
    "maxHashSlotNum": 64,
    "maxIndexNum": 64,
    "maxMessageSize": 2048,
    "registerNameServerPeriod": 10_000,
    "slaveTimeout": 1000,
}

_TOPICS = ("T0", "T1", "T2")


class Schedule:
    """
    One schedule.

    @ivar isSync: whether the master is a SYNC_MASTER.
    @ivar isCareful: whether the operator keeps to the rules.
    @ivar isFlushed: whether C{flushDiskType} is SYNC_FLUSH.
    @ivar losses: how often a machine lost its power.
    @ivar promotions: how often a slave was promoted.
    @ivar excused: bodies that no disk has any more, because machines lost their power.
    @ivar told: what has happened, for whoever looks at a failure.
    """

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.isSync = random.random() < 0.7
        self.isCareful = random.random() < 0.6
        self.isFlushed = random.random() < 0.5
        self.cluster = PowerCluster(
            {
                **_SETTINGS,
                "brokerRole": "SYNC_MASTER" if self.isSync else "ASYNC_MASTER",
                "flushDiskType": "SYNC_FLUSH" if self.isFlushed else "ASYNC_FLUSH",
                "haTransferBatchSize": random.choice((64, 700, 32768)),
            }
        )
        self.traffic = Traffic(self.cluster, random, self.isSync)
        self.losses = self.promotions = self.retentions = 0
        self.excused: set[bytes] = set()
        self.told: list[str] = []
        self._cuts: set[tuple[str, str]] = set()
        self._leader: str | None = self.cluster.brokers[0]

    # --- what happens ----------------------------------------------------

    def run(self) -> None:
        """
        Let things happen, and heal everything.

        @raise Violation: if a promise was broken.
        """
        random = self.random
        self.cluster.start()
        self.cluster.advance(1.0)
        often = [self._send] * 8 + [self._sendBatch] * 2 + [self._pass] * 5 + [self._commit] * 2
        seldom: list[Callable[[], None]] = [
            *([self._cut] * 3 + [self._heal] * 3 + [self._kill] * 3 + [self._start] * 4),
            *([self._losePower] * 2 + [self._promote] * 6 + [self._handOver] * 2 + [self._stop]),
            *(self._create, self._createGroup, self._slow, self._slowDisk, self._intrude),
            *([self._isolate] * 2),
            *(self._retain, self._commitAtSlave),
        ]
        for _ in range(random.randrange(10, 45)):
            random.choice(often if random.random() < 0.6 else seldom)()
            self.observe()
        self._healAll()

    def tell(self, text: str) -> None:
        """
        Note what happens.
        """
        self.told.append(f"{self.cluster.clock.seconds() % 1000:8.3f} {text}")

    def observe(self) -> None:
        """
        Look at what must hold at any time.

        @raise Violation: if it does not.
        """
        cluster = self.cluster
        for problem in [*self.traffic.problems, *cluster.problems]:
            raise Violation(problem)

    def _send(self) -> None:
        for _ in range(self.random.choice((1, 1, 1, 4))):
            self.traffic.send(self._target(), self._topic())
        self._perhapsWait()

    def _sendBatch(self) -> None:
        self.traffic.sendBatch(self._target(), self._topic())
        self._perhapsWait()

    def _perhapsWait(self) -> None:
        if self.random.random() < 0.7:
            self.cluster.advance()

    def _pass(self) -> None:
        self.cluster.advance(self.random.choice((0.01, 0.2, 1.1, 3.0, 8.0)))

    def _commit(self, address: str | None = None) -> None:
        address = address or self._target()
        if self.cluster.isUp(address):
            topic = self._topic()
            end = self.cluster.broker(address).store.maxOffset(topic, 0)
            self.traffic.commit(address, topic, self.random.randrange(end + 1))

    def _commitAtSlave(self) -> None:
        self._commit(self.random.choice(self.cluster.members))

    def _create(self) -> None:
        self.traffic.create(self._target(), f"N{self.random.randrange(1000)}")
        self._perhapsWait()

    def _createGroup(self) -> None:
        self.traffic.createGroup(self._target(), f"C{self.random.randrange(1000)}")
        self._perhapsWait()

    def _intrude(self) -> None:
        """
        A stranger says that it has what is being sent.
        """
        address = self._target()
        if self.random.random() < 0.7:
            self._isolate()
        if self.cluster.isUp(address):
            self.traffic.send(address, self._topic())
            self.cluster.advance()
            self.traffic.intrude(address, self.cluster.broker(address).store.replica.end)
            self.cluster.advance(0.1)

    def _retain(self) -> None:
        """
        A broker deletes old files.
        """
        address = self.random.choice(self.cluster.members)
        if self.cluster.isUp(address):
            store, disk = self.cluster.broker(address).store, self.cluster.disk(address)
            disk.free = disk.total // 8
            store.retention.clean()
            disk.free = disk.total // 2
            store.retention.clean()
            self.retentions += 1

    # --- links and processes ---------------------------------------------

    def _cut(self) -> None:
        one, other = self._pair()
        ways = [(one, other)] if self.random.random() < 0.4 else [(one, other), (other, one)]
        self._cutWays(ways)

    def _cutWays(self, ways: list[tuple[str, str]]) -> None:
        for each in ways:
            self.tell(f"cut {each}")
            self.cluster.cut(*each, oneWay=True)
            self._cuts.add(each)

    def _isolate(self) -> None:
        """
        Cut a broker off from all others.
        """
        address = self._leader or self.random.choice(self.cluster.members)
        others = [each for each in self._machines() if each != address]
        self._cutWays([way for each in others for way in ((address, each), (each, address))])

    def _heal(self) -> None:
        if self._cuts:
            self._healWays(sorted(self._cuts) if self.random.random() < 0.3 else [self._someCut()])

    def _someCut(self) -> tuple[str, str]:
        return self.random.choice(sorted(self._cuts))

    def _healWays(self, ways: list[tuple[str, str]]) -> None:
        if self.isCareful:
            for each in self._forgotten(ways):
                self.tell(f"end {each}, which was cut off")
                self.cluster.crash(each)
        for way in ways:
            self.tell(f"heal {way}")
            self.cluster.heal(*way, oneWay=True)
            self._cuts.discard(way)

    def _forgotten(self, ways: list[tuple[str, str]]) -> list[str]:
        """
        Masters of old that could reach a slave which does not know the new one.
        """
        found = []
        newest = max(self._place(each).epoch for each in self.cluster.members)
        for each in self.cluster.masters():
            if each != self._leader and any(each in way for way in ways):
                others = [other for other in self.cluster.members if other != each]
                if any(self._place(other).epoch < newest for other in others):
                    found.append(each)
        return found

    def _slow(self) -> None:
        one, other = self._pair()
        seconds = self.random.choice((0.0, 0.05, 0.4, 1.5))
        self.tell(f"slow {one} {other} {seconds}")
        self.cluster.slow(one, other, seconds)

    def _slowDisk(self) -> None:
        address, seconds = self._victim(), self.random.choice((0.0, 0.02, 0.3, 1.2))
        self.tell(f"slow disk of {address}: {seconds}")
        self.cluster.slowDisk(address, seconds)

    def _kill(self) -> None:
        address = self._victim()
        if self.cluster.isUp(address):
            self.tell(f"kill {address}")
            self.cluster.crash(address)

    def _losePower(self) -> None:
        address = self._victim()
        self.tell(f"power loss of {address}")
        self.losses += 1
        self.cluster.losePower(address, Random(self.random.getrandbits(64)))
        # What no disk has any more cannot be kept.
        left = set().union(*(self.cluster.contents(each).bodies for each in self.cluster.members))
        lost = {each.body for each in self.traffic.acknowledged} - left
        self.excused |= lost if not self.isFlushed else set()

    def _stop(self) -> None:
        address = self._victim()
        if self.cluster.isUp(address):
            self.tell(f"stop {address}")
            self.cluster.stop(address)

    def _start(self) -> None:
        dead = [each for each in self.cluster.members if not self.cluster.isUp(each)]
        if dead:
            self._startOne(self.random.choice(dead))

    def _startOne(self, address: str) -> bool:
        """
        @return: whether the broker runs then.
        """
        if self.isCareful and self._wouldLead(address) and not self._mayLead(address):
            return False
        self.tell(f"start {address}")
        try:
            self.cluster.start(address)
        except ConfigError as error:
            raise Violation(f"{address} does not start: {error}") from error
        if self.cluster.role(address) == "MASTER":
            self._leader = address
        self.tell(f"  it is {self.cluster.role(address)} at {self._place(address)}")
        return True

    def _wouldLead(self, address: str) -> bool:
        role = self.cluster.contents(address).role
        return role == "MASTER" or (role is None and address in self.cluster.brokers)

    def _mayLead(self, address: str) -> bool:
        """
        Whether a broker that would lead may be started.
        """
        if not self.cluster.masters():
            return self._isFurthest(address, self.cluster.members)
        if self._leader is None or self.cluster.role(self._leader) != "MASTER":
            return False
        # The name server must tell it of the master.
        self._healWays(sorted(self._cuts))
        self.cluster.advance(12.0)
        return self.cluster.role(self._leader) == "MASTER" and self.cluster.isUp(self._leader)

    # --- the operator ----------------------------------------------------

    def _promote(self) -> None:
        """
        Promote a slave.
        """
        slaves = [each for each in self.cluster.running() if self.cluster.role(each) == "FOLLOWER"]
        if not slaves:
            return
        address = self.random.choice(slaves)
        if self.isCareful:
            if not self._isFenced():
                return
            others = [each for each in self.cluster.members if each != self._leader]
            if not self._isFurthest(address, others):
                return
        self._promoteOne(address, force=self.random.random() < 0.7)

    def _promoteOne(self, address: str, *, force: bool) -> bool:
        # The minute is in the epoch, and the slave may not know of another promotion.
        self.cluster.shiftWall(60.0)
        if not self.cluster.isUp(address):
            return False
        self.tell(f"promote {address} at {self._place(address)}, force={force}")
        header = HAPromoteRequestHeader(force)
        if not self._operate(address, ReplicationCode.HA_PROMOTE, header):
            return False
        self.promotions += 1
        self._leader = address
        if self.cluster.isUp(address):
            self.traffic.topics &= self.cluster.names(address)
            self.traffic.groups &= self.cluster.names(address)
        return True

    def _handOver(self) -> None:
        """
        Demote the master, and promote the furthest.
        """
        masters = self.cluster.masters()
        if not masters or (self.isCareful and masters != [self._leader]):
            return
        address = self.random.choice(masters)
        self.tell(f"demote {address}")
        force = not self.isCareful and self.random.random() < 0.3
        if not self._operate(address, ReplicationCode.HA_DEMOTE, HADemoteRequestHeader(force)):
            return
        self._leader = None
        for each in self.cluster.running():
            if self.cluster.role(each) == "FOLLOWER" and self._isFurthest(
                each, self.cluster.members
            ):
                self._promoteOne(each, force=False)
                return

    def _operate(self, address: str, code: int, header: Header) -> bool:
        asking = self.traffic.ask(address, code, header, timeout=30.0)
        try:
            answer: RemotingCommand = self.cluster.resultOf(asking)
        except (RocketError, TimeoutError) as error:
            self.tell(f"  {error!r}")
            return False
        self.tell(f"  {answer.code} {answer.remark or ''}")
        return answer.code == 0

    def _isFenced(self) -> bool:
        """
        Whether the master cannot acknowledge anything.
        """
        leader = self._leader
        if leader is None or not self.cluster.isUp(leader):
            return not self.cluster.masters()
        others = [each for each in self.cluster.members if each != leader]
        ways = {way for each in others for way in ((leader, each), (each, leader))}
        return ways <= self._cuts and self.cluster.masters() in ([leader], [])

    def _isFurthest(self, address: str, members: list[str]) -> bool:
        return self._place(address) >= max(map(self._place, members))

    def _place(self, address: str) -> Place:
        return self.cluster.contents(address).place

    # --- the end ---------------------------------------------------------

    def _healAll(self) -> None:
        """
        Heal everything, and wait until all follow one master.

        @raise Violation: if they do not.
        """
        cluster = self.cluster
        self.tell("heal all")
        self._healWays(sorted(self._cuts))
        for one, other in self._pairs():
            cluster.slow(one, other, 0.0)
        for each in cluster.members:
            cluster.slowDisk(each, 0.0)
        for number in range(16):
            if number == 8:
                self._decide()
            self._operateAll()
            cluster.advance(5.0)
            self.observe()
            if self.isQuiet():
                return
        raise Violation(f"not all follow one master: {self.state()}")

    def _decide(self) -> None:
        """
        Have the furthest lead: a broker may have followed a newer master than the one that
        leads now, and does not follow an older one.
        """
        self.tell(f"decide: {self.state()}")
        for each in self.cluster.masters():
            self._operate(each, ReplicationCode.HA_DEMOTE, HADemoteRequestHeader(True))

    def _operateAll(self) -> None:
        """
        What an operator does to have a master and two slaves.
        """
        cluster = self.cluster
        dead = [each for each in cluster.members if not cluster.isUp(each)]
        # Slaves first, and the furthest of the others.
        for each in sorted(dead, key=lambda each: (self._wouldLead(each), self._place(each))):
            if not self._wouldLead(each) or cluster.masters() or not cluster.isUp(each):
                self._startOne(each)
        if not cluster.masters():
            furthest = max(cluster.members, key=self._place)
            if not cluster.isUp(furthest):
                self._startOne(furthest)
            elif cluster.role(furthest) == "FOLLOWER":
                self._promoteOne(furthest, force=True)

    def isQuiet(self) -> bool:
        """
        Whether all follow one master, and have all of its log.
        """
        cluster = self.cluster
        if len(cluster.running()) < 3 or len(cluster.masters()) != 1:
            return False
        [master] = cluster.masters()
        status = cluster.broker(master).replication.status()
        return len(status.replicas) == 2 and all(each.lag == 0 for each in status.replicas)

    def state(self) -> list[tuple[str, str, Place, Any]]:
        """
        What each broker is.
        """
        found = []
        for each in self.cluster.members:
            link: Any = None
            if self.cluster.isUp(each):
                status = self.cluster.broker(each).replication.status()
                link = status.master or [one.address for one in status.replicas]
            found.append((each, self.cluster.role(each), self._place(each), link))
        return found

    # --- whom it happens to ----------------------------------------------

    def _target(self) -> str:
        """
        The broker that a client sends to: mostly a master.
        """
        masters = self.cluster.masters()
        if masters and self.random.random() < 0.95:
            return self.random.choice(masters)
        return self.random.choice(self.cluster.members)

    def _victim(self) -> str:
        if self._leader is not None and self.random.random() < 0.5:
            return self._leader
        return self.random.choice(self.cluster.members)

    def _topic(self) -> str:
        created = sorted(self.traffic.topics)
        return self.random.choice([*_TOPICS, *created])

    def _machines(self) -> list[str]:
        return [*self.cluster.members, *self.cluster.nameServers]

    def _pairs(self) -> list[tuple[str, str]]:
        machines = self._machines()
        return [(one, other) for one in machines for other in machines if one != other]

    def _pair(self) -> tuple[str, str]:
        return self.random.choice(self._pairs())
