# SPDX-License-Identifier: Apache-2.0
"""
Asking producers about transactions that they have left undecided; Java's
C{TransactionalMessageServiceImpl}.

Every C{transactionCheckInterval} all undecided halves are looked at::

    not C{transactionTimeOut} old, or as old as  --> it waits where it is
    its CHECK_IMMUNITY_TIME_IN_SECONDS says
    checked C{transactionCheckMax} times,        --> TRANS_CHECK_MAX_TIME_TOPIC
    or as old as messages are kept
    no producer of its group is connected        --> it waits where it is
    else                                         --> put at the end of its queue with
                                                     one more check on its count, and
                                                     CHECK_TRANSACTION_STATE sent

A question names the half at the end of the queue, and is sent once that is stored.
All that a later pass has to know is in the log: a broker that starts anew goes on
where another, be it Java's, has stopped.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.ages import QueueAges
from txrocket.broker.clients import Producers
from txrocket.broker.decisions import GROUP, HALF_TOPIC, OP_TOPIC, Reached
from txrocket.broker.detours import realPlace
from txrocket.broker.offsets import Offsets
from txrocket.broker.settings import TransactionSettings
from txrocket.broker.transactions import Transactions, checksOf, immunityOf, originOf
from txrocket.errors import (
    FlushDiskTimeout,
    InvalidMessage,
    MalformedRecord,
    RocketError,
    StoreError,
    TooManyRequests,
)
from txrocket.message import (
    PROPERTY_PGROUP,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_UNIQ_KEY,
    MessageExt,
)
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import CheckTransactionStateRequestHeader
from txrocket.protocol.record import encodeMessageExt
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.store.messages import MessageStore

__all__ = ["TransactionChecks"]

# How long to wait, in seconds, before a producer is asked more that does not read, or
# the disk is tried again that failed.
_PATIENCE: Final = 1.0

# How far from the end of the queue an undecided half may be.  One byte of memory is
# needed for each half behind the first that is undecided, so those that are farther
# away are put at the end.
_REACH: Final = 1_000_000

_HOUR: Final = 3_600_000


class _Question(NamedTuple):
    peer: RemotingProtocol
    group: str
    request: RemotingCommand


class TransactionChecks:
    """
    Looks at undecided halves.

    @ivar settings: may be replaced while the broker runs.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        store: MessageStore,
        offsets: Offsets,
        transactions: Transactions,
        producers: Producers,
        settings: TransactionSettings,
    ) -> None:
        self._clock = clock
        self._store = store
        self._offsets = offsets
        self._transactions = transactions
        self._decisions = transactions.decisions
        self._producers = producers
        self.settings = settings
        self._safe = self._decisions.reached
        self._ages = QueueAges()
        self._running = False
        self._busy = False
        self._timer: IDelayedCall | None = None
        # A pass that is to begin, or is under way: where it is, and where it ends.
        self._wanted = False
        self._at = 0
        self._end: int | None = None

    # --- life --------------------------------------------------------------

    def load(self) -> None:
        """
        There is nothing to read: the groups' offsets are known.
        """

    def start(self) -> None:
        """
        Find out what is decided, once the store is open.
        """
        self._running = True
        self._decisions.start(self._offsets)
        reached = self._decisions.reached
        # Where there has never been one it is not known, which need not be written.
        self._safe = Reached(
            *(max(0, self._offsets.query(GROUP, topic, 0)) for topic in (HALF_TOPIC, OP_TOPIC))
        )
        if self._safe.half > reached.half or self._safe.op > reached.op:
            # The log is shorter than it was, and what comes now is not decided.
            self._write(reached)
        self._soon()

    def stop(self) -> None:
        """
        Ask nobody any more.
        """
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """
        See what was decided: every second or so, so that there is never much to be
        seen.
        """
        self._soon()

    def check(self) -> None:
        """
        Look at all undecided halves, unless they are being looked at.
        """
        self._wanted = self._end is None
        self._soon()

    def save(self) -> Deferred[None]:
        """
        Have the offsets written below which all is decided, once what says so is on the
        disk.  A failure is logged: they are written the next time.

        @return: a Deferred that fires once they are.
        """
        reached = self._decisions.reached
        if reached == self._safe:
            return succeed(None)

        flushed = maybeDeferred(self._store.flushed)
        return flushed.addCallback(lambda none: self._write(reached)).addErrback(self._unsaved)

    def _write(self, reached: Reached) -> Deferred[None]:
        self._safe = reached
        for topic, offset in zip((HALF_TOPIC, OP_TOPIC), reached, strict=True):
            self._offsets.commit(GROUP, topic, 0, offset, "this broker")
        return self._offsets.save()

    def _unsaved(self, failure: Failure) -> None:
        failure.trap(StoreError)
        self._log.error(
            "How far transactions are decided is not written now: {error}", error=failure.value
        )

    # --- a pass ------------------------------------------------------------

    def _soon(self, seconds: float = 0) -> None:
        if self._running and self._timer is None and not self._busy:
            self._timer = self._clock.callLater(seconds, self._turn)

    def _turn(self) -> None:
        self._timer = None
        try:
            # What was decided in this very turn need not be asked.
            self._store.write()
            self._ages.note(self._decisions.end, self._clock.seconds())
            if self._decisions.read():
                self._soon()
                return
            if self._wanted:
                self._wanted = False
                self._at, self._end = self._decisions.first, self._decisions.end
                self._decisions.beginPass()
            if self._end is not None:
                self._walk(self._end)
        except StoreError as error:
            self._later(error)

    def _later(self, error: object) -> None:
        """
        The disk fails: the next pass begins where this one has.
        """
        self._wanted, self._end = False, None
        self._log.error("Undecided transactions are looked at later: {error}", error=error)

    def _walk(self, end: int) -> None:
        """
        Look at some of the undecided halves.
        """
        halves = self._decisions.halves(self._at, end)
        if not halves:
            self._end = None
            self._decisions.endPass()
            self.save()
            return
        questions: list[_Question] = []
        stored = 0
        for offset, half in halves:
            try:
                stored = self._lookAt(offset, half, questions) or stored
            except StoreError as error:
                self._later(error)
                break
            self._at = offset + 1
        if stored:
            self._busy = True
            self._store.stored(stored).addBoth(self._stored, questions)
        else:
            self._soon()

    def _stored(self, result: Failure | None, questions: list[_Question]) -> None:
        self._busy = False
        # If the disk is only slow, the halves are in their queue already.
        if isinstance(result, Failure) and not result.check(FlushDiskTimeout):
            result.trap(StoreError)
            self._later(result.getErrorMessage())
        elif self._running:
            self._soon(_PATIENCE if self._ask(questions) else 0)

    # --- one half ------------------------------------------------------------

    def _lookAt(
        self, offset: int, half: MessageExt | None, questions: list[_Question]
    ) -> int | None:
        """
        @return: where in the log ends what must be stored now; L{None} if nothing must.
        @raise StoreError: if the store takes no messages now.
        """
        try:
            if half is None:
                raise MalformedRecord(f"there is no message for the half {offset}")
            realPlace(half)
        except MalformedRecord as error:
            self._log.error("Half of a transaction cannot be read: {error}", error=error)
            self._decisions.skip(offset)
            return None
        if self._transactions.isDecided(half):
            return self._transactions.done(half)
        kept = self._store.settings.fileReservedTime * _HOUR
        if self._store.confirmed.now() - half.storeTimestamp > kept:
            return self._giveUp(half, "its record is as old as messages are kept")
        own = immunityOf(half)
        if self._age(half) < (self.settings.transactionTimeOut if own is None else own):
            return self._wait(half)
        checks = checksOf(half)
        if checks >= self.settings.transactionCheckMax:
            return self._giveUp(half, f"its producers were asked {checks} times")
        group = half.properties.get(PROPERTY_PGROUP, "")
        peer = self._producers.choose(group)
        if peer is None:
            return self._wait(half)
        try:
            copy, end = self._transactions.again(half, checks + 1)
        except InvalidMessage as error:
            return self._giveUp(half, str(error))
        questions.append(_Question(peer, group, _request(copy)))
        return end

    def _age(self, half: MessageExt) -> float:
        """
        How old a half is, in milliseconds.

        That is by the time of day, since a half may be older than this process.  But
        whoever sets the clock must not have a producer asked while it is at work, nor
        keep it from being asked.
        """
        age = self._store.now() - _since(half)
        least, most = self._ages.between(half.queueOffset, self._clock.seconds())
        # A copy is younger than what it is a copy of.
        bounded = max(age, least * 1000)
        return bounded if _isCopy(half) else min(bounded, most * 1000)

    def _wait(self, half: MessageExt) -> int | None:
        if self._decisions.end - half.queueOffset <= _REACH:
            return None
        try:
            return self._transactions.again(half)[1]
        except InvalidMessage as error:
            return self._giveUp(half, str(error))

    def _giveUp(self, half: MessageExt, why: str) -> int | None:
        topic, _ = realPlace(half)
        try:
            end = self._transactions.giveUp(half)
        except InvalidMessage as error:
            self._log.error(
                "Half of a transaction, {id} for topic {topic}, stays undecided: {error}",
                id=half.offsetMsgId,
                topic=topic,
                error=error,
            )
            return None
        self._log.warn(
            "Half of a transaction, {id} for topic {topic}, is given up: {why}",
            id=half.msgId,
            topic=topic,
            why=why,
        )
        return end

    # --- questions -----------------------------------------------------------

    def _ask(self, questions: list[_Question]) -> bool:
        """
        @return: whether a producer does not read what it is asked.
        """
        unread = False
        for peer, group, request in questions:
            try:
                peer.oneway(request)
            except RocketError as error:
                unread = unread or isinstance(error, TooManyRequests)
                self._log.warn(
                    "A producer of group {group} was not asked about a transaction now: {error}",
                    group=group,
                    error=error,
                )
        return unread


def _since(half: MessageExt) -> int:
    """
    From when on the age of a half counts.
    """
    # The broker's own clock, wherever it tells: the producers' may be set to any time.
    # Of a copy it tells when that was made.
    return min(half.bornTimestamp, half.storeTimestamp) if _isCopy(half) else half.storeTimestamp


def _isCopy(half: MessageExt) -> bool:
    return originOf(half) is not None or PROPERTY_TRANSACTION_CHECK_TIMES in half.properties


def _request(half: MessageExt) -> RemotingCommand:
    """
    The question about a half, which it shows as if it were in its topic already.
    """
    unique = half.properties.get(PROPERTY_UNIQ_KEY)
    header = CheckTransactionStateRequestHeader(
        half.queueOffset, half.commitLogOffset, unique, unique, half.offsetMsgId
    )
    topic, queueId = realPlace(half)
    shown = encodeMessageExt(replace(half, topic=topic, queueId=queueId))
    return requestCommand(RequestCode.CHECK_TRANSACTION_STATE, header, shown)
