# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.protocol.command} and L{txrocket.protocol.fields}: what is
refused, and how.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from txrocket.errors import InvalidMessage, MalformedField, MalformedHeader
from txrocket.protocol.command import RemotingCommand, decodeCommand
from txrocket.protocol.fields import headerFromFields
from txrocket.protocol.headers import CreateTopicRequestHeader, DeleteTopicRequestHeader


def jsonCommand(header: bytes) -> RemotingCommand:
    """
    The command whose JSON header is this text.
    """
    data = len(header).to_bytes(4, "big") + header
    return decodeCommand(data, 0, len(data))


class JsonTests(SynchronousTestCase):
    """
    JSON headers that are not as they should be.
    """

    def test_notUtf8(self) -> None:
        """
        Text that is not UTF-8 is a malformed header: at once in a member of the
        command, when they are looked at in its fields.
        """
        self.assertRaises(MalformedHeader, jsonCommand, b'{"remark":"\xff"}')
        for fields in (b'{"topic":"\xff"}', b'{"\xff":"T"}', b'{"\xff":1}'):
            command = jsonCommand(b'{"extFields":%b}' % fields)
            with self.assertRaises(MalformedHeader):
                command.decodeHeader(DeleteTopicRequestHeader)
            with self.assertRaises(MalformedHeader):
                command.extFields  # noqa: B018

    def test_emptyFieldsAreKept(self) -> None:
        """
        A command that came with an empty map of fields is sent on with it, even
        after somebody looked into the map; one that came without stays without.
        """
        for fields in (b'"extFields":{},', b""):
            header = (
                b'{"code":0,%b"flag":1,"language":"JAVA","opaque":3,'
                b'"serializeTypeCurrentRPC":"JSON","version":407}' % fields
            )
            command = jsonCommand(header)
            self.assertEqual(command.extFields, {})
            self.assertEqual(command.encode()[8:], header)


class UnsendableTests(SynchronousTestCase):
    """
    Commands that cannot be written.
    """

    def test_halfASurrogatePair(self) -> None:
        """
        Text that has no UTF-8 form is refused as a message that cannot be sent,
        wherever it stands and in both forms.
        """
        for form in (0, 1):
            for command in (
                RemotingCommand(remark="\ud800", serializeType=form),
                RemotingCommand(fields={"a": "\ud800"}, serializeType=form),
                RemotingCommand(fields={"\ud800": "a"}, serializeType=form),
            ):
                self.assertRaises(InvalidMessage, command.encode)

    def test_numberOutOfRange(self) -> None:
        """
        A number that neither form can hold is refused in the same way.
        """
        for form in (0, 1):
            command = RemotingCommand(opaque=2**64, serializeType=form)
            self.assertRaises(InvalidMessage, command.encode)


class NamingTests(SynchronousTestCase):
    """
    What an error says.
    """

    def test_valueThatLooksLikeTheReason(self) -> None:
        """
        The field that an error names is the one at fault, not one that a peer
        wrote into its value.
        """
        fields = {
            "topic": "T",
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "Object missing required field `perm`",
        }
        error = self.assertRaises(
            MalformedField, headerFromFields, CreateTopicRequestHeader, fields
        )
        self.assertEqual(error.field, "topicFilterType")
