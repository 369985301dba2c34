# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.server.options}.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import attrs
from twisted.logger import LogLevel, globalLogPublisher
from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from txrocket.config import Configuration, atLeast
from txrocket.config.javakeys import BROKER_KEYS
from txrocket.protocol.configtext import parse
from txrocket.remoting.settings import BrokerServerSettings, TLSSettings
from txrocket.server.options import ServerOptions


@attrs.frozen
class Section:
    """
    Settings of a broker.
    """

    brokerName: str = "a"
    namesrvAddr: str | None = None
    fileReservedTime: int = attrs.field(default=72, validator=atLeast(1))


class Options(ServerOptions):
    """
    A broker's options.
    """

    sections = (Section, BrokerServerSettings, TLSSettings)
    javaKeys = BROKER_KEYS
    shortForms = ("namesrvAddr",)
    optParameters = [["namesrvAddr", "n", None, "Name servers."]]


class Twistd(usage.Options):
    """
    A program with the server as a part of it, as twistd has it.
    """

    optFlags = [["nodaemon", "n", ""]]
    subCommands = [["rocket-broker", None, Options, "A broker."]]


class OptionsTests(SynchronousTestCase):
    """
    Tests for L{ServerOptions}.
    """

    def setUp(self) -> None:
        """
        Keep what is printed.
        """
        self.printed = io.StringIO()
        self.patch(sys, "stdout", self.printed)

    def write(self, text: str) -> str:
        """
        A file with settings.
        """
        folder = Path(self.mktemp())
        folder.mkdir()
        path = folder / "broker.conf"
        path.write_text(text)
        return str(path)

    def parse(self, *arguments: str) -> Options:
        """
        The options for arguments after C{twistd -n rocket-broker}.
        """
        program = Twistd()
        program.parseOptions(["-n", "rocket-broker", *arguments])
        options: Any = program.subOptions
        assert isinstance(options, Options)
        return options

    def exits(self, *arguments: str) -> int:
        """
        The exit code for arguments after which nothing is started.
        """
        error = self.assertRaises(SystemExit, self.parse, *arguments)
        assert isinstance(error.code, int)
        return error.code

    def test_noArgumentsGiveDefaults(self) -> None:
        """
        Without arguments all settings have their defaults.
        """
        configuration = self.parse().configuration
        self.assertEqual(configuration[Section], Section())
        self.assertEqual(configuration[BrokerServerSettings].listenPort, 10911)

    def test_setOverridesFile(self) -> None:
        """
        Settings come from the file; --set, short and long and as often as one
        likes, overrides it, and so does an option that stands for a setting.
        """
        path = self.write("brokerName=b\nfileReservedTime=48\nlistenPort=1\nnamesrvAddr=x:1\n")
        options = self.parse(
            *("-c", path, "-s", "fileReservedTime=24", "--set", "brokerName = c=d"),
            *("-n", "127.0.0.1:9876"),
        )
        self.assertEqual(options.configuration[Section], Section("c=d", "127.0.0.1:9876", 24))
        self.assertEqual(options.configuration[BrokerServerSettings].listenPort, 1)
        options = self.parse("--configFile", path, "-n", "y:1", "-s", "namesrvAddr=z:1")
        self.assertEqual(options.configuration[Section], Section("b", "z:1", 48))

    def test_invalidSettingsAreListed(self) -> None:
        """
        All that is wrong with the settings is said, in lines, and without a
        traceback or all that twistd could be told.
        """
        path = self.write("fileReservedTime=0\nbrokerNam=b\n")
        error = self.assertRaises(SystemExit, self.parse, "-c", path, "-s", "listenPort=x")
        self.assertEqual(
            str(error).splitlines(),
            [
                f"Cannot start: {path}:1: fileReservedTime=0: 1 or more was expected",
                f"{path}:2: brokerNam: unknown; did you mean brokerName?",
                "--set listenPort=x: a whole number was expected",
            ],
        )

    def test_setWithoutValueIsRefused(self) -> None:
        """
        A setting without a key and a value is refused.
        """
        for setting in ("brokerName", "=x", ""):
            error = self.assertRaises(SystemExit, self.parse, "-s", setting)
            self.assertEqual(str(error), f"Cannot start: --set {setting}: key=value was expected")

    def test_unknownOptionIsRefused(self) -> None:
        """
        An unknown option is refused in the same way.
        """
        error = self.assertRaises(SystemExit, self.parse, "--listenPort", "1")
        self.assertEqual(str(error), "Cannot start: option --listenPort not recognized")

    def test_unreadableCertificateIsRefused(self) -> None:
        """
        A certificate that cannot be read is found before the server starts.
        """
        error = self.assertRaises(SystemExit, self.parse, "-s", "tls.test.mode.enable=false")
        self.assertEqual(str(error), "Cannot start: tls.server.certPath is not set")

    def test_printedSettingsCanBeRead(self) -> None:
        """
        -p prints all settings so that they can be read again, and starts nothing.
        """
        self.assertEqual(self.exits("-p", "-s", "brokerName=bröker"), 0)
        printed = parse(self.printed.getvalue().encode("ascii"))
        again = Configuration.read(Options.sections, (), None, printed)
        self.assertEqual(again[Section], Section("bröker"))
        self.assertEqual(again.properties(), printed)
        self.assertEqual(printed["listenPort"], "10911")

    def test_wrongSettingsAreNotPrinted(self) -> None:
        """
        Wrong settings are not printed.
        """
        self.assertRaises(SystemExit, self.parse, "-p", "-s", "listenPort=x")
        self.assertEqual(self.printed.getvalue(), "")

    def test_checkTellsSoundSettings(self) -> None:
        """
        --check says that all is well, names settings without effect, and starts nothing.
        """
        path = self.write("brokerName=b\ntransientStorePoolEnable=true\n")
        self.assertEqual(self.exits("--check", "-c", path), 0)
        self.assertEqual(
            self.printed.getvalue(),
            "Settings that have no effect here: transientStorePoolEnable\n"
            "The configuration is sound\n",
        )

    def test_checkTellsAllMistakes(self) -> None:
        """
        --check names all mistakes, and ends with the status of a failure.
        """
        path = self.write("fileReservedTime=0\nbrokerNam=b\n")
        self.assertEqual(self.exits("--check", "-p", "-c", path), 1)
        self.assertEqual(
            self.printed.getvalue(),
            f"{path}:1: fileReservedTime=0: 1 or more was expected\n"
            f"{path}:2: brokerNam: unknown; did you mean brokerName?\n",
        )

    def test_ineffectiveSettingsAreLogged(self) -> None:
        """
        Settings without effect are logged, in one line, when the server starts.
        """
        events: list[Any] = []
        observer: Any = events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.parse("-s", "haListenPort=1", "-s", "useTLS=true")
        (event,) = [each for each in events if each["log_level"] is LogLevel.warn]
        self.assertEqual(
            event["log_format"].format(**event),
            "Settings that have no effect here: haListenPort, useTLS",
        )

    def test_helpShowsAllOptions(self) -> None:
        """
        --help shows all options.
        """
        self.assertEqual(self.exits("--help"), 0)
        for option in ("-c, --configFile=", "-p, --printConfigItem", "--check", "-s, --set="):
            self.assertIn(option, self.printed.getvalue())
