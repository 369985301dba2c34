# SPDX-License-Identifier: Apache-2.0
"""
Message traces: the bodies of messages in RMQ_SYS_TRACE_TOPIC, in which clients report
sends and consumptions; Java's C{TraceDataEncoder}.

A body is a text of records.  Each record ends with C{\\x02}, and C{\\x01} separates its
fields::

    Pub             time region group topic msgId tags keys storeHost bodyLength cost
                    msgType offsetMsgId success
    SubBefore       time region group requestId msgId retryTimes keys
    SubAfter        requestId msgId cost success keys contextCode time group
    EndTransaction  time region group topic msgId tags keys storeHost msgType
                    transactionId transactionState fromTransactionCheck
    Recall          time region group topic msgId success

A producer writes Pub after a send.  A consumer writes SubBefore and SubAfter around a
call of its listener.  Times are in milliseconds.  Java writes a missing value as
C{null}, and so does L{encodeTrace}; it is L{None} in the records here.

L{decodeTraces} also reads the formats of other clients and versions:

  - an older Pub has no offsetMsgId and no success, and has a clientHost at its end;
  - an older SubAfter has no time and group, and possibly no contextCode.  Clients of
    Alibaba's cloud omit them to this day.  Those of 4.9.7 also omit the end of the
    record, so that the next record begins in place of the time;
  - Recall, and the type of orderly messages, exist since 5.x.

Records of unknown types are skipped.
"""

from __future__ import annotations

from txrocket.protocol.tracebodies.codec import decodeTraces, encodeTrace, traceKeys
from txrocket.protocol.tracebodies.records import (
    DEFAULT_REGION,
    TRACE_TOPIC,
    ConsumeReturnType,
    EndTransaction,
    MessageType,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
)

__all__ = [
    "DEFAULT_REGION",
    "TRACE_TOPIC",
    "ConsumeReturnType",
    "EndTransaction",
    "MessageType",
    "Pub",
    "Recall",
    "SubAfter",
    "SubBefore",
    "Trace",
    "decodeTraces",
    "encodeTrace",
    "traceKeys",
]
