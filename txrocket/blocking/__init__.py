# SPDX-License-Identifier: Apache-2.0
"""
A small client over plain sockets, for scripts and Spark's workers.  It has no reactor, sends
no heartbeats by itself, and does not import Twisted::

    with Client("127.0.0.1:9876") as client:
        client.send(Message("Orders", b"...", tags="new"))
        for queue in client.queues("Orders"):
            result = client.pull(queue, client.minOffset(queue))

Every call blocks until it is done or its timeout is over.  The timeout includes name lookup,
connecting and all attempts.
"""

from txrocket.blocking.client import Client
from txrocket.blocking.inspector import Inspector
from txrocket.blocking.settings import Settings
from txrocket.blocking.tls import TLS

__all__ = ["TLS", "Client", "Inspector", "Settings"]
