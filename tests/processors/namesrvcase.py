# SPDX-License-Identifier: Apache-2.0
"""
What the tests of the name server's requests have in common: a name server in
memory and brokers that register.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime, IStreamServerEndpoint
from twisted.internet.task import Clock

from tests.remoting.doubles import RemotingTests, Wire, connected
from txrocket.config import Configuration
from txrocket.config.javakeys import NAMESRV_KEYS
from txrocket.model import DataVersion, TopicConfig
from txrocket.nameserver.kvconfig import KVConfig, decodeKVConfig
from txrocket.nameserver.routetable import RouteTable
from txrocket.nameserver.service import NameServer
from txrocket.nameserver.settings import NamesrvSettings
from txrocket.processors.admin.settingchanges import SettingChanges
from txrocket.processors.cooperate import cooperator
from txrocket.processors.nameserver.config import NamesrvConfigRequests
from txrocket.processors.nameserver.kvconfig import KVConfigRequests
from txrocket.processors.nameserver.registration import RegistrationRequests
from txrocket.processors.nameserver.routes import RouteRequests
from txrocket.protocol.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from txrocket.protocol.bodies.registerbroker import encodeRegisterBroker
from txrocket.protocol.codes import RequestCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.headers import RegisterBrokerRequestHeader
from txrocket.protocol.headers.fields import Header
from txrocket.remoting.executors import InlineExecutor
from txrocket.remoting.protocol import RemotingProtocol
from txrocket.remoting.remoting import FunctionProcessor, Remoting
from txrocket.remoting.server import RemotingServerFactory
from txrocket.remoting.tls import ServerTLS
from txrocket.store.files import Files
from txrocket.store.flush.flusher import InThread
from txrocket.store.jsontable import Table


def atOnce(function: Callable[[], None]) -> Deferred[None]:
    """
    Run a function that blocks, without a thread.
    """
    return maybeDeferred(function)


def assembled(
    clock: IReactorTime,
    configuration: Configuration,
    endpoints: Sequence[IStreamServerEndpoint] = (),
    inThread: InThread = atOnce,
    *,
    tls: ServerTLS | None = None,
    **calls: Callable[[], None],
) -> NameServer:
    """
    A name server, put together.

    @param calls: what it calls when it starts and has stopped.
    """

    def now() -> int:
        return int(clock.seconds() * 1000)

    settings = configuration.live(NamesrvSettings)
    table = Table(Files(), os.path.abspath(settings.now.kvConfigPath))
    kvConfig = KVConfig(lambda data: inThread(lambda: table.save(data)), table.load(decodeKVConfig))
    routes = RouteTable()
    remoting = Remoting(clock)
    slices = cooperator(clock)
    for codes in (
        RegistrationRequests(routes, kvConfig, now, slices).codes(),
        RouteRequests(routes, kvConfig, settings, slices).codes(),
        KVConfigRequests(kvConfig, slices).codes(),
        NamesrvConfigRequests(
            configuration, SettingChanges(configuration, settings.now.configBlackList, now)
        ).codes(),
    ):
        for code, function in codes.items():
            remoting.registerProcessor(code, FunctionProcessor(function), InlineExecutor())
    factory = RemotingServerFactory(remoting, tls)
    return NameServer(remoting, factory, endpoints, routes, kvConfig, **calls)


def configured(kvConfigPath: str) -> Configuration:
    """
    A name server's configuration.
    """
    return Configuration.read(
        (NamesrvSettings,), NAMESRV_KEYS, None, {"kvConfigPath": kvConfigPath}
    )


class NameServerTests(RemotingTests):
    """
    The base: a name server without a port.
    """

    def setUp(self) -> None:
        super().setUp()
        self.clock: Clock
        self.path = f"{self.mktemp()}/namesrv/kvConfig.json"
        self.configuration = configured(self.path)
        self.start()

    def start(self) -> None:
        """
        A name server with nothing but its file.
        """
        self.server = assembled(self.clock, self.configuration)
        self.routes = self.server.routes
        self.peer, self.wire = self.connect()

    def connect(self) -> tuple[RemotingProtocol, Wire]:
        """
        A connection of a client.
        """
        return connected(self.server.remoting)

    def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        version: int | None = None,
        wire: tuple[RemotingProtocol, Wire] | None = None,
    ) -> RemotingCommand:
        """
        The answer to a request, over the whole way.

        @param version: of the one who asks, if not ours.
        @param wire: the connection to ask on.
        """
        command = requestCommand(code, header, body)
        if version is not None:
            command.version = version
        peer, transport = wire or (self.peer, self.wire)
        peer.dataReceived(command.encode())
        (answer,) = transport.drain()
        return answer

    def register(
        self,
        *topics: str | TopicConfig,
        name: str = "broker-a",
        brokerId: int = 0,
        address: str = "192.0.2.1:10911",
        version: int = 1,
        servers: tuple[str, ...] = (),
        compressed: bool = False,
        wire: tuple[RemotingProtocol, Wire] | None = None,
    ) -> RemotingCommand:
        """
        The answer to a broker that registers.
        """
        configs = [TopicConfig(each) if isinstance(each, str) else each for each in topics]
        wrapper = TopicConfigSerializeWrapper(
            {each.topicName: each for each in configs}, DataVersion(0, version)
        )
        body = encodeRegisterBroker(RegisterBrokerBody(wrapper, servers), compressed)
        header = RegisterBrokerRequestHeader(
            name,
            address,
            "east",
            "192.0.2.1:10912",
            brokerId,
            compressed,
            zlib.crc32(body) & 0x7FFFFFFF,
        )
        return self.ask(RequestCode.REGISTER_BROKER, header, body, wire=wire)
