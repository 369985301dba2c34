# SPDX-License-Identifier: Apache-2.0
"""
Checks of undecided transactions: the broker asks their producers; Java's
C{TransactionalMessageServiceImpl}.

Every C{transactionCheckInterval} the broker goes through all undecided halves::

    not C{transactionTimeOut} old, or as old as  --> it waits where it is
    its CHECK_IMMUNITY_TIME_IN_SECONDS says
    checked C{transactionCheckMax} times,        --> TRANS_CHECK_MAX_TIME_TOPIC
    or as old as messages are kept
    no producer of its group is connected        --> it waits where it is
    else                                         --> appended to its queue again, with
                                                     one more check on its count, and
                                                     CHECK_TRANSACTION_STATE sent

A check names the copy at the end of the queue, and is sent once that is stored.  The log has
all that a later pass needs: after a restart a broker, even Java's, goes on from there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.clients.producers import Producers
from txrocket.broker.delivery.reroute import realDestination
from txrocket.broker.settings import TransactionSettings
from txrocket.broker.tables.consumeroffsets import ConsumerOffsets
from txrocket.broker.transaction.halfmessages import HalfMessages, checksOf, immunityOf, originOf
from txrocket.broker.transaction.opmessages import GROUP, HALF_TOPIC, OP_TOPIC, DecidedUpTo
from txrocket.broker.transaction.queueages import QueueAges
from txrocket.config import Live
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
from txrocket.store.messagestore import MessageStore

__all__ = ["TransactionChecks"]

# Seconds until the next checks for a producer that does not read, or the next attempt after
# the disk has failed.
_PATIENCE: Final = 1.0

# How far from the end of the queue an undecided half may be.  Each half behind the first
# undecided one takes a byte of memory, so one that is farther away is appended again.
_REACH: Final = 1_000_000

_HOUR: Final = 3_600_000


class _Question(NamedTuple):
    peer: RemotingProtocol
    group: str
    request: RemotingCommand


class TransactionChecks:
    """
    Checks the undecided halves of a broker.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        store: MessageStore,
        offsets: ConsumerOffsets,
        halfMessages: HalfMessages,
        producers: Producers,
        settings: Live[TransactionSettings],
    ) -> None:
        self._clock = clock
        self._store = store
        self._offsets = offsets
        self._halfMessages = halfMessages
        self._opMessages = halfMessages.opMessages
        self._producers = producers
        self._settings = settings
        self._safe = self._opMessages.decidedUpTo
        self._ages = QueueAges()
        self._running = False
        self._busy = False
        self._timer: IDelayedCall | None = None
        # Whether a pass is to begin, and of the current pass its place and its end.
        self._wanted = False
        self._at = 0
        self._end: int | None = None

    # --- life --------------------------------------------------------------

    def load(self) -> None:
        """
        Nothing to read: the offsets are in the table of the groups' offsets.
        """

    def start(self) -> None:
        """
        Begin to read op messages: the store is open.
        """
        self._running = True
        self._wanted, self._end = False, None
        self._opMessages.start(self._offsets)
        decided = self._opMessages.decidedUpTo
        # Without any half there is no offset, and none needs to be written.
        self._safe = DecidedUpTo(
            *(max(0, self._offsets.query(GROUP, topic, 0)) for topic in (HALF_TOPIC, OP_TOPIC))
        )
        if self._safe.half > decided.half or self._safe.op > decided.op:
            # The log is shorter than it was, and the next halves are not decided.
            self._write(decided)
        self._soon()

    def stop(self) -> None:
        """
        Send no more checks.
        """
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """
        Read new op messages: about every second, so that there are never many.
        """
        self._soon()

    def check(self) -> None:
        """
        Begin a pass through all undecided halves, unless one is running.
        """
        self._wanted = self._end is None
        self._soon()

    def save(self) -> Deferred[None]:
        """
        Write the offsets below which all is decided, once the op messages are on the disk.
        A failure is logged, and the next call writes them.

        @return: a Deferred that fires once they are written.
        """
        decided = self._opMessages.decidedUpTo
        if decided == self._safe:
            return succeed(None)

        flushed = maybeDeferred(self._store.flushed)
        return flushed.addCallback(lambda none: self._write(decided)).addErrback(self._unsaved)

    def _write(self, decided: DecidedUpTo) -> Deferred[None]:
        self._safe = decided
        for topic, offset in zip((HALF_TOPIC, OP_TOPIC), decided, strict=True):
            self._offsets.commit(GROUP, topic, 0, offset, "this broker")
        return self._offsets.save()

    def _unsaved(self, failure: Failure) -> None:
        failure.trap(StoreError)
        self._log.error(
            "The offsets of decided transactions are not written now: {error}", error=failure.value
        )

    # --- a pass ------------------------------------------------------------

    def _soon(self, seconds: float = 0) -> None:
        if self._running and self._timer is None and not self._busy:
            self._timer = self._clock.callLater(seconds, self._turn)

    def _turn(self) -> None:
        self._timer = None
        try:
            # A half that was decided in this turn needs no check.
            self._store.write()
            self._ages.record(self._opMessages.end, self._clock.seconds())
            if self._opMessages.read():
                self._soon()
                return
            if self._wanted:
                self._wanted = False
                self._at, self._end = self._opMessages.first, self._opMessages.end
                self._opMessages.beginPass()
            if self._end is not None:
                self._walk(self._end)
        except StoreError as error:
            self._later(error)

    def _later(self, error: object) -> None:
        """
        End the pass, because the disk fails.  The next pass begins at the first half.
        """
        self._wanted, self._end = False, None
        self._log.error("Undecided transactions are checked later: {error}", error=error)

    def _walk(self, end: int) -> None:
        """
        Go through some of the undecided halves.
        """
        halves = self._opMessages.halves(self._at, end)
        if not halves:
            self._end = None
            self._opMessages.endPass()
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
        # If the disk is only slow, the copies are in their queue already.
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
        @return: the end of the log that must be stored now; L{None} if nothing was appended.
        @raise StoreError: if the store accepts no messages now.
        """
        try:
            if half is None:
                raise MalformedRecord(f"there is no message for the half {offset}")
            realDestination(half)
        except MalformedRecord as error:
            self._log.error("Half of a transaction cannot be read: {error}", error=error)
            self._opMessages.skip(offset)
            return None
        if self._halfMessages.isDecided(half):
            return self._halfMessages.done(half)
        kept = self._store.settings.fileReservedTime * _HOUR
        if self._store.confirmed.now() - half.storeTimestamp > kept:
            return self._giveUp(half, "its record is as old as messages are kept")
        own = immunityOf(half)
        if self._age(half) < (self._settings.now.transactionTimeOut if own is None else own):
            return self._wait(half)
        checks = checksOf(half)
        if checks >= self._settings.now.transactionCheckMax:
            return self._giveUp(half, f"its producers were asked {checks} times")
        group = half.properties.get(PROPERTY_PGROUP, "")
        peer = self._producers.choose(group)
        if peer is None:
            return self._wait(half)
        try:
            copy, end = self._halfMessages.again(half, checks + 1)
        except InvalidMessage as error:
            return self._giveUp(half, str(error))
        questions.append(_Question(peer, group, _request(copy)))
        return end

    def _age(self, half: MessageExt) -> float:
        """
        How old a half is, in milliseconds.

        The age is by the time of day, because a half may be older than this process.  It is
        bounded by a monotonic clock: setting the clock must neither cause a check too early
        nor prevent one.
        """
        age = self._store.now() - _since(half)
        least, most = self._ages.between(half.queueOffset, self._clock.seconds())
        # A copy is younger than its half.
        bounded = max(age, least * 1000)
        return bounded if _isCopy(half) else min(bounded, most * 1000)

    def _wait(self, half: MessageExt) -> int | None:
        if self._opMessages.end - half.queueOffset <= _REACH:
            return None
        try:
            return self._halfMessages.again(half)[1]
        except InvalidMessage as error:
            return self._giveUp(half, str(error))

    def _giveUp(self, half: MessageExt, why: str) -> int | None:
        topic, _ = realDestination(half)
        try:
            end = self._halfMessages.giveUp(half)
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

    # --- sending checks ------------------------------------------------------

    def _ask(self, questions: list[_Question]) -> bool:
        """
        @return: whether a producer does not read its requests.
        """
        unread = False
        for peer, group, request in questions:
            try:
                peer.oneway(request)
            except RocketError as error:
                unread = unread or isinstance(error, TooManyRequests)
                self._log.warn(
                    "A producer of group {group} did not get the check of a transaction: {error}",
                    group=group,
                    error=error,
                )
        return unread


def _since(half: MessageExt) -> int:
    """
    The time from which the age of a half counts.
    """
    # The broker's clock, because the producer's may show any time.  For a copy that is the
    # time of the copy.
    return min(half.bornTimestamp, half.storeTimestamp) if _isCopy(half) else half.storeTimestamp


def _isCopy(half: MessageExt) -> bool:
    return originOf(half) is not None or PROPERTY_TRANSACTION_CHECK_TIMES in half.properties


def _request(half: MessageExt) -> RemotingCommand:
    """
    The check of a half, which shows it as if it were in its real topic.
    """
    unique = half.properties.get(PROPERTY_UNIQ_KEY)
    header = CheckTransactionStateRequestHeader(
        half.queueOffset, half.commitLogOffset, unique, unique, half.offsetMsgId
    )
    topic, queueId = realDestination(half)
    shown = encodeMessageExt(replace(half, topic=topic, queueId=queueId))
    return requestCommand(RequestCode.CHECK_TRANSACTION_STATE, header, shown)
