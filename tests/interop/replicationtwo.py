# SPDX-License-Identifier: Apache-2.0
"""
Weaknesses of 4.9.7's replication that a master and a slave show, with a way between them
on which a script can turn a bit.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from twisted.internet.utils import getProcessOutputAndValue

from tests.interop.cells import sleep
from tests.interop.replicationfiles import dirtyPages, logBytes
from tests.interop.replicationfinding import Finding, Script, answerName
from tests.interop.replicationload import GROUP, maxOffsets, sendOne
from tests.interop.replicationpair import Broker, Kinds, Pair, until
from tests.interop.replicationwire import Way
from tests.live.servers import freePort, reactor
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.headers import (
    CreateTopicRequestHeader,
    EndTransactionRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

__all__ = ["MasterAndSlave"]

_FILE = 1 << 20

# The seconds after which a slave has taken its master's tables once more: RocketMQ's asks
# every ten.
_SYNCHRONISED = {"java": 30.0, "ours": 4.0}


class MasterAndSlave:
    """
    Scripts against a master and a slave, with a way between them.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self.pair = Pair(Kinds(kind, kind, "SYNC_MASTER", "SYNC_FLUSH"), folder)
        self._way = Way(self.pair.master.port + 1)
        self._wayPort = freePort()

    async def start(self) -> None:
        """
        Start both.  The slave does not flush.
        """
        pair = self.pair
        await pair.startNameServer()
        await self._way.open(self._wayPort)
        await pair.startMaster(mappedFileSizeCommitLog=_FILE)
        await self._startSlave(
            flushDiskType="ASYNC_FLUSH",
            flushIntervalCommitLog=600_000,
            flushCommitLogThoroughInterval=600_000,
        )
        await sendOne(pair.master, "Plain", b"first")
        await pair.caughtUp()

    async def _startSlave(self, **settings: object) -> None:
        await self.pair.startSlave(
            haMasterAddress=f"127.0.0.1:{self._wayPort}",
            mappedFileSizeCommitLog=_FILE,
            **settings,
        )

    async def close(self) -> None:
        """
        End the way.
        """
        await self._way.close()

    @property
    def scripts(self) -> dict[str, Script]:
        """
        In an order in which none spoils the next.
        """
        return {
            "W7": self._unflushed,
            "W8": self._tables,
            "W3": self._diverged,
            "W11": self._alone,
            "W9": self._turned,
        }

    async def _unflushed(self) -> Finding:
        code, _ = await sendOne(self.pair.master, "Plain", b"unflushed")
        pages = dirtyPages(self.pair.slave.store / "commitlog")
        where = (
            "where it cannot be told what is on a disk"
            if pages is None
            else (f"with {pages} pages of the slave's log in memory only")
        )
        return Finding(code == 0 and pages != 0, f"answered {answerName(code)} {where}")

    async def _tables(self) -> Finding:
        pair = self.pair
        await pair.slave.end()
        await self._startSlave(flushIntervalCommitLog=500, flushCommitLogThoroughInterval=10_000)
        await self._attached()
        header = CreateTopicRequestHeader("Fresh", "TBW102", 4, 4, 6, "SINGLE_TAG", 0)
        await pair.master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        topics = (await pair.slave.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body
        isLate = b'"Fresh"' not in topics
        offset = await self._returned()
        there = "not there" if isLate else "there"
        return Finding(
            isLate or offset < 2,
            f"a topic that was acknowledged is {there} at once;"
            f" an offset of 2 is {offset} once the master is back",
        )

    async def _returned(self) -> int:
        """
        A group commits at the slave while its master is away.

        @return: where the group is once the master is back.
        """
        pair = self.pair

        async def commit(broker: Broker, offset: int) -> None:
            update = UpdateConsumerOffsetRequestHeader(GROUP, "Plain", 0, offset)
            await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update)

        async def committed() -> int:
            query = QueryConsumerOffsetRequestHeader(GROUP, "Plain", 0)
            answer = await pair.slave.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)
            if answer.code:
                return 0
            return answer.decodeHeader(QueryConsumerOffsetResponseHeader).offset

        await commit(pair.master, 1)
        await until(committed, 30.0, "the slave has the offset")
        # So that it is on the master's disk.
        await pair.master.end()
        await commit(pair.slave, 2)
        await pair.startMaster()
        await self._attached()
        end = reactor.seconds() + _SYNCHRONISED[self._kind]
        while reactor.seconds() < end and await committed() == 2:
            await sleep(0.2)
        return await committed()

    async def _attached(self) -> None:
        """
        Wait until the master has a slave.
        """
        master = self.pair.master

        async def acknowledged() -> bool:
            return (await sendOne(master, "Plain", b"attached"))[0] == 0

        await until(acknowledged, 60.0, "the slave is there")

    async def _turned(self) -> Finding:
        pair, mark = self.pair, b"a body that is turned"
        for each in (pair.master, pair.slave):
            await each.end("KILL")
            shutil.rmtree(each.store)
        await pair.startMaster()
        await self._startSlave()
        await sendOne(pair.master, "Plain", b"first")
        await pair.caughtUp()
        self._way.turn(mark)
        await sendOne(pair.master, "Plain", mark)
        await pair.caughtUp()
        assert self._way.turned == 1
        isThere = mark in b"".join(logBytes(pair.slave.store).values())
        return Finding(not isThere, "the slave has " + ("it right" if isThere else "other bytes"))

    async def _diverged(self) -> Finding:
        pair = self.pair
        await pair.slave.end("KILL")
        await sendOne(pair.master, "Plain", b"body A")
        await pair.master.end("KILL")
        await self._promote(pair.slave)
        await sendOne(pair.slave, "Plain", b"body B")
        await pair.master.start({"brokerRole": "SLAVE", "brokerId": 1})
        await sendOne(pair.slave, "Plain", b"body C")
        await pair.caughtUp()

        async def acknowledged() -> bool:
            return (await sendOne(pair.slave, "Plain", b"body C"))[0] == 0

        await until(acknowledged, 30.0, "the old master is a slave")
        await pair.caughtUp()
        logs = [b"".join(logBytes(each.store).values()) for each in (pair.master, pair.slave)]
        has = [" ".join(each for each in "ABC" if b"body " + each.encode() in log) for log in logs]
        return Finding(
            b"body A" in logs[0] or b"body B" not in logs[0],
            f"the old master has {has[0]}, the new one has {has[1]}",
        )

    async def _promote(self, slave: Broker) -> None:
        """
        Make a slave whose master is away a master.
        """
        if self._kind == "java":
            await slave.end()
            await slave.start({"brokerRole": "SYNC_MASTER", "brokerId": 0})
            return
        if slave.child is None:
            await slave.start()
        program = str(Path(sys.executable).with_name("txrocket"))
        arguments = ("ha", "promote", "-b", slave.address)
        out, err, code = await getProcessOutputAndValue(program, arguments, dict(os.environ))
        assert code == 0, f"{arguments}: {out!r} {err!r}"

    async def _alone(self) -> Finding:
        # Since the last script, the one that was the slave is the master.
        master, slave = self.pair.slave, self.pair.master
        before = sum(await maxOffsets(slave, "Plain"))
        await sendOne(master, "Plain", b"late", {"DELAY": "2"})
        await self.pair.caughtUp()
        await master.end("KILL")
        if self._kind == "ours":
            await self._promote(slave)
        await sleep(5.0)
        came = sum(await maxOffsets(slave, "Plain")) - before
        ending = EndTransactionRequestHeader(GROUP, 0, 0, 8, "none", transactionId="none")
        code = (await slave.ask(RequestCode.END_TRANSACTION, ending)).code
        isRefused = code == ResponseCode.SLAVE_NOT_AVAILABLE
        return Finding(
            came == 0,
            f"{came} of 1 late message came; transactions can{'not' if isRefused else ''} be ended",
        )
