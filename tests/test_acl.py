# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.acl}.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.captures import captures
from txrocket.acl import Credentials, signature
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import rawRequest, requestCommand
from txrocket.protocol.headers import GetMaxOffsetRequestHeader


class SigningTests(SynchronousTestCase):
    """
    L{signature} and L{Credentials}.
    """

    # The result of 4.9.7's AclClientRPCHook for a request with these fields and this body.
    ACCOUNT = Credentials("rocketmq2", "秘密12345678")
    BODY = "bödy".encode()
    SIGNED = {
        "topic": "Topic名",
        "queueId": "3",
        "AccessKey": "rocketmq2",
        "Signature": "XJBhqWKDPRq0oeO0wJmxKjFfmnE=",
    }

    def test_capturedSignaturesAreEqual(self) -> None:
        """
        The signatures of RocketMQ's C++ client, whose account was empty, are ours.
        """
        signed = 0
        for each in captures():
            fields = each.header.get("extFields") or {}
            if "Signature" in fields:
                signed += 1
                texts = {name: str(value) for name, value in fields.items()}
                self.assertEqual(signature(texts, each.body, ""), fields["Signature"])
        self.assertEqual(signed, 22)

    def test_signatureIsJavas(self) -> None:
        """
        A request is signed as by Java's client, and a second signature is the same.
        """
        command = requestCommand(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("Topic名", 3), self.BODY
        )
        self.ACCOUNT.sign(command)
        self.assertEqual(command.extFields, self.SIGNED)
        self.ACCOUNT.sign(command)
        self.assertEqual(command.extFields, self.SIGNED)

    def test_rawFieldsAreSigned(self) -> None:
        """
        A request whose fields are already JSON is signed, and the signature is sent.
        """
        command = rawRequest(30, '{"topic":"Topic名","queueId":"3"}'.encode(), self.BODY)
        self.ACCOUNT.sign(command)
        self.assertEqual(command.extFields, self.SIGNED)
        self.assertIn(self.SIGNED["Signature"].encode(), command.encode())

    def test_secretIsNotShown(self) -> None:
        """
        The secret key is not in the repr.
        """
        self.assertNotIn("秘密", repr(self.ACCOUNT))
