# SPDX-License-Identifier: Apache-2.0
"""
What RocketMQ 4.9.7's brokers send on their HA port, captured from the real ones: a master with
one message in its log, and a slave with an empty folder.  Both had
C{haSendHeartbeatInterval=1000}.
"""

from __future__ import annotations

__all__ = ["MASTER_STREAM", "RECORD", "SLAVE_STREAM"]

#: The master's log: one message, as it lies in the file.
RECORD = bytes.fromhex(
    "0000009c"  # TOTALSIZE 156
    "daa320a7"  # MAGICCODE
    "3610a686"  # BODYCRC
    "00000000"  # QUEUEID
    "00000000"  # FLAG
    "0000000000000000"  # QUEUEOFFSET
    "0000000000000000"  # PHYSICALOFFSET
    "00000000"  # SYSFLAG
    "000001a1ee8113ba"  # BORNTIMESTAMP
    "7f00000100009b9e"  # BORNHOST
    "000001a1ee81144d"  # STORETIMESTAMP
    "7f000001000051af"  # STOREHOST
    "00000000"  # RECONSUMETIMES
    "0000000000000000"  # PREPAREDTRANSACTIONOFFSET
    "00000005 68656c6c6f"  # body: hello
    "09 546f70696354657374"  # topic: TopicTest
    "0033"  # properties
    "554e49515f4b4559 01"  # UNIQ_KEY
    "43303030303230323644443546393631383944433541313932424241303030 30 02"
    "434c5553544552 01 63"  # CLUSTER c
)

#: After the offset -1 the master sent nothing.  After the offset 0 it sent this, within 2.6 s.
MASTER_STREAM = (
    bytes.fromhex(
        "0000000000000000"  # offset 0
        "0000009c"  # size 156
    )
    + RECORD
    + bytes.fromhex(
        "000000000000009c 00000000"  # a heartbeat at 156, after 1 s
        "000000000000009c 00000000"  # and another
    )
)

#: What the slave sent: before the master said anything, after a heartbeat at 0, and after the
#: piece above.
SLAVE_STREAM = (
    bytes.fromhex(
        "0000000000000000"  # it has nothing, 1 s after it connected
        "0000000000000000"  # likewise, 1 s later
    ),
    bytes.fromhex("0000000000000000 0000000000000000"),
    bytes.fromhex(
        "000000000000009c"  # it has the message, at once
        "000000000000009c"  # a heartbeat
    ),
)
