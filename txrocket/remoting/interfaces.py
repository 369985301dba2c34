# SPDX-License-Identifier: Apache-2.0
"""
What the parts of remoting expect of each other and of those who plug in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from twisted.internet.defer import Deferred
from zope.interface import Interface

from txrocket.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from txrocket.remoting.protocol import RemotingProtocol
    from txrocket.remoting.turn import Call, ProcessAll

__all__ = ["Answer", "IBulkProcessor", "IExecutor", "IHook", "IRequestProcessor", "Process"]

# What a processor may return: a response, a promise of one, or nothing, where
# no answer is owed.
Answer: TypeAlias = (
    "RemotingCommand | Deferred[RemotingCommand] | Deferred[RemotingCommand | None] | None"
)
Process: TypeAlias = "Callable[[RemotingCommand, RemotingProtocol], Answer]"


class IRequestProcessor(Interface):
    """
    What serves requests of one or several codes.
    """

    def process(request: RemotingCommand, peer: RemotingProtocol) -> Answer:
        """
        Serve a request.

        Return a Deferred only where something is awaited: an answer that is
        given at once costs a third of one that is promised.  Raise a
        L{ResponseError<txrocket.errors.ResponseError>} to answer with its code.

        If the connection goes away, the Deferred is cancelled.

        @param request: what is asked.
        @param peer: the connection it came on, which can be called in turn.
        """


class IBulkProcessor(IRequestProcessor):
    """
    What serves many requests of a code at a time as well.
    """

    def processAll(calls: list[Call], starts: list[int]) -> None:
        """
        Serve requests from the front of each call, as many as need no rule.

        Answers that depend on the commit of this turn are written by a function given to
        L{Turn.replyAll<txrocket.remoting.turn.Turn.replyAll>}.

        If this method raises, the requests behind C{starts} are answered SYSTEM_ERROR and
        never served again, because the method may have stored their messages.  So it moves
        an entry past a request as soon as the request's answer is written or given to
        C{replyAll}, and not before.

        @param calls: frames of several peers, complete and not decoded.
        @param starts: for each call, where the first frame begins that is not served; to be
            moved on.  Afterwards that frame is served by C{process}, and the rest is given
            to this method again.
        """


class IExecutor(Interface):
    """
    Where and when a processor runs.
    """

    def bind(process: Process) -> Process:
        """
        A function that runs a processor's C{process} where this executor runs
        things, now or later; it raises L{SystemBusy<txrocket.errors.SystemBusy>}
        instead of letting a request wait too long.

        Asked once, when a processor is registered, so that what runs in the
        reactor runs without a detour.
        """

    def bindAll(processAll: ProcessAll) -> ProcessAll | None:
        """
        A function that runs a processor's C{processAll}; L{None} if this executor runs
        requests one by one.
        """


class IHook(Interface):
    """
    What looks at every request and its response, at either end.
    """

    def beforeRequest(address: str, request: RemotingCommand) -> None:
        """
        A request is about to be sent to C{address}, or came from it.  What is
        put into its C{extFields} is sent.

        @raise ResponseError: to refuse it with that code.
        """

    def afterResponse(address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        """
        A request was answered, by us or by the peer.
        """
