# SPDX-License-Identifier: Apache-2.0
"""
What is done to many messages at a time, by C or by Python::

    store, processors, client, spark --> txrocket.bulk --> _compiled   where it was built
                                                      \\-> python      where it was not

L{Bulk} says what each function does.  The choice is made here, once: without a C compiler
the package is installed without the compiled module, and C{TXROCKET_PURE=1} in the
environment has it left alone.  No other module knows which implementation it uses.

The package lies above C{protocol}, whose codec reads and writes one record at a time: both
implementations take the layout of records from there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from types import ModuleType

from txrocket.bulk import python
from txrocket.bulk.interface import (
    PAIR,
    AppendedRecord,
    AwaitedMessage,
    BatchRecords,
    Bulk,
    CollectedRecords,
    DecodedPull,
    DecodedSends,
    EncodedRecords,
    Frames,
    IndexEntries,
    QueueKey,
    QueueTail,
    ReadRecords,
    SentMessage,
    keyHash,
)

__all__ = [
    "PAIR",
    "AppendedRecord",
    "AwaitedMessage",
    "BatchRecords",
    "Bulk",
    "CollectedRecords",
    "DecodedPull",
    "DecodedSends",
    "EncodedRecords",
    "Frames",
    "IndexEntries",
    "QueueKey",
    "QueueTail",
    "ReadRecords",
    "SentMessage",
    "batchRecords",
    "checkRecords",
    "chosen",
    "collectRecords",
    "compiled",
    "decodePulls",
    "decodeSends",
    "encodeHeads",
    "encodeRecords",
    "encodeSendResponses",
    "guardBus",
    "indexEntries",
    "isGuarded",
    "keyHash",
    "messageIds",
    "readRecords",
    "readableRecords",
    "releaseBus",
    "splitFrames",
    "suspect",
    "syncPaths",
]

#: The implementation that is used.
chosen: Bulk = python
#: The compiled module, or L{None}: for tests, and for what decodes requests.
compiled: ModuleType | None = None

if not os.environ.get("TXROCKET_PURE"):
    with suppress(ImportError):
        from txrocket.bulk import _compiled

        chosen, compiled = _compiled, _compiled

batchRecords = chosen.batchRecords
checkRecords = chosen.checkRecords
collectRecords = chosen.collectRecords
decodePulls = chosen.decodePulls
decodeSends = chosen.decodeSends
encodeHeads = chosen.encodeHeads
encodeRecords = chosen.encodeRecords
encodeSendResponses = chosen.encodeSendResponses
guardBus = chosen.guardBus
indexEntries = chosen.indexEntries
isGuarded = chosen.isGuarded
messageIds = chosen.messageIds
readRecords = chosen.readRecords
readableRecords = chosen.readableRecords
releaseBus = chosen.releaseBus
splitFrames = chosen.splitFrames
suspect = chosen.suspect
syncPaths = chosen.syncPaths
