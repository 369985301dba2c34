# SPDX-License-Identifier: Apache-2.0
"""
Tests for L{txrocket.server.embedded}, L{txrocket.broker.tap} and
L{txrocket.nameserver.tap}: command lines, and the servers that are made of them.
C{tests.test_taps} runs them.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from txrocket.broker import tap as brokerTap
from txrocket.broker.service import Broker
from txrocket.broker.settings import BrokerSettings, RegistrationSettings
from txrocket.nameserver import tap as namesrvTap
from txrocket.nameserver.service import NameServer
from txrocket.nameserver.settings import NamesrvSettings
from txrocket.remoting.settings import BrokerServerSettings, NamesrvServerSettings, TLSSettings
from txrocket.remoting.tls import TLSMode
from txrocket.server import embedded
from txrocket.server.launch import CannotStart, OrderedServices
from txrocket.store.settings import StoreSettings


class OptionsTests(SynchronousTestCase):
    """
    Tests for L{embedded.Options}.
    """

    def parse(self, *arguments: str) -> embedded.Options:
        """
        The options of a command line.
        """
        options = embedded.Options()
        options.parseOptions(arguments)
        return options

    def refused(self, *arguments: str) -> str:
        """
        The error of a command line.
        """
        error = self.assertRaises(SystemExit, self.parse, *arguments)
        return str(error)

    def file(self, text: str) -> str:
        """
        A file of settings.
        """
        path = Path(self.mktemp())
        path.write_text(text)
        return str(path)

    def test_defaultsAreLoopbackAndOneFolder(self) -> None:
        """
        Both servers are on loopback, know each other, and keep their data in one
        folder below the one where they were started.
        """
        options = self.parse()
        own = options.configuration[BrokerSettings]
        self.assertEqual((own.brokerName, own.brokerIP1), ("broker-a", "127.0.0.1"))
        listen = options.configuration[BrokerServerSettings]
        self.assertEqual((listen.bindAddress, listen.listenPort), ("127.0.0.1", 10911))
        announced = options.configuration[RegistrationSettings]
        self.assertEqual(announced.namesrvAddr, "127.0.0.1:9876")
        data = os.path.join(os.getcwd(), "data")
        store = options.configuration[StoreSettings]
        self.assertEqual(store.storePathRootDir, os.path.join(data, "store"))
        named = options.nameServer[NamesrvServerSettings]
        self.assertEqual((named.bindAddress, named.listenPort), ("127.0.0.1", 9876))
        path = options.nameServer[NamesrvSettings].kvConfigPath
        self.assertEqual(path, os.path.join(data, "namesrv", "kvConfig.json"))

    def test_optionsChooseInterfaceAndFolder(self) -> None:
        """
        Options choose where both listen, and where the data are.
        """
        options = self.parse("-d", "/there", "-i", "192.0.2.1", "--namesrvPort", "1234")
        self.assertEqual(options.configuration[BrokerSettings].brokerIP1, "192.0.2.1")
        self.assertEqual(options.configuration[BrokerServerSettings].bindAddress, "192.0.2.1")
        self.assertEqual(options.configuration[RegistrationSettings].namesrvAddr, "192.0.2.1:1234")
        self.assertEqual(options.configuration[StoreSettings].storePathRootDir, "/there/store")
        named = options.nameServer[NamesrvServerSettings]
        self.assertEqual((named.bindAddress, named.listenPort), ("192.0.2.1", 1234))

    def test_wildcardHostIsReplaced(self) -> None:
        """
        No client can dial all interfaces: clients get this machine's address, as without a
        setting, and the broker finds its name server on loopback.
        """
        for interface, expected in (
            ("0.0.0.0", "127.0.0.1:9876"),
            ("::", "[::1]:9876"),
            ("::1", "[::1]:9876"),
        ):
            options = self.parse("-i", interface)
            self.assertEqual(options.configuration[RegistrationSettings].namesrvAddr, expected)
            told = options.configuration[BrokerSettings].brokerIP1
            self.assertEqual(told, interface if interface == "::1" else None)
            for section, configuration in (
                (BrokerServerSettings, options.configuration),
                (NamesrvServerSettings, options.nameServer),
            ):
                self.assertEqual(configuration[section].bindAddress, interface)

    def test_commandLineOverridesFile(self) -> None:
        """
        The file's settings are over this program's own, and the command line's over
        both.
        """
        path = self.file("brokerName=filed\nbrokerIP1=192.0.2.7\nlistenPort=1111\n")
        options = self.parse("-c", path, "--set", "listenPort=2222")
        own = options.configuration[BrokerSettings]
        self.assertEqual((own.brokerName, own.brokerIP1), ("filed", "192.0.2.7"))
        self.assertEqual(options.configuration[BrokerServerSettings].listenPort, 2222)
        self.assertEqual(options.nameServer[NamesrvServerSettings].listenPort, 9876)

    def test_tlsAppliesToBothServers(self) -> None:
        """
        TLS is set for both servers at once.
        """
        options = self.parse("-c", self.file("tls.server.mode=disabled\n"))
        self.assertIs(options.nameServer[TLSSettings].tlsMode, TLSMode.DISABLED)
        self.assertIs(options.configuration[TLSSettings].tlsMode, TLSMode.DISABLED)
        options = self.parse("--set", "tls.server.mode=enforcing")
        self.assertIs(options.nameServer[TLSSettings].tlsMode, TLSMode.ENFORCING)

    def test_invalidSettingOfEitherIsReported(self) -> None:
        """
        A wrong setting of either server is reported.
        """
        for port in ("0", "65536", "-1"):
            self.assertEqual(
                self.refused("--namesrvPort", port),
                f"Cannot start: --namesrvPort {port}: 1 to 65535 was expected",
            )
        self.assertIn("an IP address was expected", self.refused("-i", "localhost"))
        path = self.file("bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n")
        said = self.refused("-c", path, "-i", "localhost")
        self.assertEqual(
            said, "Cannot start: --set bindAddress=localhost: an IP address was expected"
        )
        self.assertIn("No such file", self.refused("-c", "/no/such/file"))

    def test_checkReadsBothServers(self) -> None:
        """
        --check looks at both.
        """
        printed = io.StringIO()
        self.patch(sys, "stdout", printed)
        self.assertEqual(self.refused("--check"), "0")
        self.assertEqual(self.refused("--check", "--namesrvPort", "0"), "1")
        self.assertEqual(
            printed.getvalue().splitlines(),
            ["The configuration is sound", "--namesrvPort 0: 1 to 65535 was expected"],
        )


class MakeServiceTests(SynchronousTestCase):
    """
    The servers that twistd is given.
    """

    def kinds(self, made: OrderedServices) -> list[type]:
        """
        The started services, in order.
        """
        self.assertIsInstance(made, OrderedServices)
        return [type(each) for each in made.services]

    def test_nameServerStartsFirst(self) -> None:
        """
        The name server is first, so that the broker finds it.
        """
        options = embedded.Options()
        options.parseOptions(["--data", self.mktemp()])
        self.assertEqual(self.kinds(embedded.makeService(options)), [NameServer, Broker])

    def test_invalidBrokerSettingIsReported(self) -> None:
        """
        A broker alone; what is wrong with its settings is said.
        """
        options = brokerTap.Options()
        options.parseOptions(["--set", "brokerIP1=127.0.0.1", "-n", "192.0.2.1:9876"])
        self.assertEqual(self.kinds(brokerTap.makeService(options)), [Broker])
        options = brokerTap.Options()
        options.parseOptions(["--set", "brokerIP1=127.0.0.1", "-n", "nowhere"])
        error = self.assertRaises(CannotStart, brokerTap.makeService, options)
        self.assertIn("Cannot start: namesrvAddr=nowhere: ", str(error))

    def test_damagedNameServerFileIsReported(self) -> None:
        """
        A name server alone; if its file is damaged that is said.
        """
        path = Path(self.mktemp())
        options = namesrvTap.Options()
        options.parseOptions(["--set", f"kvConfigPath={path}"])
        self.assertEqual(self.kinds(namesrvTap.makeService(options)), [NameServer])
        path.write_text("{")
        error = self.assertRaises(CannotStart, namesrvTap.makeService, options)
        self.assertIn("is damaged", str(error))
