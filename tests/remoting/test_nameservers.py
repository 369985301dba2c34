# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.remoting.nameservers}.
"""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel

from tests.remoting.doubles import RemotingTests
from txrocket.errors import ConnectFailed, InvalidMessage, RequestTimedOut
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.remoting.nameservers import NameServers
from txrocket.remoting.peers import Peers

A, B, C = "a:9876", "b:9876", "c:9876"


class FakePeers:
    """
    Peers that write down who is asked.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.answers: list[Deferred[RemotingCommand]] = []
        self.forgotten: list[str] = []
        self.down: set[str] = set()

    def pausing(self, address: str) -> bool:
        return address in self.down

    def request(
        self, address: str, command: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        self.asked.append((address, timeout))
        self.answers.append(Deferred())
        return self.answers[-1]

    def forget(self, address: str) -> None:
        self.forgotten.append(address)

    def fail(self) -> None:
        """
        The one that was asked last gives no answer.
        """
        address, _timeout = self.asked[-1]
        self.answers[-1].errback(RequestTimedOut(address, f"{address} did not answer"))

    def answer(self) -> None:
        """
        The one that was asked last answers.
        """
        self.answers[-1].callback(responseCommand(17))


class NameServersTests(RemotingTests):
    """
    A list of name servers.
    """

    def setUp(self) -> None:
        super().setUp()
        self.peers = FakePeers()
        self.servers = NameServers(cast(Peers, self.peers), [A, B, C], lambda below: below - 2)

    def request(self) -> Deferred[RemotingCommand]:
        """
        Ask for a route.
        """
        return self.servers.request(requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC), 3.0)

    def test_chosen(self) -> None:
        """
        Which one is asked first is chosen, so that clients spread.
        """
        self.assertEqual(self.servers.current, B)
        self.assertEqual(self.servers.addresses, (A, B, C))

    def test_sticks(self) -> None:
        """
        Whatever the answer's code, the one that answers is asked again.
        """
        for _ in range(3):
            pending = self.request()
            self.peers.answer()
            self.assertEqual(self.successResultOf(pending).code, 17)
        self.assertEqual(self.peers.asked, [(B, 3.0)] * 3)

    def test_rotates(self) -> None:
        """
        If one gives no answer the next is asked, around the end of the list,
        with a warning; and the one that answers is asked first from then on.
        """
        pending = self.request()
        self.peers.fail()
        self.peers.fail()
        self.peers.answer()
        self.successResultOf(pending)
        self.request()
        self.assertEqual([address for address, _ in self.peers.asked], [B, C, A, A])
        first, second = self.logged(LogLevel.warn)
        self.assertIn(f"Name server {B} gives no answer, asking {C}", first)
        self.assertIn(f"Name server {C} gives no answer, asking {A}", second)

    def test_onceEach(self) -> None:
        """
        Each is asked once per request; then it fails with the last one's error.
        """
        pending = self.request()
        for _ in range(3):
            self.peers.fail()
        error = self.failureResultOf(pending, RequestTimedOut).value
        self.assertEqual(error.address, A)
        self.assertEqual([address for address, _ in self.peers.asked], [B, C, A])

    def test_ownMistake(self) -> None:
        """
        A request that no server would get is not tried at the others.
        """
        pending = self.request()
        self.peers.answers[0].errback(InvalidMessage("too long"))
        self.failureResultOf(pending, InvalidMessage)
        self.assertEqual((len(self.peers.asked), self.servers.current), (1, B))

    def test_oneMovesAll(self) -> None:
        """
        Requests that fail at the same server move on by one, not by one each.
        """
        first, second = self.request(), self.request()
        for n in range(2):
            self.peers.answers[n].errback(RequestTimedOut(B, "no answer"))
        self.assertEqual([address for address, _ in self.peers.asked], [B, B, C, C])
        for n in (2, 3):
            self.peers.answers[n].callback(responseCommand())
        self.successResultOf(first)
        self.successResultOf(second)
        self.assertEqual(self.servers.current, C)

    def test_overtaken(self) -> None:
        """
        A request asks all others even if a second one has gone once around
        meanwhile and found one that this request had asked before.
        """
        first = self.request()
        self.peers.fail()
        second = self.request()
        self.peers.fail()
        self.peers.fail()
        self.peers.answer()
        self.successResultOf(second)
        self.assertEqual([address for address, _ in self.peers.asked], [B, C, C, A, B])
        self.peers.answers[1].errback(RequestTimedOut(C, "no answer"))
        self.assertNoResult(first)
        self.assertEqual(self.peers.asked[-1][0], A)
        self.peers.answer()
        self.successResultOf(first)
        self.assertEqual(self.servers.current, B)

    def test_updateKeeps(self) -> None:
        """
        With a new list the server in use stays in use; those that are gone are
        forgotten, and repetitions do not count.
        """
        self.servers.update(["d:1", "d:1", A, B])
        self.assertEqual((self.servers.current, self.servers.addresses), (B, ("d:1", A, B)))
        self.assertEqual(self.peers.forgotten, [C])

    def test_updateReplaces(self) -> None:
        """
        If the server in use is gone, one of the new ones is chosen.
        """
        self.servers.update(["d:1", "e:1"])
        self.assertEqual(self.servers.current, "d:1")
        self.assertEqual(sorted(self.peers.forgotten), [A, B, C])

    def test_updateMeanwhile(self) -> None:
        """
        A request that fails because its server is gone from the list goes on
        with the new ones.
        """
        pending = self.request()
        self.servers.update(["d:1", "e:1"])
        self.peers.fail()
        self.peers.answer()
        self.successResultOf(pending)
        self.assertEqual(self.peers.asked[-1][0], "d:1")

    def test_empty(self) -> None:
        """
        Without name servers a request fails at once, and says why; also if they
        went away while one was asked.
        """
        pending = self.request()
        self.servers.update([])
        self.assertIsNone(self.servers.current)
        self.peers.fail()
        self.failureResultOf(pending, RequestTimedOut)
        error = self.failureResultOf(self.request(), ConnectFailed).value
        self.assertEqual(str(error), "GET_ROUTEINFO_BY_TOPIC (105): no name server is known")


