# SPDX-License-Identifier: Apache-2.0
"""
Masters and slaves of both kinds: whatever is sent to the master is on the slave, byte for
byte, though each of them is killed meanwhile::

    a quarter of the load     both are there
    a quarter                 the slave is killed, and started again
    a quarter                 the master is killed, and started again
    a quarter                 both are there
    pull everything from the slave, compare the folders, let the other kind of broker
    open each

C{python -m tests.interop.replication [TEXT]} runs the pairs with the text in their names,
or the scripts of L{weaknesses<tests.interop.replicationweak>} if the text is C{weak}.
C{TXROCKET_REPLICATED} is the number of messages.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from twisted.internet.defer import Deferred, DeferredList, DeferredSemaphore, gatherResults
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from tests.interop.cells import sleep
from tests.interop.programs import BUILD, build, missing
from tests.interop.replicationfiles import differences, tableDifferences, unsound
from tests.interop.replicationload import TOPICS, Content, Load, maxOffsets, readAll, sendOne
from tests.interop.replicationpair import Broker, Kinds, Pair, until
from tests.interop.replicationweak import TITLES, Weaknesses
from tests.interop.table import FAIL, LACKING, PASS, pairsTable, weaknessTable
from tests.live.servers import reactor
from txrocket.protocol.codes import RequestCode

__all__ = ["KINDS", "Check", "Matrix", "Replication"]

_MESSAGES = int(os.environ.get("TXROCKET_REPLICATED", "20000"))

# How many pairs are up at once: they mostly wait, until connections are made again.
_UP = 4

# The seconds until tables are the same: RocketMQ's slaves ask for them every ten.
_TABLES = 40.0

_CODES = {
    "topics.json": RequestCode.GET_ALL_TOPIC_CONFIG,
    "consumerOffset.json": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "delayOffset.json": RequestCode.GET_ALL_DELAY_OFFSET,
    "subscriptionGroup.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}

_OTHER = {"ours": "java", "java": "ours"}

KINDS = [
    Kinds(master, slave, role, flush)
    for role, flush in (("ASYNC_MASTER", "ASYNC_FLUSH"), ("SYNC_MASTER", "SYNC_FLUSH"))
    for master in ("java", "ours")
    for slave in ("java", "ours")
]


class Check:
    """
    The check of one pair.
    """

    def __init__(self, pair: Pair, messages: int) -> None:
        self._pair = pair
        self._messages = messages
        self._load = Load(pair.master)
        self._began = time.monotonic()
        self.times: list[str] = []

    def _done(self, what: str) -> None:
        self.times.append(f"{what} {time.monotonic() - self._began:.0f}")

    async def run(self) -> None:
        """
        Run it.
        """
        pair = self._pair
        await pair.startNameServer()
        await pair.startMaster()
        await self._load.prepare()
        await pair.startSlave()
        # RocketMQ's slave begins with the master's last file: it must be there before.
        await sendOne(pair.master, "Plain", b"first")
        await pair.caughtUp()
        self._done("started")
        await self._loaded()
        end = await self._still()
        self._done("caught up")
        # First: a slave of a master of RocketMQ's knows a new topic seconds later.
        await self._tables()
        self._done("tables")
        content = await self._served()
        self._done("served")
        ending = [Deferred.fromCoroutine(each.end()) for each in (pair.slave, pair.master)]
        await gatherResults(ending)
        self._done("ended")
        await self._same(end)
        self._done("compared")
        await self._swapped(content)
        self._done("swapped")

    # --- what is done ----------------------------------------------------

    async def _loaded(self) -> None:
        pair, load, quarter = self._pair, self._load, self._messages // 4
        await load.send(quarter)
        await load.commit()
        for broker, start in ((pair.slave, pair.startSlave), (pair.master, pair.startMaster)):
            sending = Deferred.fromCoroutine(load.send(quarter))
            await sleep(0.3)
            await broker.end("KILL")
            await start()
            await sending
            await pair.caughtUp()
            self._done(f"{broker.name} back")
        load.codes.clear()
        await load.send(quarter)
        # The load of a busy machine may keep a slave for longer than a master waits.
        isSync = pair.kinds.role == "SYNC_MASTER"
        assert not isSync or load.codes[0] > sum(load.codes.values()) / 2, load.codes

    async def _still(self) -> int:
        """
        Wait until late messages have come and the slave has them.
        """
        load, master = self._load, self._pair.master

        async def came() -> bool:
            late = sum(await maxOffsets(master, "Late"))
            return late >= len(load.late)

        await until(came, 60.0, "late messages have come")
        while True:
            end = await self._pair.caughtUp()
            await sleep(1.0)
            if await self._pair.caughtUp() == end:
                return end

    # --- what is looked at -----------------------------------------------

    async def _served(self) -> Content:
        """
        The slave serves what the master does, and that is what was sent.
        """
        pair, load = self._pair, self._load

        async def same() -> bool:
            ends = [
                [await maxOffsets(each, topic) for topic in TOPICS]
                for each in (pair.master, pair.slave)
            ]
            return ends[0] == ends[1]

        # What is in the log may not be in the queues yet.
        await until(same, 30.0, "queues are the same")
        masters = await readAll(pair.master)
        content = await readAll(pair.slave)
        assert content == masters, "the slave serves other messages than the master"
        for place in load.places:
            found = content[place.topic, place.queueId][place.offset].body
            assert found == place.body, f"{place}, and there is {found[:20]!r}"
        bodies = {
            topic: Counter(
                each.body for key, those in content.items() if key[0] == topic for each in those
            )
            for topic in TOPICS
        }
        for topic, sent in (("Late", load.late), ("Transactions", load.committed)):
            lacking = set(sent) - set(bodies[topic])
            assert not lacking, f"{topic}: {len(lacking)} of {len(sent)} are not there"
        unwanted = set(load.rolledBack) & set(bodies["Transactions"])
        assert not unwanted, f"{len(unwanted)} messages came though they were rolled back"
        return content

    async def _tables(self) -> None:
        pair = self._pair
        found: list[str] = []

        async def same() -> bool:
            tables = {name: (await pair.master.ask(code)).body for name, code in _CODES.items()}
            found[:] = tableDifferences(tables, pair.slave.store)
            return not found

        try:
            await until(same, _TABLES, "tables are the same")
        except AssertionError as error:
            raise AssertionError(f"{error}: {found[:5]}") from None

    async def _same(self, end: int) -> None:
        pair = self._pair
        brokers = pair.master, pair.slave
        isJava = "java" in (pair.kinds.master, pair.kinds.slave)
        master, slave = (each.store for each in brokers)
        found = await deferToThread(differences, master, slave, end, isJava)
        for each in brokers:
            found += await deferToThread(unsound, each.store, each.kind == "java")
        assert not found, "; ".join(found)

    async def _swapped(self, content: Content) -> None:
        """
        Each folder is opened by the other kind of broker, which goes on with it.
        """
        pair = self._pair
        opening = [
            Deferred.fromCoroutine(self._opened(each, content))
            for each in (pair.master, pair.slave)
        ]
        # Both are waited for, because what is open must be closed by the one that opened it.
        for _, result in await DeferredList(opening, consumeErrors=True):
            if isinstance(result, Failure):
                result.raiseException()

    async def _opened(self, broker: Broker, content: Content) -> None:
        settings = {"brokerRole": "ASYNC_MASTER", "brokerId": 0, "brokerName": broker.name}
        await broker.start(settings, _OTHER[broker.kind])
        found = await readAll(broker)
        others = [key for key in content if found[key] != content[key]]
        sizes = [(key, len(found[key]), len(content[key])) for key in others]
        where = f"the {broker.name}'s folder"
        assert not others, f"{broker.kind} sees other messages in {where}: {sizes}"
        for topic, properties in (("Plain", {}), ("Late", {"DELAY": "1"})):
            code, _ = await sendOne(broker, topic, b"afterwards", properties)
            assert not code, code

        async def came() -> bool:
            return (await maxOffsets(broker, "Late"))[0] > len(content["Late", 0])

        await until(came, 30.0, f"{broker.kind} delivers late messages of {where}")
        late = (await readAll(broker))["Late", 0]
        assert [each.body for each in late[len(content["Late", 0]) :]] == [b"afterwards"], late[-3:]
        await broker.end()


class Matrix:
    """
    The checks of all pairs.

    @ivar results: what became of each.
    @ivar failures: texts about those that failed.
    """

    def __init__(self, absent: Mapping[str, str], only: str = "") -> None:
        self.results: dict[Kinds, str] = {}
        self.failures: list[str] = []
        self._absent = absent
        self._wanted = [each for each in KINDS if only in str(each)]
        self._folder = Path(tempfile.mkdtemp(prefix="txrocket-pairs-"))
        self._began = time.monotonic()

    async def run(self) -> None:
        """
        Run all.
        """
        up = DeferredSemaphore(_UP)
        running = []
        for number, kinds in enumerate(self._wanted):
            if kinds.lacks(self._absent):
                self.results[kinds] = LACKING
            else:
                folder = self._folder / str(number)
                running.append(up.run(self._start, kinds, folder))
        await gatherResults(running)
        if not self.failures:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, kinds: Kinds, folder: Path) -> Deferred[None]:
        return Deferred.fromCoroutine(self._one(kinds, folder))

    async def _one(self, kinds: Kinds, folder: Path) -> None:
        pair = Pair(kinds, folder)
        check = Check(pair, _MESSAGES)
        problem: Exception | None = None
        try:
            await check.run()
            assert not pair.faults, f"ours said: {pair.faults[:5]}"
        except Exception as error:
            problem = error
        finally:
            await pair.stop()
        self.results[kinds] = FAIL if problem else PASS
        said = f"FAIL  {problem!r}"[:400] if problem else "pass"
        passed = time.monotonic() - self._began
        print(f"{passed:5.0f} s  {kinds}  {said}  ({', '.join(check.times)})", flush=True)
        if problem:
            told = "".join(traceback.format_exception(problem, limit=-8))
            self.failures.append(f"{kinds}: {said}\n{told}\n{pair.output}")


_TEXT = """\
A master gets {count:,} messages: single ones, batches, late ones and transactions. Meanwhile the
slave is killed and started again, and then the master is. Afterwards the logs are equal byte for
byte, as are the queues and tables; the slave serves every message; and the other kind of broker
opens each folder, and goes on with it.

