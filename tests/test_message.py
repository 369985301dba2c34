# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.message}.
"""

from __future__ import annotations

import pickle
from typing import Any

import attrs
import msgspec
from twisted.trial.unittest import SynchronousTestCase

from txrocket import message
from txrocket.errors import InvalidMessage
from txrocket.message import Message, MessageExt, decodeHost, splitProperties

LOCAL = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def makeExt(properties: bytes = b"", **changes: object) -> MessageExt:
    """
    A message as a consumer receives it.
    """
    message = MessageExt("T", b"body", 0, properties, 1, 2, 3, 0, 4, LOCAL, 5, LOCAL, 0, 0, 6, 100)
    return msgspec.structs.replace(message, **changes)


class PropertiesTests(SynchronousTestCase):
    """
    Properties as text.
    """

    def test_propertiesAreSplitAsInJava(self) -> None:
        """
        Text is split as by C{MessageDecoder.string2messageProperties}, which printed
        these expectations.
        """
        for text, expected in (
            ("", {}),
            ("a\x01b\x02", {"a": "b"}),
            ("a\x01b", {"a": "b"}),
            ("\x01b\x02", {}),
            ("a\x01\x02", {}),
            ("ab\x02", {}),
            ("abc", {}),
            ("a\x02b\x01c", {"b": "c"}),
            ("a\x01b\x01c\x02", {"a": "b\x01c"}),
            ("a\x01b\x02a\x01c\x02", {"a": "c"}),
            ("\x02\x02a\x01b", {"a": "b"}),
            ("a\x01\x02b\x01c", {"b": "c"}),
            ("\x01\x01\x01", {}),
            ("a\x01\x01", {"a": "\x01"}),
        ):
            self.assertEqual(splitProperties(text), expected, repr(text))

    def test_propertyNamesAreJavas(self) -> None:
        """
        The names are those of C{MessageConst}, with four of 5.x and one of ali-ons, each
        once, and each constant is named after its text.
        """
        names = {name: text for name, text in vars(message).items() if name.startswith("PROPERTY_")}
        self.assertEqual(len(names), 40)
        for name, text in names.items():
            self.assertEqual(name, "PROPERTY_" + text)


class MessageTests(SynchronousTestCase):
    """
    A message to send.
    """

    def test_plainMessageHasNoProperties(self) -> None:
        """
        Without arguments there are no properties, and the defaults are Java's.
        """
        message = Message("T", b"x")
        self.assertEqual((message.flag, message.properties), (0, {}))
        self.assertEqual((message.tags, message.keys), (None, []))
        self.assertEqual((message.delayTimeLevel, message.waitStoreMsgOK), (0, True))

    def test_argumentsBecomeProperties(self) -> None:
        """
        Tags, keys, delay level and waiting are properties under RocketMQ's names.
        """
        message = Message(
            "T", b"x", "A", ["k1", "k2"], delayTimeLevel=3, waitStoreMsgOK=False,
            properties={"own": "1", "TAGS": "other"},
        )  # fmt: skip
        self.assertEqual(
            message.properties,
            {"own": "1", "TAGS": "A", "KEYS": "k1 k2", "DELAY": "3", "WAIT": "false"},
        )
        self.assertEqual((message.tags, message.keys), ("A", ["k1", "k2"]))
        self.assertEqual((message.delayTimeLevel, message.waitStoreMsgOK), (3, False))
        self.assertEqual(Message("T", b"", keys="k1 k2").keys, ["k1", "k2"])

    def test_deliveryTimeReplacesOtherTimes(self) -> None:
        """
        A delay and a time are properties under 5.x's names, and replace others that would
        count before them. Only one of them can be given.
        """
        others = {"TIMER_DELAY_SEC": "7", "__STARTDELIVERTIME": "8", "own": "1"}
        self.assertEqual(
            Message("T", b"", delayTimeMs=1500, properties=others).properties,
            {"own": "1", "TIMER_DELAY_MS": "1500"},
        )
        self.assertEqual(
            Message("T", b"", deliverTimeMs=1700000000000, properties=others).properties,
            {"own": "1", "TIMER_DELIVER_MS": "1700000000000"},
        )
        self.assertEqual(Message("T", b"", properties=others).properties, others)
        bad: Any
        for bad in (
            {"delayTimeMs": 1, "deliverTimeMs": 1},
            {"delayTimeLevel": 1, "delayTimeMs": 1},
            {"delayTimeLevel": 1, "deliverTimeMs": 1},
        ):
            with self.assertRaisesRegex(InvalidMessage, "only one of delayTimeLevel"):
                Message("T", b"", **bad)

    def test_messageIsAValue(self) -> None:
        """
        A message is frozen, equal to one with the same values, and independent of the
        mapping that it was made from.
        """
        given = {"a": "b"}
        message = Message("T", b"x", properties=given)
        given["a"] = "c"
        self.assertEqual(message, Message("T", b"x", properties={"a": "b"}))
        self.assertEqual(hash(message), hash(Message("T", b"x", properties={"a": "b"})))
        self.assertRaises(attrs.exceptions.FrozenInstanceError, setattr, message, "topic", "U")
        changed = attrs.evolve(message, topic="U")
        self.assertEqual((changed.topic, changed.properties), ("U", {"a": "b"}))

    def test_delayThatIsNotANumberIsRefused(self) -> None:
        """
        A peer's delay level that is not a number raises InvalidMessage.
        """
        for text in ("x", "", "9" * 10000):
            message = Message("T", b"", properties={"DELAY": text})
            self.assertRaises(InvalidMessage, lambda message=message: message.delayTimeLevel)


class MessageExtTests(SynchronousTestCase):
    """
    A received message.
    """

    def test_propertiesAreSplitOnce(self) -> None:
        """
        Properties are split once, and have the same attributes as those of a message to
        send.
        """
        message = makeExt(b"TAGS\x01A\x02KEYS\x01k1  k2\x02DELAY\x012\x02WAIT\x01False")
        self.assertIs(message.properties, message.properties)
        self.assertEqual((message.tags, message.keys), ("A", ["k1", "k2"]))
        self.assertEqual((message.delayTimeLevel, message.waitStoreMsgOK), (2, False))

    def test_copyWithOtherPropertiesSplitsAgain(self) -> None:
        """
        A copy with other properties does not have the cached ones.
        """
        message = makeExt(b"TAGS\x01A")
        self.assertEqual(message.tags, "A")
        self.assertEqual(msgspec.structs.replace(message, propertiesData=b"TAGS\x01B").tags, "B")
        self.assertEqual(msgspec.structs.replace(message, topic="U").tags, "A")

    def test_equalityIgnoresCache(self) -> None:
        """
        Equality compares the fields, whether or not properties have been accessed; a
        message can be pickled.
        """
        asked, fresh = makeExt(b"a\x01b"), makeExt(b"a\x01b")
        self.assertEqual(asked.properties, {"a": "b"})
        self.assertEqual(asked, fresh)
        self.assertFalse(asked != fresh)
        self.assertEqual(hash(asked), hash(fresh))
        self.assertNotEqual(asked, makeExt(b"a\x01b", queueId=9))
        self.assertNotEqual(asked, "a")
        self.assertFalse(asked == "a")
        self.assertEqual(pickle.loads(pickle.dumps(asked)), asked)
        self.assertRaises(AttributeError, setattr, asked, "topic", "U")

    def test_clientsIdComesFirst(self) -> None:
        """
        The client's id comes first, as in Java's C{MessageClientExt}; without one, the
        broker's.
        """
        offsetId = "7F00000100002A9F0000000000000003"
        self.assertEqual(makeExt().msgId, offsetId)
        message = makeExt(b"UNIQ_KEY\x01ABC")
        self.assertEqual((message.msgId, message.offsetMsgId), ("ABC", offsetId))

    def test_hostsAreDecoded(self) -> None:
        """
        Addresses are decoded from 8 or 20 bytes.
        """
        self.assertEqual(makeExt().bornHost, ("127.0.0.1", 10911))
        self.assertEqual(makeExt().storeHost, ("127.0.0.1", 10911))
        self.assertEqual(decodeHost(bytes(15) + b"\x01\x00\x00\x00\x50"), ("::1", 80))
