# SPDX-License-Identifier: Apache-2.0
"""
A program that runs under twistd: it passes on what it is sent, in capitals::

    NAMESRV_ADDR=127.0.0.1:9876 .venv/bin/twistd -ny examples/relay.tac

After SIGTERM or Ctrl-C messages that are being dealt with are finished, and the
group's offsets are kept.
"""

from twisted.application.service import Application

from txrocket import ConsumeFromWhere, Message, MessageExt
from txrocket.client import Cluster, Producer, PushConsumer


async def relay(message: MessageExt) -> None:
    """
    Pass a message on.  If that fails, the message comes again.
    """
    await producer.send(Message("Capitals", message.body.upper(), message.tags or ""))


application = Application("relay")

# Of the name servers in NAMESRV_ADDR, on the reactor that twistd runs.
cluster = Cluster()
cluster.setServiceParent(application)

# The members are services of the cluster: the last is stopped first.
producer = Producer(cluster, "relays")
producer.setServiceParent(cluster)
consumer = PushConsumer(
    cluster,
    "relays",
    relay,
    consumeFromWhere=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
)
consumer.subscribe("Words")
consumer.setServiceParent(cluster)
