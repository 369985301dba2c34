# SPDX-License-Identifier: Apache-2.0
"""
L{Bulk<txrocket.bulk.interface.Bulk>} in Python::

    requests   splitFrames decodeSends decodePulls encodeSendResponses encodeHeads
    append     encodeRecords batchRecords suspect messageIds
    dispatch   readRecords indexEntries
    read       checkRecords readableRecords collectRecords
    system     syncPaths guardBus releaseBus isGuarded
"""

from __future__ import annotations

from txrocket.bulk.python.append import batchRecords, encodeRecords, messageIds, suspect
from txrocket.bulk.python.dispatch import indexEntries, readRecords
from txrocket.bulk.python.read import checkRecords, collectRecords, readableRecords
from txrocket.bulk.python.requests import (
    decodePulls,
    decodeSends,
    encodeHeads,
    encodeSendResponses,
    splitFrames,
)
from txrocket.bulk.python.system import guardBus, isGuarded, releaseBus, syncPaths

__all__ = [
    "batchRecords",
    "checkRecords",
    "collectRecords",
    "decodePulls",
    "decodeSends",
    "encodeHeads",
    "encodeRecords",
    "encodeSendResponses",
    "guardBus",
    "indexEntries",
    "isGuarded",
    "messageIds",
    "readRecords",
    "readableRecords",
    "releaseBus",
    "splitFrames",
    "suspect",
    "syncPaths",
]
