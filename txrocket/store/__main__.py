# SPDX-License-Identifier: Apache-2.0
"""
Looking at a store from outside::

    python -m txrocket.store verify DIR     is it sound?
    python -m txrocket.store dump DIR       what is in it?
    python -m txrocket.store dump FILE      what was cut off it?

Neither writes anything.  The exit code is 0 if all is well, 1 if the folder is
damaged and 2 if it cannot be read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TextIO

from txrocket.config import Configuration
from txrocket.errors import ConfigError, MalformedRecord, StoreError, StoreInUse
from txrocket.message import MessageExt
from txrocket.protocol.record import decodeRecord
from txrocket.protocol.record.recordfile import readRecordFile
from txrocket.store.files.handles import Handles
from txrocket.store.settings import StoreSettings
from txrocket.store.verify import Verifier, summary
from txrocket.store.verify.readonly import ReadOnlyFiles, inUse, openLog, whyNot

__all__ = ["main"]

SOUND, DAMAGED, UNREADABLE = range(3)
_BAR = 40


class Bar:
    """
    A progress bar on a terminal; nothing elsewhere.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = -1

    def show(self, done: int, total: int) -> None:
        """
        Show how much is done.
        """
        percent = done * 100 // total if total else 100
        if percent == self._shown or not self._stream.isatty():
            return
        self._shown = percent
        marks = "#" * (percent * _BAR // 100)
        end = "\n" if percent == 100 else ""
        self._stream.write(f"\r[{marks:{_BAR}}] {percent:3} %{end}")
        self._stream.flush()


def describe(message: MessageExt, withBody: bool) -> dict[str, Any]:
    """
    A record as it is dumped.
    """
    shown = {
        "offset": message.commitLogOffset,
        "size": message.storeSize,
        "topic": message.topic,
        "queueId": message.queueId,
        "queueOffset": message.queueOffset,
        "storeTimestamp": message.storeTimestamp,
        "bornTimestamp": message.bornTimestamp,
        "storeHost": list(message.storeHost),
        "bornHost": list(message.bornHost),
        "sysFlag": message.sysFlag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsumeTimes,
        "preparedTransactionOffset": message.preparedTransactionOffset,
        "properties": dict(message.properties),
        "bodySize": len(message.body),
    }
    if withBody:
        shown["body"] = b64encode(message.body).decode("ascii")
    return shown


def verify(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """
    Check a folder and print the findings.
    """
    bar = Bar(errors)
    settings = _settings(options.config)
    # Without a file nothing is known of the levels, and any delay may be right.
    known = None if options.config is None else settings.messageDelayLevel
    verifier = Verifier(
        options.folder,
        commitLog=settings.storePathCommitLog,
        slots=settings.maxHashSlotNum if options.slots is None else options.slots,
        levels=known if options.levels is None else options.levels,
        progress=bar.show,
    )
    report = verifier.run()
    for line in summary(report):
        print(line, file=out)
    return DAMAGED if report.problems else SOUND


class _Others(frozenset[str]):
    """
    The settings of a broker that the store has not.
    """

    def __contains__(self, key: object) -> bool:
        return True


def _settings(path: str | None) -> StoreSettings:
    """
    The store's settings in a broker's file.

    @raise ConfigError: if one of them is not valid.
    """
    return Configuration.read((StoreSettings,), _Others(), path, {})[StoreSettings]


def dump(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """
    Print records, one JSON object a line.
    """
    if os.path.isfile(options.folder):
        return _dumpFile(options, out, errors)
    handles = Handles(ReadOnlyFiles(), 64)
    problems: list[str] = []
    try:
        log = openLog(
            handles,
            options.folder,
            lambda where, kind, detail: problems.append(f"{where}: {kind}: {detail}"),
        )
        end = start = log.first if options.start is None else options.start

        def wanted() -> Iterator[MessageExt]:
            nonlocal end
            for scanned in log.records(start, strict=False):
                end = scanned.offset + scanned.size
                if options.topic in (None, scanned.record.topic):
                    data = log.segments.read(scanned.offset, scanned.size)
                    yield decodeRecord(data)

        if start != log.first and next(log.records(start, strict=False), None) is None:
            raise StoreError(f"no record begins at {start}")
        for message in islice(wanted(), options.limit):
            print(json.dumps(describe(message, options.body), ensure_ascii=False), file=out)
        if options.limit is None and (reason := whyNot(log, end)) is not None:
            problems.append(f"bad record at {end}: {reason}")
    finally:
        handles.close()
    for problem in problems:
        print(problem, file=errors)
    return DAMAGED if problems else SOUND


def _dumpFile(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """
    Print the records of a file of the folder C{cut}.
    """
    with open(options.folder, "rb") as file:
        records = (message for _, message in readRecordFile(file.read))
        wanted = (
            message
            for message in records
            if options.topic in (None, message.topic)
            and message.commitLogOffset >= (options.start or 0)
        )
        try:
            for message in islice(wanted, options.limit):
                print(json.dumps(describe(message, options.body), ensure_ascii=False), file=out)
        except MalformedRecord as error:
            print(f"{options.folder}: {error}", file=errors)
            return DAMAGED
    return SOUND


def _count(text: str) -> int:
    """
    Read an argument that is no negative number.
    """
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m txrocket.store",
        description="Look at a store's folder without changing it.",
        epilog="Exit code: 0 sound, 1 damaged, 2 cannot be read.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser("verify", help="check log, queues, index and tables")
    check.set_defaults(run=verify)
    check.add_argument(
        "--slots",
        type=_count,
        metavar="N",
        help="maxHashSlotNum, which index files do not tell"
        f" (default: {StoreSettings('').maxHashSlotNum})",
    )
    check.add_argument(
        "--levels",
        metavar="TEXT",
        help="messageDelayLevel: check by it when delayed messages are due",
    )
    check.add_argument(
        "--config",
        metavar="FILE",
        help="the broker's file of settings: storePathCommitLog, maxHashSlotNum and"
        " messageDelayLevel are read from it",
    )
    show = commands.add_parser("dump", help="print records as lines of JSON")
    show.set_defaults(run=dump)
    show.add_argument(
        "--from", dest="start", type=_count, metavar="OFFSET", help="begin at this record"
    )
    show.add_argument("--topic", help="of this topic only")
    show.add_argument("--limit", type=_count, metavar="N", help="at most N")
    show.add_argument("--body", action="store_true", help="with bodies, in base64")
    for each in (check, show):
        each.add_argument("--force", action="store_true", help="look though it is in use")
        each.add_argument(
            "folder",
            metavar="DIR",
            help="the store's folder, storePathRootDir; for dump, a file of its folder cut as well",
        )
    return parser


def main(
    argv: Sequence[str] | None = None, out: TextIO | None = None, errors: TextIO | None = None
) -> int:
    """
    @param argv: the arguments without the program's name.
    @return: the exit code.
    """
    out, errors = out or sys.stdout, errors or sys.stderr
    options = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace, TextIO, TextIO], int] = options.run
    try:
        isFolder = not os.path.isfile(options.folder)
        if isFolder and not options.force and inUse(options.folder):
            raise StoreInUse(
                f"{options.folder} is in use by another process; what is seen of it may be "
                "incomplete: --force looks anyway"
            )
        return run(options, out, errors)
    except BrokenPipeError:
        # The reader of the pipe has closed it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SOUND
    except (StoreError, ConfigError, OSError, ValueError) as error:
        print(error, file=errors)
        return UNREADABLE


if __name__ == "__main__":
    sys.exit(main())
