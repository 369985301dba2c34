# SPDX-License-Identifier: Apache-2.0
"""
The examples run, over loopback; L{tests.test_clientexamples} has those of producers
and push consumers.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from twisted.internet import reactor as anyReactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from examples import (
    blocking,
    calling,
    consume,
    echo_client,
    first_message,
    key_values,
    pull,
    settings,
    stream,
    tls,
    transaction,
)
from tests import certificates
from tests.client.brokers import ConsumerTests
from tests.client.messages import HOST, pulled
from txrocket.blocking import Client
from txrocket.client import ConsumeLater, Consuming, IConsumeMessageHook, LocalTransactionState
from txrocket.client.cluster import Cluster
from txrocket.client.consumer.pull.litepull import LitePullConsumer
from txrocket.client.consumer.pull.pullconsumer import PullConsumer
from txrocket.client.producer.producer import Producer
from txrocket.errors import (
    ConfigError,
    ConnectFailed,
    NoPermission,
    RemotingError,
    RequestCodeNotSupported,
    RequestTimedOut,
    SendFailed,
    TopicExistAlready,
    responseError,
)
from txrocket.message import Message
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand, responseCommand
from txrocket.protocol.headers import (
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    SendMessageResponseHeader,
)
from txrocket.protocol.messageid import encodeMessageId
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.interfaces import Answer, Process
from txrocket.remoting.peers import Peers, endpoints
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import FunctionProcessor, Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.server import embedded
from txrocket.server.echo import echo
from txrocket.testing import ChildCluster
from txrocket.testing.clustersettings import freePort
from txrocket.testing.trial import realCluster

reactor: Any = anyReactor


def asDeferred(
    test: Callable[[Any], Coroutine[Deferred[Any], Any, None]],
) -> Callable[[Any], Deferred[None]]:
    """
    A test that is a coroutine.
    """

    def run(self: Any) -> Deferred[None]:
        return Deferred.fromCoroutine(test(self))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def serving(function: Process) -> Remoting:
    """
    A node that serves every code with one function.
    """
    remoting = Remoting(reactor)
    remoting.registerDefaultProcessor(FunctionProcessor(function), InlineExecutor())
    return remoting


class ExampleTests(TestCase):
    """
    Every example, against a server on a free port.
    """

    timeout = 300

    def setUp(self) -> None:
        self.peers = Peers(Remoting(reactor), endpoints(reactor))
        self.addCleanup(lambda: self.peers.stop())

    def listen(self, factory: RemotingServerFactory) -> str:
        """
        The address of a server that runs until the test is over.
        """
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(self.closed, port, factory)
        return f"127.0.0.1:{port.getHost().port}"

    async def _closed(self, port: Any, factory: RemotingServerFactory) -> None:
        lost = [each.whenLost() for each in factory.connections]
        await port.stopListening()
        for each in lost:
            await each

    def closed(self, port: Any, factory: RemotingServerFactory) -> Deferred[None]:
        """
        Stop listening, and wait for the connections to go.
        """
        return Deferred.fromCoroutine(self._closed(port, factory))

    @asDeferred
    async def test_echoClientPrintsAnswer(self) -> None:
        """
        The echo client prints its request and the answer.
        """
        address = self.listen(RemotingServerFactory(serving(echo)))
        printed = io.StringIO()
        self.patch(sys, "stdout", printed)
        await echo_client.ask(reactor, address)
        self.assertEqual(
            [line.partition(" ")[0] for line in printed.getvalue().splitlines()],
            ["sent", "received", "header", "body"],
        )
        self.assertIn("b'hello'", printed.getvalue())

    @asDeferred
    async def test_firstMessageGoesThroughBothServers(self) -> None:
        """
        A message goes through both servers and back, request by request.
        """
        options = embedded.Options()
        options.parseOptions(
            [
                *("--data", self.mktemp(), "--namesrvPort", str(freePort("127.0.0.1"))),
                *("--set", f"listenPort={freePort('127.0.0.1', (2, -1))}"),
            ]
        )
        servers = embedded.makeService(options)
        servers.startService()
        self.addCleanup(servers.stopService)
        (_, broker) = servers
        await broker.whenAnnounced()
        printed = io.StringIO()
        self.patch(sys, "stdout", printed)
        await first_message.sendAndPull(reactor, f"127.0.0.1:{options['namesrvPort']}")
        sent, pulled = printed.getvalue().splitlines()
        self.assertRegex(sent, r"^sent to 127\.0\.0\.1:\d+, queue 0, offset 0$")
        self.assertEqual(pulled, "pulled b'hello', tagged english")

    @asDeferred
    async def test_missingKeyIsNoFailure(self) -> None:
        """
        A put value is returned, a missing one is told apart from a failure, and other codes
        are not supported.
        """
        address = self.listen(RemotingServerFactory(key_values.keyValueServer(reactor)))
        await calling.put(self.peers, address, "hello", "world")
        self.assertEqual(await calling.get(self.peers, address, "hello"), "world")
        self.assertIsNone(await calling.get(self.peers, address, "nothing"))
        response = await self.peers.request(address, requestCommand(RequestCode.HEART_BEAT), 3.0)
        self.assertEqual(response.code, RequestCodeNotSupported.code)

    @asDeferred
    async def test_blockingProcessorAnswersFromThread(self) -> None:
        """
        A processor that blocks answers from a thread.
        """
        address = self.listen(RemotingServerFactory(key_values.keyValueServer(reactor)))
        header = GetKVListByNamespaceRequestHeader(namespace="salt")
        request = requestCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, header, b"secret")
        response = await self.peers.request(address, request, 3.0)
        self.assertEqual(response.body, hashlib.scrypt(b"secret", salt=b"salt", n=2, r=8, p=1))

    @asDeferred
    async def test_hookCountsAndRefuses(self) -> None:
        """
        A hook counts what is answered and refuses what it must.
        """
        remoting = key_values.keyValueServer(reactor)
        (visitors,) = remoting.hooks
        address = self.listen(RemotingServerFactory(remoting))
        header = GetKVListByNamespaceRequestHeader(namespace="_private")
        request = requestCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        response = await self.peers.request(address, request, 3.0)
        self.assertEqual(response.code, NoPermission.code)
        await calling.put(self.peers, address, "a", "b")
        await calling.put(self.peers, address, "a", "c")
        assert isinstance(visitors, key_values.Visitors)
        self.assertEqual(visitors.served[RequestCode.PUT_KV_CONFIG], 2)

    @asDeferred
    async def test_promisedAnswerComesLater(self) -> None:
        """
        A promised answer comes when it is there.
        """
        first = key_values.FirstValue()
        asked: Deferred[None] = Deferred()

        def process(request: RemotingCommand, peer: RemotingProtocol) -> Answer:
            promise = first.process(request, peer)
            asked.callback(None)
            return promise

        address = self.listen(RemotingServerFactory(serving(process)))
        answer = self.peers.request(address, requestCommand(RequestCode.GET_KV_CONFIG), 3.0)
        await asked
        self.assertNoResult(answer)
        first.arrived("news")
        response = await answer
        self.assertEqual(response.decodeHeader(GetKVConfigResponseHeader).value, "news")

    def test_cancelledPromiseIsForgotten(self) -> None:
        """
        A promise that is cancelled, as when the connection is lost, is forgotten.
        """
        first = key_values.FirstValue()
        promise = first.process(
            requestCommand(0), RemotingProtocol(Remoting(Clock()), accepted=True)
        )
        assert isinstance(promise, Deferred)
        promise.cancel()
        first.arrived("too late")
        self.failureResultOf(promise)

    @asDeferred
    async def test_unreachablePeerIsSkipped(self) -> None:
        """
        A peer that cannot be reached is passed over; an answer that will not
        change, and having no peer at all, is raised.
        """
        port = reactor.listenTCP(0, RemotingServerFactory(serving(echo)), interface="127.0.0.1")
        dead = f"127.0.0.1:{port.getHost().port}"
        await port.stopListening()
        alive = self.listen(RemotingServerFactory(key_values.keyValueServer(reactor)))

        def refuse(request: RemotingCommand, peer: RemotingProtocol) -> Answer:
            raise TopicExistAlready("no")

        final = self.listen(RemotingServerFactory(serving(refuse)))
        await calling.put(self.peers, alive, "k", "v")
        self.assertEqual(await calling.getAnywhere(self.peers, [dead, alive], "k"), "v")
        for addresses, error in (([final, alive], TopicExistAlready), ([dead], ConnectFailed)):
            with self.assertRaises(error):
                await calling.getAnywhere(self.peers, addresses, "k")

    @asDeferred
    async def test_onewayRequestArrives(self) -> None:
        """
        A oneway request arrives.
        """
        heard: Deferred[RemotingCommand] = Deferred()

        def hear(request: RemotingCommand, peer: RemotingProtocol) -> Answer:
            heard.callback(request)
            return None

        address = self.listen(RemotingServerFactory(serving(hear)))
        await calling.tell(self.peers, address, "group")
        request = await heard
        self.assertTrue(request.isOneway)
        self.assertEqual(request.extFields, {"consumerGroup": "group"})

    @asDeferred
    async def test_slowerPeerIsCancelled(self) -> None:
        """
        Of two that are asked, one never answers; the other's answer counts, and
        nothing is left to wait for.
        """
        silent = self.listen(RemotingServerFactory(serving(lambda request, peer: None)))
        ready = self.listen(RemotingServerFactory(serving(echo)))
        first = await calling.firstOf(self.peers, [silent, ready], RequestCode.HEART_BEAT)
        self.assertEqual(first, ready)
        connection = await self.peers.connection(silent)
        self.assertEqual(len(connection.responseTable), 0)

    @asDeferred
    async def test_serverCallsItsClient(self) -> None:
        """
        A server calls its client over the connection that the client opened.
        """
        address = self.listen(RemotingServerFactory(serving(calling.runningInfo)))
        client = serving(lambda request, peer: responseCommand(body=b"running"))
        peers = Peers(client, endpoints(reactor))
        self.addCleanup(peers.stop)
        response = await peers.request(address, requestCommand(RequestCode.HEART_BEAT), 3.0)
        self.assertEqual(response.body, b"running")

    @asDeferred
    async def test_timeoutFollowsClock(self) -> None:
        """
        Time is the clock that L{Remoting} was given.
        """
        address = self.listen(RemotingServerFactory(serving(lambda request, peer: None)))
        clock = Clock()
        peers = Peers(Remoting(clock), endpoints(reactor))
        self.addCleanup(peers.stop)
        await peers.connection(address)
        answer = peers.request(address, requestCommand(RequestCode.HEART_BEAT), timeout=3.0)
        clock.advance(2.9)
        self.assertNoResult(answer)
        clock.advance(0.1)
        error = self.failureResultOf(answer, RequestTimedOut).value
        self.assertTrue(error.retriable)

    @asDeferred
    async def test_peerWithoutCertificateIsRefused(self) -> None:
        """
        Both ends show certificates and are believed; a client without one, or
        in plain text, is not.
        """
        folder = self.mktemp()
        certificates.write(Path(folder))
        address = self.listen(tls.secureServer(serving(echo), folder))
        address = address.replace("127.0.0.1", "localhost")
        peers = tls.securePeers(reactor, Remoting(reactor), folder)
        self.addCleanup(peers.stop)
        response = await peers.request(address, requestCommand(0, body=b"secret"), 3.0)
        self.assertEqual(response.body, b"secret")
        with self.assertRaises(RemotingError):
            await self.peers.request(address, requestCommand(0), 3.0)

    def test_errorHasClassOfCode(self) -> None:
        """
        The error for a code has the code's class.
        """
        self.assertIsInstance(responseError(NoPermission.code, "no", "a:1"), NoPermission)


class SettingsTests(TestCase):
    """
    Tests for L{examples.settings}.
    """

    def test_changedSettingIsFollowed(self) -> None:
        """
        The section is read from a file and from options; a change reaches its follower and
        the file, and a wrong setting is named.
        """
        path = Path(self.mktemp())
        path.write_text("# The lamp\nlampName = door\nlampColour = RED\n")
        configuration = settings.readLamp(str(path), {"lamp.blink.millis": "250"})
        expected = settings.LampSettings("door", settings.Colour.RED, 250)
        self.assertEqual(configuration[settings.LampSettings], expected)
        (told,) = settings.paint(configuration, "green", 1)
        self.assertEqual(told, settings.LampSettings("door", settings.Colour.GREEN, 250))
        self.assertEqual(path.read_text(), "# The lamp\nlampName = door\nlampColour = GREEN\n")
        error = self.assertRaises(ConfigError, settings.paint, configuration, "blue", 2)
        self.assertEqual(str(error), "lampColour=blue: RED or GREEN was expected")


class ClientCase(TestCase):
    """
    Both servers, with messages.
    """

    timeout = 300

    async def start(self) -> Cluster:
        """
        Start the servers, and send a message to each of four queues.
        """
        servers = await realCluster(self, reactor)
        self.address = servers.nameServers[0]
        cluster = Cluster(self.address, reactor)
        self.addCleanup(cluster.stop)
        self.producer = Producer(cluster, timeout=60.0)
        await self.producer.start()
        self.addCleanup(self.producer.stop)
        for body in b"one", b"two", b"three", b"four":
            await self.producer.send(Message("Greetings", body, "english"))
        self.printed = io.StringIO()
        self.patch(sys, "stdout", self.printed)
        return cluster


class PullingTests(ClientCase):
    """
    The examples of pull consumers.
    """

    @asDeferred
    async def test_pulledMessagesAreCommitted(self) -> None:
        """
        All messages are pulled, and none of them the next time.
        """
        await self.start()
        await pull.main(reactor, self.address, "Greetings")
        *lines, last = self.printed.getvalue().splitlines()
        self.assertEqual(
            sorted(line.partition(": ")[2] for line in lines),
            ["b'four'", "b'one'", "b'three'", "b'two'"],
        )
        self.assertEqual(last, "4 messages")
        await pull.main(reactor, self.address, "Greetings")
        self.assertEqual(self.printed.getvalue().splitlines()[-1], "0 messages")

    @asDeferred
    async def test_nextMessageIsPulled(self) -> None:
        """
        The message that comes is the next.
        """
        cluster = await self.start()
        async with PullConsumer(cluster, "next") as consumer:
            queue = (await consumer.queuesOf("Greetings"))[0]
            waiting = Deferred.fromCoroutine(pull.pullNext(consumer, queue))
            # Its end is asked for before the message is sent.
            await consumer.maxOffset(queue)
            await self.producer.send(Message("Greetings", b"next"), queue)
            self.assertEqual(await waiting, b"next")

    @asDeferred
    async def test_everyQueueIsVisited(self) -> None:
        """
        Each queue is visited.
        """
        cluster = await self.start()
        seen: Deferred[None] = Deferred()

        class Printed(io.StringIO):
            def write(self, text: str) -> int:
                count = super().write(text)
                if self.getvalue().count("\n") == 4 and not seen.called:
                    seen.callback(None)
                return count

        self.patch(sys, "stdout", Printed())
        async with pull.scheduled(cluster, "Greetings"):
            await seen

    @asDeferred
    async def test_streamEndsWithGoodbye(self) -> None:
        """
        Messages of the tags that are wanted are read, until one says goodbye.
        """
        await self.start()
        await self.producer.send(Message("Greetings", b"salut", "french"))
        await self.producer.send(Message("Greetings", b"hallo", "german"))
        reading = Deferred.fromCoroutine(stream.main(reactor, self.address, "Greetings"))
        await self.producer.send(Message("Greetings", b"goodbye", "english"))
        await reading
        lines = self.printed.getvalue().splitlines()
        self.assertIn("english: b'goodbye'", lines)
        self.assertNotIn("french: b'salut'", lines)

    @asDeferred
    async def test_readBatchesAreCommitted(self) -> None:
        """
        Batches that were read are committed.
        """
        cluster = await self.start()
        async with LitePullConsumer(cluster, "batches", autoCommit=False) as consumer:
            queues = await consumer.queuesOf("Greetings")
            consumer.assign(queues)
            for queue in queues:
                await consumer.seekToBegin(queue)
            bodies = await stream.readInBatches(consumer, 4)
            self.assertEqual(sorted(bodies), [b"four", b"one", b"three", b"two"])
            committed = [await consumer.committed(queue) for queue in queues]
            self.assertEqual(sum(each or 0 for each in committed), 4)

    @asDeferred
    async def test_messagesSinceTimeAreReadAgain(self) -> None:
        """
        Messages since a time are read again.
        """
        cluster = await self.start()
        bodies = await stream.replay(cluster, "Greetings", 0.0)
        self.assertEqual(sorted(bodies), [b"four", b"one", b"three", b"two"])


class ConsumingTests(ClientCase):
    """
    The examples of push consumers.
    """

    @asDeferred
    async def test_consumerEndsWithGoodbye(self) -> None:
        """
        Messages of the tags that are wanted come, until one says goodbye.
        """
        await self.start()
        await self.producer.send(Message("Greetings", b"salut", "french"))
        await self.producer.send(Message("Greetings", b"hallo", "german"))
        consuming = Deferred.fromCoroutine(consume.main(reactor, self.address, "Greetings"))
        await self.producer.send(Message("Greetings", b"goodbye", "english"))
        await consuming
        lines = self.printed.getvalue().splitlines()
        self.assertIn("english: b'goodbye'", lines)
        self.assertNotIn("french: b'salut'", lines)

    def test_failedDeliveryIsRetried(self) -> None:
        """
        A message that cannot be delivered now comes again, and one that never can does not.
        """
        self.patch(sys, "stdout", io.StringIO())
        for tags, times, expected in (
            ("english", 0, ConsumeLater(delayLevel=2)),
            ("english", 1, None),
            ("french", 1, ConsumeLater(delayLevel=-1)),
        ):
            self.assertEqual(consume.deliver(pulled(0, times=times, TAGS=tags)), expected)

    @asDeferred
    async def test_allMessagesAreArchived(self) -> None:
        """
        All messages are in the file.
        """
        cluster = await self.start()
        path = Path(self.mktemp())
        async with consume.archiving(cluster, "Greetings", path):
            while not path.exists() or path.read_bytes().count(b"\n") < 4:
                await deferLater(reactor, 0.01)
        self.assertEqual(sorted(path.read_bytes().split()), [b"four", b"one", b"three", b"two"])

    def test_hookKnowsSlowestCall(self) -> None:
        """
        The hook knows the call that took longest.
        """
        slowest = consume.Slowest()
        verifyObject(IConsumeMessageHook, slowest)
        calls = []
        for began, ended in ((1.0, 2.0), (1.0, 4.0), (2.0, 3.0)):
            call = Consuming("greeters", [pulled(0)], began)
            slowest.beforeConsume(call)
            call.ended = ended
            slowest.afterConsume(call)
            calls.append(call)
        self.assertIs(slowest.call, calls[1])
        self.assertEqual(slowest.seconds, 3.0)

    def test_fullDiskBringsRestAgain(self) -> None:
        """
        Messages that the file does not take come again, and those that it has taken do not.
        """

        class Full(io.BytesIO):
            def write(self, data: Any) -> int:
                if self.tell() > 5:
                    raise OSError("full")
                return super().write(data)

        path = Path("unused")
        self.patch(Path, "open", lambda path, mode: Full())
        later = consume.archiver(path)([pulled(0), pulled(1), pulled(2), pulled(3)])
        self.assertEqual(later, ConsumeLater(done=2))


class TransactionTests(ConsumerTests):
    """
    The check of the example of transactions; the broker is played by the test.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ns.routes["Transfers"] = self.ns.routes["T"]
        self.addCleanup(self.cluster.stop)
        self.a.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: responseCommand(
            header=SendMessageResponseHeader(encodeMessageId(HOST, 1), 0, 2)
        )

    def test_checkKnowsTransfers(self) -> None:
        """
        Asked about a transfer, the bank knows those that were made.
        """
        bank = transaction.Bank(self.cluster, ":memory:")
        bank.open("alice", 100)
        bank.open("bob", 0)
        self.got(bank.producer.start())
        result = self.got(Deferred.fromCoroutine(bank.move("alice", "bob", 1)))
        self.got(bank.producer.stop())
        for known, state in (
            (result.sendResult.msgId, LocalTransactionState.COMMIT_MESSAGE),
            ("other", LocalTransactionState.UNKNOW),
        ):
            self.assertIs(bank.check(pulled(0, UNIQ_KEY=known)), state)


