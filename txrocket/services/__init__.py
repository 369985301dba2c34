# SPDX-License-Identifier: Apache-2.0
"""
The composition root: builds a broker or a name server of its parts.

Nothing else builds these parts for one another, and no part looks another one up: each gets
its collaborators when it is made::

    broker --> core --> tables --> clients --> delivery --> processors, tasks
    nameServer

A test that needs one group of parts builds it with C{buildTables}, C{buildClients} or
C{buildDelivery}.
"""

from __future__ import annotations

from txrocket.broker.plugins import Plugins
from txrocket.services.broker import BROKER_SECTIONS, broker
from txrocket.services.nameserver import NAMESRV_SECTIONS, nameServer

__all__ = ["BROKER_SECTIONS", "NAMESRV_SECTIONS", "Plugins", "broker", "nameServer"]
