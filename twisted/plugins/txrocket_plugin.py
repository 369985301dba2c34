# SPDX-License-Identifier: Apache-2.0
from twisted.application.service import ServiceMaker

rocketEcho = ServiceMaker(
    "txrocket echo server",
    "txrocket.echo",
    "Answers every RocketMQ request with its own fields and body.",
    "rocket-echo",
)
