# SPDX-License-Identifier: Apache-2.0
from twisted.application.service import ServiceMaker

rocket = ServiceMaker(
    "txrocket name server and broker",
    "txrocket.server.embedded",
    "A RocketMQ name server and a broker in one process, on loopback.",
    "rocket",
)

rocketBroker = ServiceMaker(
    "txrocket broker",
    "txrocket.broker.tap",
    "A broker that speaks RocketMQ's protocol and keeps its files.",
    "rocket-broker",
)

rocketNamesrv = ServiceMaker(
    "txrocket name server",
    "txrocket.nameserver.tap",
    "A name server that speaks RocketMQ's protocol.",
    "rocket-namesrv",
)

rocketEcho = ServiceMaker(
    "txrocket echo server",
    "txrocket.server.echo",
    "Answers every RocketMQ request with its own fields and body.",
    "rocket-echo",
)
