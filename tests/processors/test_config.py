# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.processors.nameserver.config}.
"""

from __future__ import annotations

from twisted.logger import LogLevel

from tests.processors.namesrvcase import NameServerTests
from txrocket.model import DataVersion
from txrocket.nameserver.settings import NamesrvSettings
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.codes import RequestCode, ResponseCode
from txrocket.protocol.configtext import ConfigText


class NamesrvConfigTests(NameServerTests):
    """
    The name server's own settings.
    """

    def test_allSettingsAreReturned(self) -> None:
        """
        All settings are lines of text.
        """
        answer = self.ask(RequestCode.GET_NAMESRV_CONFIG)
        self.assertEqual(answer.code, 0)
        self.assertEqual(decodeBody(ConfigText, answer.body), self.configuration.properties())
        self.assertIn(b"\norderMessageEnable=false\n", answer.body)

    def test_updateIsLogged(self) -> None:
        """
        A setting is changed, and the log names the peer; where nothing changes,
        nothing is.
        """
        self.clock.advance(3)
        for _ in range(2):
            body = b"orderMessageEnable=true\n"
            answer = self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
            self.assertEqual((answer.code, answer.extFields, answer.body), (0, {}, b""))
            self.assertTrue(self.configuration[NamesrvSettings].orderMessageEnable)
        self.assertEqual(self.configuration.version, DataVersion(3000, 1))
        self.assertEqual(
            self.logged(LogLevel.warn),
            ["192.0.2.7:10911 changed the setting orderMessageEnable: false -> true"],
        )

    def test_emptyUpdateIsAccepted(self) -> None:
        """
        To change nothing is no error.
        """
        self.assertEqual(self.ask(RequestCode.UPDATE_NAMESRV_CONFIG).code, 0)

    def test_pathIsRefused(self) -> None:
        """
        A path is refused with Java's code, and nothing that came with it is
        changed.
        """
        for path in ("kvConfigPath", "configStorePath", "rocketmqHome", "configBlackList"):
            body = f"orderMessageEnable=true\n{path}=/etc/passwd\n".encode()
            answer = self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
            self.assertEqual(answer.code, ResponseCode.NO_PERMISSION)
            said = f"Can not update config in black list. {path}: change it in"
            self.assertIn(said, answer.remark or "")
        self.assertEqual(self.configuration.version, DataVersion())

    def test_invalidChangeIsRefused(self) -> None:
        """
        A setting that may not be changed, or a body that is not valid, is SYSTEM_ERROR.
        """
        for body, said in (
            (b"clusterTest=true\n", "has no effect here"),
            (b"a=\\u12", "malformed"),
        ):
            answer = self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn(said, answer.remark or "")
