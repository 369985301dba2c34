# SPDX-License-Identifier: Apache-2.0
"""
A connection of a slave, at the master; Java's C{HAConnection}::

                     offset >= 0
      ( unknown ) ------------------> ( plain )    PlainSource
          | offset -1: hello
          v          slave's hello
      ( greeted ) ------------------> ( ours )     FrameSource

The protocol knows the time: it sends heartbeats, and closes a connection that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocket.broker.replication.handshake import checkPlain, checkSlave, masterHello
from txrocket.broker.replication.master.streams import FrameSource, PlainSource, refusalFrame
from txrocket.errors import MalformedReplication, ProtocolError, ReplicaRefused, StoreError
from txrocket.protocol.ha.hello import HelloReader, SlaveHello
from txrocket.protocol.ha.plain import HELLO, OFFSET_SIZE
from txrocket.remoting.addresses import addressOf
from txrocket.remoting.eagerwrite import withoutDelay

if TYPE_CHECKING:
    from txrocket.broker.replication.master import ReplicaServerFactory

__all__ = ["MasterProtocol"]

# Seconds in which a slave must answer the master's hello.
_GREETING: Final = 5.0

_OFFSET = Struct(">q")


@implementer(IPushProducer)
class MasterProtocol(Protocol):
    """
    One connection.

    @ivar source: what is sent to the slave, once its handshake is done.
    """

    _log = Logger()

    def __init__(self, server: ReplicaServerFactory) -> None:
        settings = server.settings
        self._server = server
        self._clock = server.clock
        self._parts = server.parts
        self._most = settings.haTransferBatchSize
        self._beat = settings.haSendHeartbeatInterval / 1000
        self._silence = settings.haHousekeepingInterval / 1000
        self.source: PlainSource | FrameSource | None = None
        self._receive: Callable[[bytes], None] = self._begin
        self._partial = b""
        self._hellos = HelloReader()
        self._isGreeted = False
        self._isPaused = False
        self._isOver = False
        self._growing: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None
        self._lastRead = self._lastWrite = 0.0
        self._readLimit = self._silence

    # --- the connection --------------------------------------------------

    def connectionMade(self) -> None:
        """
        A peer has sent its first byte.
        """
        withoutDelay(self.transport)
        self._lastRead = self._clock.seconds()
        self._watch()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """
        The peer is gone.
        """
        self._end()

    def dataReceived(self, data: bytes) -> None:
        """
        The peer says something.
        """
        if self._isOver:
            return
        if self.source is not None:
            # Before that, the time limit is for all of a handshake, and not from byte to byte.
            self._lastRead = self._clock.seconds()
        try:
            self._receive(data)
        except (ProtocolError, ReplicaRefused, StoreError) as error:
            self._refuse(error)

    def abandon(self) -> None:
        """
        Close at once.
        """
        self._end()
        self._transport.abortConnection()

    @property
    def address(self) -> str:
        """
        The peer.
        """
        return addressOf(self._transport.getPeer())

    @property
    def _transport(self) -> Any:
        return self.transport

    def _refuse(self, error: Exception) -> None:
        """
        Close, and tell a slave of ours why.
        """
        self._server.refusals.tell(self.address, error)
        if self._isGreeted:
            self._transport.write(refusalFrame(error))
        isPaused = self._isPaused
        self._end()
        if isPaused:
            # It does not read.
            self._transport.abortConnection()
        else:
            self._transport.loseConnection()

    def _end(self) -> None:
        if self._isOver:
            return
        self._isOver = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._growing is not None:
            self._growing.cancel()
        if self.source is not None:
            self._transport.unregisterProducer()
            self.source.close()
            self._log.info("{name} is gone", name=self.source.replica.name)
        self._server.gone(self)

    # --- time ------------------------------------------------------------

    def _watch(self) -> None:
        """
        Look at what is due, and again when the next is.
        """
        now = self._clock.seconds()
        due = self._lastRead + self._readLimit
        if now >= due:
            silence = ReplicaRefused(f"it has said nothing for {self._readLimit:g} s")
            self._server.refusals.tell(self.address, silence)
            self.abandon()
            return
        if self.source is not None:
            # A connection that is paused has something to send, and needs no heartbeat.
            if now >= self._lastWrite + self._beat:
                self._lastWrite = now
                if not self._isPaused:
                    self.source.beat()
            due = min(due, self._lastWrite + self._beat)
        self._timer = self._clock.callLater(due - now, self._watch)

    def _watchAgain(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._watch()

    # --- the handshake ---------------------------------------------------

    def _begin(self, data: bytes) -> None:
        self._partial += data
        if len(self._partial) < OFFSET_SIZE:
            return
        (offset,) = _OFFSET.unpack_from(self._partial)
        rest, self._partial = self._partial[OFFSET_SIZE:], b""
        if offset == HELLO:
            self._readLimit = min(_GREETING, self._silence)
            self._lastRead = self._clock.seconds()
            self._isGreeted = True
            self._receive = self._greeted
            hello = masterHello(self._parts, self._server.replicas.countsFlushed)
            self._transport.write(hello.encode())
            self._watchAgain()
        elif offset < 0:
            raise MalformedReplication(f"a slave cannot ask for offset {offset}")
        else:
            self._server.mayBePlain(self.address)
            position = checkPlain(self._parts.log, offset)
            self._follow(
                PlainSource(self._parts, self._server.replicas, self._write, self.address, position)
            )
        if rest:
            self._receive(rest)

    def _greeted(self, data: bytes) -> None:
        found = self._hellos.feed(data)
        if found is None:
            return
        hello, rest = found
        if not isinstance(hello, SlaveHello):
            raise MalformedReplication("a master cannot follow a master")
        checkSlave(self._parts, hello)
        self._server.checkNumber(hello)
        source = FrameSource(
            self._parts, self._server.replicas, self._write, self.address, hello, self.sendSoon
        )
        self._readLimit = self._silence
        self._follow(source)
        if rest:
            self._receive(rest)

    def _follow(self, source: PlainSource | FrameSource) -> None:
        self._receive = source.take
        self._lastRead = self._clock.seconds()
        self._server.welcome(source.replica)
        self.source = source
        self._lastWrite = self._lastRead
        self._transport.registerProducer(self, True)
        self._watchAgain()
        self.sendSoon()

    # --- what the master sends -------------------------------------------

    def pauseProducing(self) -> None:
        """
        The socket is full.
        """
        self._isPaused = True

    def resumeProducing(self) -> None:
        """
        The socket takes more.
        """
        self._isPaused = False
        self.sendSoon()

    def stopProducing(self) -> None:
        """
        The connection is lost.
        """
        self._isPaused = True

    def sendSoon(self) -> None:
        """
        There may be something to send.
        """
        if self.source is not None and not self._isOver and not self._isPaused:
            self._server.turns.want(self)

    def sendPiece(self) -> bool:
        """
        Send what comes next, if the socket takes it.

        @return: whether there may be more.
        """
        source = self.source
        if source is None or self._isOver or self._isPaused:
            return False
        try:
            isSent = source.send(self._most)
        except StoreError as error:
            self._refuse(error)
            return False
        except Exception:
            self._log.failure("{name}: sending failed", name=source.replica.name)
            self.abandon()
            return False
        if not isSent:
            self._wait(source.position)
        return isSent and not self._isPaused

    def _write(self, data: Any) -> None:
        self._lastWrite = self._clock.seconds()
        self._transport.writeSequence(data)

    def _wait(self, position: int) -> None:
        if self._growing is None:
            self._growing = growing = self._parts.log.whenGrown(position)
            growing.addCallbacks(self._grew, lambda failure: failure.trap(CancelledError))

    def _grew(self, result: None) -> None:
        self._growing = None
        self.sendSoon()
