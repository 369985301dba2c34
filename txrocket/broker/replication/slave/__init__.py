# SPDX-License-Identifier: Apache-2.0
"""
The slave's end of replication: the link to the master.

::

                  follow(address)            connected              handshake done
      ( IDLE ) ------------------> ( CONNECTING ) ----> ( GREETING ) ----> ( FOLLOWING )
          ^                          ^        | failed       | failed          |   or
          |                     pause|        v              v                 | ( PLAIN )
          |                          +----( PAUSED ) <-------+-----------------+
          +--- follow(None) from each state: nothing more is taken from the master

The link connects again and again, with pauses that grow.  A reason why it does not follow is
logged once, until there is another one or it follows again.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, cast

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocket.broker.replication.interfaces import SlaveParts
from txrocket.broker.replication.settings import ReplicationSettings
from txrocket.broker.replication.slave.preparation import Preparation
from txrocket.broker.replication.slave.protocol import SlaveProtocol
from txrocket.broker.replication.slave.streams import LateHello
from txrocket.errors import ReplicaRefused
from txrocket.remoting.peers import Backoff, Connect
from txrocket.store.replica.cut import Cut

__all__ = ["LinkState", "LinkStatus", "MasterLink"]

# Seconds in which the hello of a master of ours must begin, before the slave takes it for one
# of RocketMQ 4.9.7; and after a hello that came later.
_HELLO: Final = 1.0
_LATE_HELLO: Final = 5.0


class LinkState(Enum):
    """
    What a link does.
    """

    IDLE = "IDLE"
    PAUSED = "PAUSED"
    CONNECTING = "CONNECTING"
    GREETING = "GREETING"
    PLAIN = "PLAIN"
    FOLLOWING = "FOLLOWING"


@attrs.frozen
class LinkStatus:
    """
    A link as it is now.

    @ivar address: the master's; empty if there is none.
    @ivar epoch: the master's; 0 if it is not known.
    @ivar end: where this log ends.
    @ivar masterEnd: where the master's log ends, as far as that is known.
    @ivar confirmed: how much of it a slave has.
    @ivar silentSeconds: for how long the master has said nothing.
    @ivar lastCut: what was cut last.
    @ivar lastAside: the folder with the content that was set aside last; empty if none.
    @ivar problem: why the link does not follow; empty if it does.
    """

    address: str
    state: LinkState
    epoch: int
    end: int
    masterEnd: int
    confirmed: int
    silentSeconds: float
    lastCut: Cut | None
    lastAside: str
    problem: str

    @property
    def lag(self) -> int:
        """
        How many bytes this log is behind.
        """
        return max(0, self.masterEnd - self.end)


class MasterLink:
    """
    Follows a master.

    @ivar preparation: what makes the log a beginning of the master's.
    @ivar failures: how many attempts in a row have failed.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        connect: Connect,
        parts: SlaveParts,
        settings: ReplicationSettings,
        backoff: Backoff,
    ) -> None:
        """
        @param connect: makes an endpoint for an address.
        @param backoff: how many seconds to pause after a number of failures in a row.
        """
        self.clock = clock
        self.settings = settings
        self.preparation = Preparation(parts)
        self._connect = connect
        self._backoff = backoff
        self._address: str | None = None
        self._protocol: SlaveProtocol | None = None
        self._connecting: Deferred[Any] | None = None
        self._pausing: IDelayedCall | None = None
        self.failures = 0
        self._problem = ""
        self._told = ""
        self._helloWait = _HELLO

    def follow(self, address: str | None) -> None:
        """
        Follow the master at an address, or none.  When this returns, nothing more is taken
        from another one.
        """
        if address == self._address:
            return
        self._drop()
        self._address = address
        self.failures = 0
        self._problem = self._told = ""
        self._helloWait = _HELLO
        if address is not None:
            self._dial()

    @property
    def state(self) -> LinkState:
        """
        What the link does.
        """
        if self._address is None:
            return LinkState.IDLE
        if self._connecting is not None:
            return LinkState.CONNECTING
        if self._protocol is None:
            return LinkState.PAUSED
        sink = self._protocol.sink
        if sink is None:
            return LinkState.GREETING
        return LinkState.PLAIN if sink.isPlain else LinkState.FOLLOWING

    @property
    def status(self) -> LinkStatus:
        """
        All that is known.
        """
        protocol = self._protocol
        sink = protocol.sink if protocol is not None else None
        end = self.preparation.parts.log.end
        return LinkStatus(
            address=self._address or "",
            state=self.state,
            epoch=sink.epoch if sink is not None else 0,
            end=end,
            masterEnd=sink.masterEnd if sink is not None else end,
            confirmed=sink.confirmed if sink is not None else 0,
            silentSeconds=protocol.silentSeconds if protocol is not None else 0.0,
            lastCut=self.preparation.lastCut,
            lastAside=self.preparation.lastAside,
            problem=self._problem,
        )

    # --- what a connection tells -----------------------------------------

    def followed(self, protocol: SlaveProtocol) -> None:
        """
        A handshake is done.
        """
        assert protocol.sink is not None
        self._log.info(
            "Following the master at {address} from {offset}{how}",
            address=self._address,
            offset=self.preparation.parts.log.end,
            how=", as a slave of RocketMQ 4.9.7" if protocol.sink.isPlain else "",
        )

    def progressed(self) -> None:
        """
        Something was taken from the master.
        """
        self.failures = 0
        self._problem = self._told = ""

    def failed(self, error: Exception) -> None:
        """
        A connection is about to be closed.
        """
        if isinstance(error, LateHello):
            self._helloWait = _LATE_HELLO
        self._problem = str(error)
        reason = error.reason if isinstance(error, ReplicaRefused) else type(error).__name__
        if reason != self._told:
            self._told = reason
            self._log.error(
                "This broker does not follow the master at {address}: {error}",
                address=self._address,
                error=error,
            )

    def lost(self, protocol: SlaveProtocol) -> None:
        """
        A connection is closed.
        """
        if protocol is self._protocol:
            self._protocol = None
            self._pause()

    # --- connecting ------------------------------------------------------

    def _dial(self) -> None:
        self._pausing = None
        address = self._address
        assert address is not None
        factory = Factory()
        factory.noisy = False
        factory.protocol = lambda: SlaveProtocol(self, self._helloWait)
        self._connecting = connecting = maybeDeferred(
            lambda: self._connect(address).connect(factory)
        )
        connecting.addCallbacks(
            self._connected, self._notConnected, (connecting,), {}, (connecting,)
        )

    def _connected(self, protocol: Any, connecting: Deferred[Any]) -> None:
        if self._connecting is not connecting:
            # Another address was given meanwhile.
            protocol.abandon()
            return
        self._connecting = None
        self._protocol = protocol

    def _notConnected(self, failure: Failure, connecting: Deferred[Any]) -> None:
        if self._connecting is connecting:
            self._connecting = None
            self.failed(cast(Exception, failure.value))
            self._pause()

    def _pause(self) -> None:
        if self._address is not None:
            pause = self._backoff(self.failures)
            self.failures += 1
            self._pausing = self.clock.callLater(pause, self._dial)

    def _drop(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.abandon()
