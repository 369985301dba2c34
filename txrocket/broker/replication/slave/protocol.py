# SPDX-License-Identifier: Apache-2.0
"""
The connection to the master, at a slave::

                     master's hello, slave's hello
      ( greeting ) ---------------------------------> FrameSink
          | nothing came for a second
          +-----------------------------------------> PlainSink

While the disk takes a table, nothing is read: the next piece of the log may need it.  After
each read there is one report, whatever the number of frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from txrocket.broker.replication.handshake import slaveHello
from txrocket.broker.replication.slave.streams import FrameSink, PlainSink
from txrocket.errors import MalformedReplication, ReplicaRefused, RocketError
from txrocket.protocol.ha.hello import HelloReader, MasterHello
from txrocket.protocol.ha.plain import HELLO, encodeOffset
from txrocket.remoting.eagerwrite import withoutDelay

if TYPE_CHECKING:
    from txrocket.broker.replication.slave import MasterLink

__all__ = ["SlaveProtocol"]

# Seconds in which the rest of a hello must come, once it has begun.
_GREETING: Final = 5.0


class SlaveProtocol(Protocol):
    """
    One connection.

    @ivar sink: what is taken from the master, once the handshake is done.
    """

    def __init__(self, link: MasterLink, helloWait: float) -> None:
        """
        @param helloWait: the seconds in which the hello of a master of ours must begin.
        """
        self._link = link
        self._clock = link.clock
        self._parts = link.preparation.parts
        self._beat = link.settings.haSendHeartbeatInterval / 1000
        self._silence = link.settings.haHousekeepingInterval / 1000
        self._helloWait = helloWait
        self._hellos = HelloReader()
        self.sink: PlainSink | FrameSink | None = None
        self._timer: IDelayedCall | None = None
        self._lastRead = self._lastWrite = 0.0
        self._lastFlushed = -1
        self._isWaiting = False
        self._isFlushing = self._isFlushDue = False
        self._isOver = False

    @property
    def _transport(self) -> Any:
        return self.transport

    @property
    def silentSeconds(self) -> float:
        """
        For how long the master has said nothing.
        """
        return self._clock.seconds() - self._lastRead

    # --- the connection --------------------------------------------------

    def connectionMade(self) -> None:
        """
        Begin the handshake.
        """
        withoutDelay(self.transport)
        self._lastRead = self._clock.seconds()
        if self._isOver:
            self._transport.abortConnection()
            return
        self._transport.write(encodeOffset(HELLO))
        self._timer = self._clock.callLater(self._helloWait, self._noHello)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        The master is gone.
        """
        self._end()
        self._link.lost(self)

    def abandon(self) -> None:
        """
        Close at once.  Nothing of what has come or will come is taken.
        """
        self._end()
        if self.transport is not None:
            self._transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        """
        The master says something.
        """
        if self._isOver:
            return
        self._lastRead = self._clock.seconds()
        try:
            if self.sink is None:
                self._greet(data)
            else:
                self.sink.feed(data)
                self._take()
        except (RocketError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._isOver:
            self._link.failed(error)
            self.abandon()

    def _end(self) -> None:
        self._isOver = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    # --- the handshake ---------------------------------------------------

    def _greet(self, data: bytes) -> None:
        found = self._hellos.feed(data)
        if found is None:
            return
        hello, rest = found
        if not isinstance(hello, MasterHello):
            raise MalformedReplication("a slave cannot follow a slave")
        preparation = self._link.preparation
        preparation.prepare(hello, self._link.settings.syncFromLastFile)
        self._write(slaveHello(self._parts).encode())
        self._follow(FrameSink(preparation, hello))
        if rest:
            self.dataReceived(rest)

    def _noHello(self) -> None:
        if self._hellos.held:
            self._timer = self._clock.callLater(
                _GREETING, self._fail, ReplicaRefused("the master's hello is not whole")
            )
            return
        sink = PlainSink(self._link.preparation)
        self._write(sink.request())
        self._follow(sink)

    def _follow(self, sink: PlainSink | FrameSink) -> None:
        self.sink = sink
        self._link.followed(self)
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._watch()

    # --- time ------------------------------------------------------------

    def _watch(self) -> None:
        """
        Look at what is due, and again when the next is.
        """
        now = self._clock.seconds()
        if self._isWaiting:
            self._lastRead = now
        due = self._lastRead + self._silence
        if now >= due:
            self._fail(ReplicaRefused(f"the master has said nothing for {self._silence:g} s"))
            return
        if now >= self._lastWrite + self._beat:
            self._report()
        self._timer = self._clock.callLater(
            min(due, self._lastWrite + self._beat) - now, self._watch
        )

    # --- following -------------------------------------------------------

    def _take(self) -> None:
        assert self.sink is not None
        if self._isWaiting:
            # A transport may have read already when it was paused.
            return
        isAny = False
        while not self._isWaiting and not self._isOver:
            taken = self.sink.take()
            isAny = isAny or taken.isAny
            if taken.waiting is None:
                break
            self._await(taken.waiting)
        if isAny and not self._isOver:
            self._link.progressed()
            self._report()
            self._flush()

    def _await(self, waiting: Deferred[None]) -> None:
        """
        Go on once the disk has taken something, which it may have done already.
        """
        if waiting.called:
            waiting.addErrback(self._broke)
            return
        self._isWaiting = True
        self._transport.pauseProducing()
        waiting.addCallbacks(self._goOn, self._broke)

    def _goOn(self, result: None) -> None:
        self._isWaiting = False
        if self._isOver:
            return
        self._lastRead = self._clock.seconds()
        self._transport.resumeProducing()
        self._report()
        self.dataReceived(b"")

    def _broke(self, failure: Failure) -> None:
        """
        The disk has not taken something.
        """
        self._isWaiting = self._isFlushing = False
        self._fail(cast(Exception, failure.value))

    def _flush(self) -> None:
        """
        Have the disk take what the master's messages wait for.
        """
        log = self._parts.log
        sink = self.sink
        if sink is None or not sink.countsFlushed or log.flushed >= log.end:
            return
        if self._isFlushing:
            self._isFlushDue = True
            return
        self._isFlushing = True
        flushed: Deferred[None] = self._parts.flush()
        flushed.addCallbacks(self._flushed, self._broke, (log.flushed,))

    def _flushed(self, result: None, before: int) -> None:
        isDue = self._isFlushDue or self._parts.log.flushed > before
        self._isFlushDue = False
        self._isFlushing = False
        flushed = self._parts.log.flushed
        # A record that is not whole is on no disk: there is no use in asking again.
        if not self._isOver and flushed > self._lastFlushed:
            self._lastFlushed = flushed
            self._report()
            # Not without end: if the log ends with half a record, the disk does not get that.
            if isDue:
                self._flush()

    def _report(self) -> None:
        assert self.sink is not None
        self._write(self.sink.report())

    def _write(self, data: bytes) -> None:
        self._lastWrite = self._clock.seconds()
        self._transport.write(data)
