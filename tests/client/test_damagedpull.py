# SPDX-License-Identifier: Apache-2.0
"""
Tests for consumers whose broker has damaged messages, and gives them.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.client.pushcase import PushTests
from txrocket.client.consumer.pull.litepull import LitePullConsumer
from txrocket.message import MessageExt
from txrocket.model import MessageQueue


class DamagedPullTests(PushTests):
    """
    Six messages in the first queue, of which some are damaged.
    """

    def setUp(self) -> None:
        super().setUp()
        self.a.put(*(b"%d" % number for number in range(6)))
        self.seen: list[int] = []

    def damage(self, number: int, position: int, data: bytes) -> None:
        """
        Overwrite a part of a record.
        """
        tags, record = self.a.records["T", 0][number]
        changed = record[:position] + data + record[position + len(data) :]
        self.a.records["T", 0][number] = tags, changed

    def listen(self, message: MessageExt) -> None:
        """
        Be done with a message at once.
        """
        self.seen.append(message.queueOffset)

    def check(self, expected: list[int], damages: int = 1, **options: bool) -> None:
        """
        A push consumer gets all sound messages once, and its group comes to the end.
        """
        consumer = self.started(self.listen, **options)
        for _ in range(40):
            self.network.advance(1)
        self.assertEqual(self.seen, expected)
        self.assertEqual(consumer.unreadable, damages)
        self.assertEqual(consumer.runningInfo().properties["unreadableMessages"], str(damages))
        # The pull is made once, and the next ones begin behind it.
        asked = [each.queueOffset for each in self.a.pulls if each.queueId == 0]
        self.assertEqual(asked, [0] + [6] * (len(asked) - 1))
        told = self.said("cannot be read and are passed over", LogLevel.error)
        self.assertEqual(len(told), 1)
        self.a.put(b"6")
        self.network.flush()
        self.got(self.stop(consumer))
        self.assertEqual(self.seen, [*expected, 6])
        committed = self.updates()
        self.assertEqual(committed[-1], 7)
        self.assertTrue(all(each <= 7 for each in committed), committed)

    def test_flippedQueueOffsetSkipsNothing(self) -> None:
        """
        A flipped bit in a message's queue offset costs that message only, and no offset is
        committed that the broker did not give.
        """
        self.damage(2, 25, b"\x10")
        self.check([0, 1, 3, 4, 5])

    def test_zerosDoNotStall(self) -> None:
        """
        Zeros across two messages cost those two, and the queue goes on.
        """
        self.damage(2, 60, bytes(200))
        self.damage(3, 0, bytes(30))
        self.check([0, 1, 4, 5])

    def test_damagedLastMessageIsPassed(self) -> None:
        """
        A group reaches the end of its queue even if the last message is damaged.
        """
        self.damage(5, 0, bytes(100))
        self.check([0, 1, 2, 3, 4])

    def test_unreadablePullLeadsOn(self) -> None:
        """
        A pull without a readable message leads on as any other.
        """
        for number in range(6):
            self.damage(number, 88, b"!")
        self.check([], 6)

    def test_orderlyConsumerPassesDamage(self) -> None:
        """
        A consumer in order passes over damage as well.
        """
        self.damage(2, 25, b"\x10")
        self.check([0, 1, 3, 4, 5], orderly=True)

    def test_litePullConsumerPassesDamage(self) -> None:
        """
        A lite pull consumer passes over damage as well, and commits the offset that the
        broker gave.
        """
        self.damage(2, 25, b"\x10")
        self.damage(5, 0, bytes(100))
        consumer = LitePullConsumer(self.cluster, "L")
        consumer.assign([MessageQueue("T", "a", 0)])
        self.got(consumer.start())
        self.addCleanup(consumer.stop)
        self.got(consumer.seekToBegin(MessageQueue("T", "a", 0)))
        messages = self.got(consumer.poll())
        self.assertEqual([each.queueOffset for each in messages], [0, 1, 3, 4])
        self.got(consumer.commit())
        self.assertEqual(self.a.updates[-1], (0, 6))
        self.assertEqual(consumer.unreadable, 2)

    def test_brokerThatDoesNotLeadOnIsAskedLater(self) -> None:
        """
        An answer with messages that says to begin where the pull began is not followed at
        once, and not for ever without a word.
        """
        answer = self.a.answerPull

        def stuck(code: int, following: int, *rest: object) -> object:
            return answer(code, 0 if code == 0 else following, *rest)  # type: ignore[arg-type]

        self.patch(self.a, "answerPull", stuck)
        self.started(self.listen)
        self.network.advance(2.9)
        self.assertEqual(len([each for each in self.a.pulls if each.queueId == 0]), 1)
        self.network.advance(0.2)
        self.assertEqual(len([each for each in self.a.pulls if each.queueId == 0]), 2)
        self.assertEqual(self.seen, [])
        self.assertEqual(len(self.said("could not be pulled, trying again", LogLevel.warn)), 1)
