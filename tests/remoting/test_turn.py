# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.turn}: requests of one turn are served together, committed once,
and answered after that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from zope.interface import implementer

from tests.remoting.doubles import RemotingTests, Wire, connected, decoded, frame, lose, serving
from txrocket.protocol.codes import ResponseCode
from txrocket.protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    requestCommand,
    responseCommand,
)
from txrocket.protocol.frames import frameEnd
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.interfaces import IHook
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import BulkFunctionProcessor
from txrocket.remoting.turn import Call

NOW, LATER, NEVER, MANY = 1, 2, 3, 4


class TurnCase(RemotingTests):
    """
    The base: a server that answers NOW at once and LATER when a test says so, and serves MANY
    together.

    @ivar onCommit: called in each commit.
    @ivar together: the calls of each C{processAll}, as opaques by peer.
    @ivar stopAt: the opaque at which C{processAll} leaves a call.
    """

    def setUp(self) -> None:
        super().setUp()
        self.given: list[RemotingCommand] = []
        self.promised: list[Deferred[RemotingCommand]] = []
        self.onCommit: Callable[[], object] = lambda: None
        self.together: list[list[list[int]]] = []
        self.single: list[int] = []
        self.stopAt = -1
        self.remoting = serving(self.clock, {NOW: self.now, LATER: self.later, NEVER: _never})
        self.remoting.registerProcessor(
            MANY, BulkFunctionProcessor(self.one, self.many), InlineExecutor()
        )
        self.turn = self.remoting.turn
        self.turn.onCommit(self.commit)
        self.peer, self.wire = self.connect()
        self.other, self.otherWire = self.connect()

    def connect(self) -> tuple[RemotingProtocol, Wire]:
        """
        A connection.
        """
        return connected(self.remoting)

    def commit(self) -> None:
        """
        Call what the test wants.
        """
        self.onCommit()

    def now(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Answer at once.
        """
        response = responseCommand(body=request.body)
        self.given.append(response)
        return response

    def later(self, request: RemotingCommand, peer: RemotingProtocol) -> Deferred[RemotingCommand]:
        """
        Answer when the test says so.
        """
        promise: Deferred[RemotingCommand] = Deferred()
        self.promised.append(promise)
        return promise

    def one(self, request: RemotingCommand, peer: RemotingProtocol) -> RemotingCommand:
        """
        Serve one of MANY by the rules.
        """
        self.single.append(request.opaque)
        return responseCommand(body=b"one")

    def many(self, calls: list[Call], starts: list[int]) -> None:
        """
        Serve MANY together.
        """
        served: list[list[int]] = []
        for index, (peer, _, data, start, end) in enumerate(calls):
            opaques = []
            while start < end:
                (command,) = decoded(data[start : frameEnd(data, start)])
                if command.opaque == self.stopAt:
                    break
                opaques.append(command.opaque)
                start = frameEnd(data, start)
            self.turn.replyAll(partial(_reply, peer, opaques))
            starts[index] = start
            served.append(opaques)
        self.together.append(served)

    def opaques(self, wire: Wire) -> list[int]:
        """
        The numbers of the answers that a peer gets.
        """
        return [each.opaque for each in wire.drain()]


def _never(request: RemotingCommand, peer: RemotingProtocol) -> None:
    return None


def _reply(peer: RemotingProtocol, opaques: list[int]) -> None:
    for opaque in opaques:
        response = responseCommand()
        response.opaque = opaque
        peer.outbox.answer(response.encode())


class CommitTests(TurnCase):
    """
    L{Turn.onCommit<txrocket.remoting.turn.Turn.onCommit>}.
    """

    def test_readWithManyRequestsCommitsOnceBeforeAnswers(self) -> None:
        """
        The requests of a read are committed once, before any of them is answered.
        """
        written: list[int] = []
        self.onCommit = lambda: written.append(len(self.wire.value()))
        self.peer.dataReceived(frame(NOW, 1) + frame(NOW, 2) + frame(NOW, 3))
        self.assertEqual(written, [0])
        self.assertEqual(self.opaques(self.wire), [1, 2, 3])
        self.assertEqual(len(self.wire.writes), 1)

    def test_promisedAnswerIsCommittedFirst(self) -> None:
        """
        An answer that was promised is written after a commit as well.
        """
        self.peer.dataReceived(frame(LATER, 1))
        written: list[int] = []
        self.onCommit = lambda: written.append(len(self.wire.value()))
        self.promised[0].callback(responseCommand())
        self.assertEqual(written, [0])
        self.assertEqual(self.opaques(self.wire), [1])

    def test_failedCommitChangesAnswers(self) -> None:
        """
        A commit may change answers, because none is encoded yet.
        """

        def refuse() -> None:
            for each in self.given:
                each.code = 14
                each.remark = "lost"
                each.fields = {"a": "b"}

        self.onCommit = refuse
        self.peer.dataReceived(frame(NOW, 1) + frame(NOW, 2))
        for answer in self.wire.drain():
            self.assertEqual((answer.code, answer.remark), (14, "lost"))
            self.assertEqual(answer.extFields, {"a": "b"})

    def test_largeAnswersAreCommittedInParts(self) -> None:
        """
        Once the answers of a peer have 96 KiB, its next requests wait until these are written.
        """
        written: list[int] = []
        self.onCommit = lambda: written.append(len(self.wire.value()))
        body = b"x" * 60_000
        self.peer.dataReceived(frame(NOW, 1, body) + frame(NOW, 2, body) + frame(NOW, 3))
        self.assertEqual(len(written), 2)
        self.assertEqual(written[0], 0)
        self.assertEqual(self.opaques(self.wire), [1, 2, 3])

    def test_promiseKeptInCommitIsAnsweredInTheSameTurn(self) -> None:
        """
        A commit may keep promises, on this connection and on others: each is answered once,
        when the turn ends.
        """
        self.other.dataReceived(frame(LATER, 7))

        def keep() -> None:
            while self.promised:
                self.promised.pop().callback(responseCommand(body=b"kept"))

        self.onCommit = keep
        self.peer.dataReceived(frame(LATER, 1) + frame(NOW, 2) + frame(NOW, 3))
        self.assertEqual(sorted(self.opaques(self.wire)), [1, 2, 3])
        self.assertEqual(len(self.wire.writes), 1)
        self.assertEqual(self.opaques(self.otherWire), [7])

    def test_answerThatComesWhileAnsweringWaitsForTheNextCommit(self) -> None:
        """
        An answer that is given while others are encoded may tell of a message that is not
        committed yet: there is a commit before it is encoded.
        """
        self.peer.dataReceived(frame(LATER, 1))
        order: list[str] = []
        self.onCommit = lambda: order.append("commit")

        def answerAnother() -> None:
            order.append("answer")
            self.promised.pop().callback(responseCommand())

        self.turn.replyAll(answerAnother)
        self.assertEqual(order, ["commit", "answer", "commit"])
        self.assertEqual(self.opaques(self.wire), [1])

    def test_connectionLostInCommitGetsNothing(self) -> None:
        """
        If a connection is lost during the commit, nothing is written to it.
        """
        self.onCommit = lambda: lose(self.peer, ConnectionDone())
        self.peer.dataReceived(frame(NOW, 1))
        self.assertEqual(self.wire.value(), b"")

    def test_commitThatRaisesLeavesRequestsUnanswered(self) -> None:
        """
        If a commit breaks, no answer states that it has happened, and the next turn works.
        """

        def broken() -> None:
            self.onCommit = lambda: None
            raise ZeroDivisionError

        self.onCommit = broken
        self.peer.dataReceived(frame(NOW, 1))
        self.assertEqual(self.wire.value(), b"")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.peer.dataReceived(frame(NOW, 2))
        self.assertEqual(self.opaques(self.wire), [2])


class TogetherTests(TurnCase):
    """
    Several connections in one turn, as an event loop that ends turns has it.
    """

    def setUp(self) -> None:
        super().setUp()
        self.turn.driven = True

    def test_neighboursOfOneCodeAreServedTogether(self) -> None:
        """
        Requests of one code that stand side by side, on one connection or on several, are
        served by one call.
        """
        self.peer.dataReceived(frame(MANY, 1) + frame(MANY, 2))
        self.other.dataReceived(frame(MANY, 3))
        self.assertEqual(self.together, [])
        self.turn.end()
        self.assertEqual(self.together, [[[1, 2], [3]]])
        self.assertEqual(self.opaques(self.wire), [1, 2])
        self.assertEqual(self.opaques(self.otherWire), [3])

    def test_requestsOfOnePeerAreServedInOrder(self) -> None:
        """
        A request of another code between them keeps its place.
        """
        order: list[str] = []
        self.onCommit = lambda: order.append("commit")
        self.peer.dataReceived(frame(MANY, 1) + frame(NOW, 2) + frame(MANY, 3))
        self.other.dataReceived(frame(MANY, 4))
        self.turn.end()
        self.assertEqual(self.together, [[[1], [4]], [[3]]])
        self.assertEqual(order, ["commit"])
        self.assertEqual(sorted(self.opaques(self.wire)), [1, 2, 3])

    def test_requestThatIsLeftIsServedByTheRules(self) -> None:
        """
        A request at which C{processAll} stops is served alone, and those behind it are
        offered again.
        """
        self.stopAt = 2
        self.peer.dataReceived(b"".join(frame(MANY, each) for each in range(1, 5)))
        self.turn.end()
        self.assertEqual(self.single, [2])
        self.assertEqual(self.together, [[[1]], [[3, 4]]])
        self.assertEqual(sorted(self.opaques(self.wire)), [1, 2, 3, 4])

    def test_hookSeesEachRequest(self) -> None:
        """
        Where there are hooks, each request is served alone.
        """
        self.addHook()
        self.peer.dataReceived(frame(MANY, 1) + frame(MANY, 2))
        self.turn.end()
        self.assertEqual((self.single, self.together), ([1, 2], []))

    def addHook(self) -> None:
        """
        A hook that does nothing.
        """
        self.remoting.hooks.append(_Hook())

    def breakDown(self, before: Callable[[], object] = lambda: None) -> None:
        """
        Have C{processAll} break after it has served what it serves.

        @param before: called before it breaks.
        """

        def broken(calls: list[Call], starts: list[int]) -> None:
            self.many(calls, starts)
            before()
            raise ZeroDivisionError

        self.remoting.registerProcessor(
            MANY, BulkFunctionProcessor(self.one, broken), InlineExecutor()
        )

    def test_processAllRaisesNoRequestIsServedAgain(self) -> None:
        """
        If C{processAll} breaks, the requests that it has not served are answered
        SYSTEM_ERROR, those that it has served have their answer, and none is served again.
        """
        self.breakDown()
        self.stopAt = 2
        self.peer.dataReceived(b"".join(frame(MANY, each) for each in range(1, 4)))
        self.other.dataReceived(frame(MANY, 5))
        self.turn.end()
        codes = {each.opaque: each.code for each in self.wire.drain()}
        self.assertEqual(codes, {1: 0, 2: ResponseCode.SYSTEM_ERROR, 3: ResponseCode.SYSTEM_ERROR})
        self.assertEqual(self.opaques(self.otherWire), [5])
        self.assertEqual((self.single, self.together), ([], [[[1], [5]]]))
        # Once for all of them.
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_processAllRaisesOnewayAndResponseGetNoAnswer(self) -> None:
        """
        If C{processAll} breaks, a request that wants no answer gets none, nor does a
        response.
        """
        self.breakDown()
        self.stopAt = 1
        response = RemotingCommand(MANY, opaque=2, flag=RESPONSE_FLAG).encode()
        self.peer.dataReceived(frame(MANY, 1, flag=ONEWAY_FLAG) + response + frame(MANY, 3))
        self.turn.end()
        self.assertEqual(self.opaques(self.wire), [3])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_processAllRaisesPeerThatDoesNotReadIsNotServedLater(self) -> None:
        """
        If C{processAll} breaks, a peer that does not read gets its errors and is not served
        once it reads again.
        """
        self.breakDown(self.peer.outbox.pauseProducing)
        self.stopAt = 1
        self.peer.dataReceived(frame(MANY, 1) + frame(MANY, 2))
        self.turn.end()
        self.peer.outbox.resumeProducing()
        self.turn.end()
        codes = {each.opaque: each.code for each in self.wire.drain()}
        self.assertEqual(codes, dict.fromkeys((1, 2), int(ResponseCode.SYSTEM_ERROR)))
        self.assertEqual((self.single, self.together), ([], [[[]]]))
        self.flushLoggedErrors(ZeroDivisionError)

    def test_processAllRaisesBrokenFrameEndsTheConnection(self) -> None:
        """
        If C{processAll} breaks, a frame that cannot be decoded closes the connection, as it
        does elsewhere.
        """
        self.breakDown()
        self.stopAt = 1
        broken = bytearray(frame(MANY, 2))
        broken[-1:] = b"!"
        self.peer.dataReceived(frame(MANY, 1) + broken)
        self.turn.end()
        self.assertTrue(self.wire.disconnecting)
        self.flushLoggedErrors(ZeroDivisionError)

    def test_requestsThatWaitedAreServedBeforeNewOnes(self) -> None:
        """
        If a peer reads again in the turn in which it sends more, the requests that waited for
        it are served before the new ones.
        """
        self.peer.outbox.pauseProducing()
        self.peer.dataReceived(frame(MANY, 1) + frame(NOW, 2) + frame(MANY, 3))
        self.turn.end()
        self.peer.dataReceived(frame(MANY, 4))
        self.peer.outbox.resumeProducing()
        self.turn.end()
        self.assertEqual(self.together, [[[1]], [[3]], [[4]]])

    def test_requestsOfALostConnectionAreServed(self) -> None:
        """
        A peer that sends and leaves in one turn is served: its oneway messages count.
        """
        self.peer.dataReceived(frame(MANY, 1))
        lose(self.peer, ConnectionDone())
        self.assertEqual(self.together, [[[1]]])

    def test_answersBetweenTurnsAreWrittenTogether(self) -> None:
        """
        What timers and threads have written goes out with one write for each peer when the
        loop ends the turn.
        """
        self.peer.dataReceived(frame(LATER, 1) + frame(LATER, 2))
        self.turn.end()
        for each in self.promised:
            each.callback(responseCommand())
        self.assertEqual(self.wire.writes, [])
        self.assertTrue(self.turn.isOpen)
        self.turn.end()
        self.assertEqual(len(self.wire.writes), 1)
        self.assertFalse(self.turn.isOpen)

    def test_fullPeerIsServedWhenItReads(self) -> None:
        """
        Requests of a peer that does not read wait, with their code, until it does.
        """
        self.wire.capacity = 10
        self.peer.dataReceived(frame(NOW, 1))
        self.turn.end()
        self.peer.dataReceived(frame(MANY, 2))
        self.turn.end()
        self.assertEqual(self.together, [])
        self.assertEqual(self.opaques(self.wire), [1])
        self.turn.end()
        self.assertEqual(self.together, [[[2]]])

    @given(
        st.lists(
            st.lists(st.tuples(st.sampled_from([NOW, MANY]), st.integers(0, 50)), max_size=6),
            max_size=4,
        ),
        st.integers(0, 5),
    )
    def test_anyMixIsAnsweredOnce(self, sent: list[list[tuple[int, int]]], stopAt: int) -> None:
        """
        Whatever several peers send in one turn, each request is answered once.
        """
        self.setUp()
        self.stopAt = stopAt
        ends = [self.connect() for _ in sent]
        for (peer, _), requests in zip(ends, sent, strict=True):
            if requests:
                peer.dataReceived(b"".join(frame(code, opaque) for code, opaque in requests))
        self.turn.end()
        for (_, wire), requests in zip(ends, sent, strict=True):
            self.assertEqual(sorted(self.opaques(wire)), sorted(each for _, each in requests))


class GatherTests(TurnCase):
    """
    L{Turn.gather<txrocket.remoting.turn.Turn.gather>}, where no loop ends the turns.
    """

    def setUp(self) -> None:
        super().setUp()
        self.peer.dataReceived(b"".join(frame(LATER, each) for each in range(3)))
        self.other.dataReceived(frame(LATER, 9))
        self.turn.gather()

    def keep(self) -> None:
        """
        Keep all promises.
        """
        for each in self.promised:
            each.callback(responseCommand())

    def test_answersOfARoundAreWrittenTogether(self) -> None:
        """
        All that is written to a connection until the reactor's next round is written at once,
        in its order.
        """
        self.keep()
        self.assertEqual((self.wire.writes, self.otherWire.writes), ([], []))
        self.clock.advance(0)
        self.assertEqual((len(self.wire.writes), len(self.otherWire.writes)), (1, 1))
        self.assertEqual(self.opaques(self.wire), [0, 1, 2])
        self.assertEqual(self.opaques(self.otherWire), [9])

    def test_secondCallInARoundIsNothingNew(self) -> None:
        """
        However often it is called in a round, one timer ends the turn, and the next round is
        as usual.
        """
        self.turn.gather()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.keep()
        self.assertEqual(len(self.wire.writes), 3)

    def test_requestsAreGathered(self) -> None:
        """
        Requests of ours are gathered too.
        """
        self.peer.oneway(requestCommand(NOW))
        answer = self.peer.request(requestCommand(LATER), 1)
        self.assertEqual(self.wire.writes, [])
        self.clock.advance(0)
        self.assertEqual(len(decoded(self.wire.writes[0])), 2)
        self.clock.advance(1)
        self.failureResultOf(answer)

    def test_lostConnectionIsPassedOver(self) -> None:
        """
        A connection that is gone when the turn ends is passed over; others are not.
        """
        self.keep()
        lose(self.peer, ConnectionDone())
        self.clock.advance(0)
        self.assertEqual(self.wire.writes, [])
        self.assertEqual(len(self.otherWire.writes), 1)

    def test_closedConnectionGetsItsAnswersFirst(self) -> None:
        """
        A connection is closed after the answers that have gathered are written.
        """
        self.keep()
        self.peer.close()
        self.clock.advance(0)
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(self.opaques(self.wire), [0, 1, 2])

    def test_writtenInCommitGoesOutInTheSameTurn(self) -> None:
        """
        What a commit writes goes out before the turn has ended.
        """
        left = [requestCommand(NOW)]

        def commit() -> None:
            if left:
                self.other.oneway(left.pop())

        self.onCommit = commit
        self.promised[0].callback(responseCommand())
        self.clock.advance(0)
        self.assertEqual(len(self.otherWire.drain()), 1)


@implementer(IHook)
class _Hook:
    """
    See L{IHook<txrocket.remoting.interfaces.IHook>}.
    """

    def beforeRequest(self, address: str, request: RemotingCommand) -> None: ...

    def afterResponse(
        self, address: str, request: RemotingCommand, response: RemotingCommand
    ) -> None: ...