class BlockingTests(SynchronousTestCase):
    """
    Tests for L{examples.blocking}.
    """

    def setUp(self) -> None:
        self.cluster = ChildCluster()
        self.addCleanup(self.cluster.stop)
        self.cluster.start()
        self.printed = io.StringIO()
        self.patch(sys, "stdout", self.printed)

    def test_sentMessagesAreCounted(self) -> None:
        """
        Sent messages are read once, and counted by other processes.
        """
        (address,) = self.cluster.nameServers
        for total in (3, 6):
            blocking.main(address)
            *orders, last = self.printed.getvalue().splitlines()
            sent, read = orders[:3], orders[3:]
            self.assertEqual(sent, ["ann tea: SEND_OK", "bob coffee: SEND_OK", "ann cake: SEND_OK"])
            names = [line.partition(", stored at ")[0] for line in read]
            self.assertEqual(sorted(names), ["ann cake", "ann tea", "bob coffee"])
            # Those of one customer are in one queue, and come in their order.
            self.assertLess(names.index("ann tea"), names.index("ann cake"))
            self.assertEqual(last, f"{total} orders in all")
            self.printed.seek(0)
            self.printed.truncate()

    def test_failedSendIsReported(self) -> None:
        """
        A message that is not sent is reported.
        """
        said = io.StringIO()
        self.patch(sys, "stderr", said)
        with Client(self.cluster.nameServers) as client:
            client.createTopic("Orders", 1, perm=4)
            self.assertRaises(SendFailed, blocking.send, client, "Orders", ["ann tea"])
        self.assertIn("ann tea: route, ", said.getvalue())