{pairs}
What is known to go wrong with RocketMQ's replication, tried by the same scripts on two brokers of
one kind:

{weaknesses}"""


class Replication:
    """
    All about masters and slaves.

    @ivar failures: texts about what failed.
    """

    def __init__(self, absent: Mapping[str, str], only: str = "") -> None:
        """
        @param absent: the kinds that cannot be run.
        @param only: what is in the names of the pairs to run; C{weak} is the scripts.
        """
        self.failures: list[str] = []
        self._matrix = Matrix(absent, only)
        self._weak = Weaknesses(absent if only in ("", "weak") else {"java": "", "ours": ""})

    async def run(self) -> None:
        """
        Run all.
        """
        running = [Deferred.fromCoroutine(each.run()) for each in (self._matrix, self._weak)]
        await gatherResults(running)
        self.failures = self._matrix.failures + self._weak.failures

    @property
    def page(self) -> str:
        """
        Its part of the page; nothing if nothing was run.
        """
        if not self._weak.findings and set(self._matrix.results.values()) <= {LACKING}:
            return ""
        return _TEXT.format(
            count=_MESSAGES,
            pairs=pairsTable(self._matrix.results),
            weaknesses=weaknessTable(TITLES, self._weak.findings),
        )


def main(only: str = "") -> int:
    """
    @return: the exit code.
    """
    absent = missing()
    absent |= build({*absent, "go", "node", "cpp"})
    run = Replication(absent, only)
    failed: list[object] = []
    reactor.callWhenRunning(
        lambda: (
            Deferred.fromCoroutine(run.run())
            .addErrback(failed.append)
            .addBoth(lambda _: reactor.stop())
        )
    )
    reactor.run()
    print(run.page)
    if run.failures:
        log = BUILD / "replication.log"
        log.write_text(f"\n{'=' * 78}\n".join(run.failures))
        print(f"more in {log}")
    for each in failed:
        print(each)
    return 1 if failed or run.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
