# SPDX-License-Identifier: Apache-2.0
"""
The message record, the unit of the commit log and of the response to a pull, with the
same bytes in both.  It matches RocketMQ's C{MessageDecoder} and C{CommitLog}::

     at  size
      0     4  total size
      4     4  magic code DA A3 20 A7
      8     4  CRC-32 of the body, its top bit cleared
     12     4  queue id
     16     4  flag, the application's
     20     8  queue offset: the message's number in its queue
     28     8  physical offset: the record's place in the log
     36     4  sysFlag
     40     8  born timestamp, ms
     48     8  born host: IPv4 and port of 4 bytes   (20 with an IPv6 address)
     56     8  store timestamp, ms
     64     8  store host                            (20 with an IPv6 address)
     72     4  reconsume times
     76     8  prepared transaction offset
     84   4+n  body length, body
          1+n  topic length, topic
          2+n  properties length, properties: name 01 value 02 name 01 value

Integers are big-endian and signed.  If a record does not fit into the rest of a log
file, a blank fills the rest: total size, magic code CB D4 31 94, and any bytes.
"""

from __future__ import annotations

from txrocket.protocol.record.decode import (
    decodeRecord,
    decodeRecords,
    measureRecord,
    storeTimestampAt,
)
from txrocket.protocol.record.encode import (
    badHosts,
    encodeBlank,
    encodeMessageExt,
    encodeRecord,
)
from txrocket.protocol.record.fields import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BORNHOST_V6_FLAG,
    LAYOUTS,
    MESSAGE_MAGIC_CODE,
    MULTI_TAGS_FLAG,
    PHYSICAL_OFFSET_POSITION,
    PROPERTIES_LIMIT,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    STOREHOSTADDRESS_V6_FLAG,
    SYS_FLAG_POSITION,
    TOPIC_LIMIT,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    TopicField,
    encodeHost,
    encodeProperties,
    encodeTopic,
    joinProperties,
)

__all__ = [
    "BLANK_MAGIC_CODE",
    "BLANK_SIZE",
    "BORNHOST_V6_FLAG",
    "LAYOUTS",
    "MESSAGE_MAGIC_CODE",
    "MULTI_TAGS_FLAG",
    "PHYSICAL_OFFSET_POSITION",
    "PROPERTIES_LIMIT",
    "QUEUE_ID_POSITION",
    "QUEUE_OFFSET_POSITION",
    "STOREHOSTADDRESS_V6_FLAG",
    "SYS_FLAG_POSITION",
    "TOPIC_LIMIT",
    "TRANSACTION_COMMIT_TYPE",
    "TRANSACTION_NOT_TYPE",
    "TRANSACTION_PREPARED_TYPE",
    "TRANSACTION_ROLLBACK_TYPE",
    "TopicField",
    "badHosts",
    "decodeRecord",
    "decodeRecords",
    "encodeBlank",
    "encodeHost",
    "encodeMessageExt",
    "encodeProperties",
    "encodeRecord",
    "encodeTopic",
    "joinProperties",
    "measureRecord",
    "storeTimestampAt",
]