def knows(answer: RemotingCommand) -> bool:
    """
    Whether an answer is that of a name server that knows the topic.
    """
    return answer.code == 0


class IgnorantTests(RemotingTests):
    """
    A name server that does not know what it is asked for.
    """

    def setUp(self) -> None:
        super().setUp()
        self.peers = FakePeers()
        self.servers = NameServers(cast(Peers, self.peers), [A, B, C], lambda below: 0)

    def request(self) -> Deferred[RemotingCommand]:
        """
        Ask for a route.
        """
        command = requestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        return self.servers.request(command, 3.0, knows)

    def answer(self, number: int, code: int) -> None:
        """
        Answer a request, by its number.
        """
        self.peers.answers[number].callback(responseCommand(code))

    def test_knowingOneAsked(self) -> None:
        """
        If the one in use does not know, all others are asked at once and for a short
        time; the first that knows answers, and is used from then on.
        """
        answer = self.request()
        self.answer(0, 17)
        self.assertEqual(self.peers.asked, [(A, 3.0), (B, 1.0), (C, 1.0)])
        self.assertNoResult(answer)
        self.answer(2, 0)
        self.assertEqual(self.successResultOf(answer).code, 0)
        self.assertEqual(self.servers.current, C)
        # Too late.
        self.answer(1, 17)
        self.assertEqual(self.servers.current, C)

    def test_noneKnows(self) -> None:
        """
        If none knows, or does not answer, the answer of the one in use counts, and it
        stays in use.
        """
        answer = self.request()
        self.answer(0, 17)
        self.answer(1, 17)
        self.peers.answers[2].errback(RequestTimedOut(C, "late"))
        self.assertEqual(self.successResultOf(answer).code, 17)
        self.assertEqual(self.servers.current, A)

    def test_downNotAsked(self) -> None:
        """
        One that is down is not asked: a producer of a new topic would wait for it.
        """
        self.peers.down = {B, C}
        answer = self.request()
        self.answer(0, 17)
        self.assertEqual(self.successResultOf(answer).code, 17)
        self.assertEqual(self.peers.asked, [(A, 3.0)])

    def test_failedNotAskedTwice(self) -> None:
        """
        One that gave no answer is not asked again for the same thing.
        """
        answer = self.request()
        self.peers.fail()
        self.answer(1, 17)
        self.assertEqual([each for each, _ in self.peers.asked], [A, B, C])
        self.answer(2, 17)
        self.assertEqual(self.successResultOf(answer).code, 17)
