# SPDX-License-Identifier: Apache-2.0
"""
The command C{txrocket resend}: the messages that were cut off the log of a broker are sent
again::

    txrocket resend [-n host:port] FOLDER/cut/3-73014444032.log

A broker cuts its log where its new master has other messages, and keeps the records (L{the cut
<txrocket.protocol.record.recordfile>}).  Topic, tags, keys, body, flag, the id of the producer
and all other properties are kept.  What brokers have added for themselves is not::

    delayed, timed       go to their own topic again, and the delay begins anew; one that is
                         also in the file as delivered is left out
    halves, decisions    are left out: the producer is asked about halves no more
    the broker's own     are left out

A message that was sent may come twice, because consumers may have had it before the cut.  If a
send fails, the command ends and says how to go on behind the messages that were sent.

The exit code is 0 if all were sent, 1 if one was not, and 2 if an argument or the file is not
valid.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TextIO, TypeAlias

from txrocket.blocking.client import Client
from txrocket.blocking.settings import Settings
from txrocket.errors import ConfigError, InvalidMessage, MalformedRecord, RocketError
from txrocket.message import (
    PROPERTY_CLUSTER,
    PROPERTY_CONSUME_START_TIME,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_MAX_OFFSET,
    PROPERTY_MIN_OFFSET,
    PROPERTY_PGROUP,
    PROPERTY_REAL_QID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRAN_MSG,
    PROPERTY_TRAN_PREPARED_QUEUE_OFFSET,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_UNIQ_KEY,
    Message,
    MessageExt,
)
from txrocket.model import MessageQueue
from txrocket.protocol.compression import inflated
from txrocket.protocol.names import NOT_SENT_TO, RETRY_PREFIX
from txrocket.protocol.record import TRANSACTION_PREPARED_TYPE
from txrocket.protocol.record.recordfile import readRecordFile

__all__ = ["main", "resend"]

ALL, SOME, WRONG = range(3)

# Where messages wait for their time, and name their own topic.
_PARKED: Final = frozenset({"SCHEDULE_TOPIC_XXXX", "rmq_sys_timer"})

# What brokers add to the properties of a message.
_ADDED: Final = frozenset(
    {
        PROPERTY_CLUSTER,
        PROPERTY_CONSUME_START_TIME,
        PROPERTY_INNER_MULTI_DISPATCH,
        PROPERTY_INNER_MULTI_QUEUE_OFFSET,
        PROPERTY_MAX_OFFSET,
        PROPERTY_MIN_OFFSET,
        PROPERTY_PGROUP,
        PROPERTY_REAL_QID,
        PROPERTY_REAL_TOPIC,
        PROPERTY_TIMER_OUT_MS,
        PROPERTY_TRANSACTION_CHECK_TIMES,
        PROPERTY_TRAN_MSG,
        PROPERTY_TRAN_PREPARED_QUEUE_OFFSET,
    }
)

#: Sends a message, to a queue if one is given.
Send: TypeAlias = Callable[[Message, MessageQueue | None], object]


class _Chosen(NamedTuple):
    """
    A record, and the message to be made of it.

    @ivar topic: the topic to send it to; empty if it is left out.
    @ivar reason: why it is left out.
    """

    record: MessageExt
    topic: str
    queueId: int
    reason: str = ""


def resend(
    records: Callable[[], Iterable[MessageExt]],
    send: Send,
    out: TextIO,
    start: int = 0,
    brokerName: str | None = None,
    done: str = "sent",
) -> int:
    """
    Send messages again, and tell of it.

    @param records: gives all of them, in the order of the log; it is called twice, because
        there may be more than memory holds.
    @param start: the offset in the log of the first one to send.
    @param brokerName: the broker whose queue of the same number gets each; without it, the
        client chooses queues.
    @param done: what to say of those that C{send} has taken.
    @return: the exit code.
    """
    sent: Counter[str] = Counter()
    left: Counter[tuple[str, str]] = Counter()
    code = ALL
    for record, topic, queueId, reason in _choose(records):
        if record.commitLogOffset < start:
            continue
        if not topic:
            left[record.topic, reason] += 1
            continue
        queue = None if brokerName is None else MessageQueue(topic, brokerName, queueId)
        try:
            send(_message(record, topic), queue)
        except InvalidMessage as error:
            left[topic, str(error)] += 1
            code = SOME
        except RocketError as error:
            at = record.commitLogOffset
            print(f"not sent  {topic}: the record at {at}: {error}", file=out)
            print(f"go on with --from {at}", file=out)
            code = SOME
            break
        else:
            sent[topic] += 1
    for topic, count in sorted(sent.items()):
        print(f"{done:10}{topic}: {count}", file=out)
    for (topic, reason), count in sorted(left.items()):
        print(f"left out  {topic}: {count}, {reason}", file=out)
    return code


def _choose(records: Callable[[], Iterable[MessageExt]]) -> Iterator[_Chosen]:
    delivered = {
        each.properties.get(PROPERTY_UNIQ_KEY) for each in records() if each.topic not in _PARKED
    }
    for record in records():
        properties = record.properties
        topic, queueId, reason = record.topic, record.queueId, ""
        if topic in _PARKED:
            topic = properties.get(PROPERTY_REAL_TOPIC, "")
            text = properties.get(PROPERTY_REAL_QID, "0")
            queueId = int(text) if text.isdecimal() else 0
            if properties.get(PROPERTY_UNIQ_KEY, "") in delivered:
                topic, reason = "", "delivered later in the file"
            elif not topic:
                reason = "without a topic of its own"
        if record.sysFlag & TRANSACTION_PREPARED_TYPE:
            topic, reason = "", "halves and rolled back messages"
        elif topic in NOT_SENT_TO or topic.startswith("rmq_sys_"):
            topic, reason = "", "the broker's own"
        yield _Chosen(record, topic, queueId, reason)


def _message(record: MessageExt, topic: str) -> Message:
    """
    The message that the producer has sent.
    """
    properties = {name: value for name, value in record.properties.items() if name not in _ADDED}
    if topic.startswith(RETRY_PREFIX):
        properties[PROPERTY_RECONSUME_TIME] = str(record.reconsumeTimes)
    return Message(topic, inflated(record).body, flag=record.flag, properties=properties)


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """
    Run the command.

    @return: the exit code.
    """
    options = _parser().parse_args(arguments)
    out = out or sys.stdout
    read = partial(_read, options.files)
    try:
        # A damaged file is found before the first message is sent.
        for _ in read():
            pass
        settings = Settings(options.namesrv, timeout=options.timeout)
    except (OSError, MalformedRecord, ConfigError) as error:
        print(f"txrocket resend: {error}", file=sys.stderr)
        return WRONG
    if options.dry:
        return resend(read, lambda *sent: None, out, options.start, options.broker, "to send")
    with Client(settings) as client:
        return resend(read, client.send, out, options.start, options.broker)


def _read(paths: list[str]) -> Iterator[MessageExt]:
    for path in paths:
        with open(path, "rb") as file:
            try:
                for _, message in readRecordFile(file.read):
                    yield message
            except MalformedRecord as error:
                raise MalformedRecord(f"{path}: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="txrocket resend",
        description="Send the messages again that were cut off the log of a broker.",
        epilog="Exit code: 0 all were sent, 1 not all, 2 an argument or a file is not valid.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file of the folder cut")
    parser.add_argument(
        "-n", "--namesrv", metavar="HOST:PORT", help="name servers (default: NAMESRV_ADDR)"
    )
    parser.add_argument(
        "--broker",
        metavar="NAME",
        help="send each to the queue of the same number at this broker, for messages in order",
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=int,
        default=0,
        metavar="OFFSET",
        help="begin with the record at this offset of the log",
    )
    parser.add_argument(
        "--dry-run", dest="dry", action="store_true", help="tell what would be sent, send nothing"
    )
    parser.add_argument("-t", "--timeout", type=float, default=3.0, help="in seconds, of a send")
    return parser
