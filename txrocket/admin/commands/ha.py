# SPDX-License-Identifier: Apache-2.0
"""
The command C{txrocket ha}, about masters and slaves::

    txrocket ha status  -n host:port             roles, epochs, and how far slaves are behind
    txrocket ha promote -b host:port [--force]   a slave becomes the master
    txrocket ha demote  -b host:port [--force]   a master becomes a slave

C{status} asks all brokers that the name servers of C{-n}, or of NAMESRV_ADDR, know, or the
broker of C{-b}.  The exit code is 0 if all is done, 1 if a broker does not answer or refuses,
and 2 if an argument is not valid.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from txrocket.blocking.connections import BlockingConnections
from txrocket.blocking.deadline import Deadline
from txrocket.blocking.routes import BlockingRoutes
from txrocket.errors import ConfigError, RequestCodeNotSupported, RocketError, responseError
from txrocket.protocol.addresses import nameServerAddresses, parseAddresses
from txrocket.protocol.bodies.codec import decodeBody
from txrocket.protocol.bodies.replication import (
    HADemoteRequestHeader,
    HAPromoteRequestHeader,
    HAStatus,
)
from txrocket.protocol.codes import ReplicationCode
from txrocket.protocol.command import RemotingCommand, requestCommand
from txrocket.protocol.frames import FRAME_LIMIT

__all__ = ["main"]

DONE, FAILED, WRONG = range(3)

# A broker waits for its slaves and for name servers before it answers.
_PATIENCE: Final = 30.0


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """
    Run the command.

    @return: the exit code.
    """
    options = _parser().parse_args(arguments)
    connections = BlockingConnections(None, FRAME_LIMIT)
    try:
        return _run(connections, options, out or sys.stdout)
    except (ConfigError, ValueError) as error:
        return _say(str(error), WRONG)
    except RocketError as error:
        return _say(str(error), FAILED)
    finally:
        connections.close()


def _run(connections: BlockingConnections, options: argparse.Namespace, out: TextIO) -> int:
    if options.what == "status":
        return _status(connections, options, out)
    if not options.broker:
        return _say(f"{options.what} needs -b host:port, the broker that is meant", WRONG)
    [address] = parseAddresses(options.broker)
    if options.what == "promote":
        request = requestCommand(ReplicationCode.HA_PROMOTE, HAPromoteRequestHeader(options.force))
    else:
        request = requestCommand(ReplicationCode.HA_DEMOTE, HADemoteRequestHeader(options.force))
    _ask(connections, address, request, max(options.timeout, _PATIENCE))
    print("\n".join(_told(_statusOf(connections, address, options.timeout), address)), file=out)
    return DONE


def _status(connections: BlockingConnections, options: argparse.Namespace, out: TextIO) -> int:
    code = DONE
    for address in _brokers(connections, options):
        try:
            status = _statusOf(connections, address, options.timeout)
        except RequestCodeNotSupported:
            code = _say(f"{address}: this broker is RocketMQ's, and does not tell its role", FAILED)
        except RocketError as error:
            code = _say(f"{address}: {error}", FAILED)
        else:
            print("\n".join(_told(status, address)), file=out)
    return code


def _brokers(connections: BlockingConnections, options: argparse.Namespace) -> list[str]:
    if options.broker:
        return list(parseAddresses(options.broker))
    servers = nameServerAddresses(options.namesrv, os.environ.get("NAMESRV_ADDR", ""))
    info = BlockingRoutes(connections, servers, 0).clusterInfo(Deadline(options.timeout))
    return [
        address
        for _, each in sorted(info.brokerAddrTable.items())
        for _, address in sorted(each.brokerAddrs.items())
    ]


def _statusOf(connections: BlockingConnections, address: str, timeout: float) -> HAStatus:
    request = requestCommand(ReplicationCode.HA_STATUS)
    return decodeBody(HAStatus, _ask(connections, address, request, timeout).body)


def _ask(
    connections: BlockingConnections, address: str, request: RemotingCommand, timeout: float
) -> RemotingCommand:
    answer = connections.ask(address, request, Deadline(timeout))
    if answer.code:
        raise responseError(answer.code, answer.remark, address)
    return answer


def _told(status: HAStatus, address: str) -> Iterator[str]:
    """
    The lines about a broker.
    """
    yield (
        f"{status.brokerName} {address}: {status.role}, {status.brokerRole} {status.brokerId},"
        f" epoch {status.epoch}, log {status.first} to {status.end}, {status.flushed} on the disk"
    )
    if status.why:
        yield f"    {status.why}"
    if status.master is not None:
        master = status.master
        yield (
            f"    follows {master.address or master.haAddress or 'no master'}: {master.state},"
            f" {master.lag} bytes behind"
        )
    for each in status.replicas:
        yield (
            f"    slave {'?' if each.brokerId < 0 else each.brokerId} {each.address}:"
            f" {'in sync' if each.inSync else 'not in sync'},"
            f" {each.lag} bytes and {each.lagMillis / 1000:.1f} s behind"
            f"{', as RocketMQ 4.9.7' if each.plain else ''}"
        )
    if status.lastCut is not None:
        cut = status.lastCut
        yield (
            f"    cut {cut.records} messages, {cut.size} bytes from {cut.offset} on, kept in"
            f" {cut.path}"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="txrocket ha", description="Look at masters and slaves, and change their roles."
    )
    parser.add_argument("what", choices=("status", "promote", "demote"))
    parser.add_argument("-b", "--broker", metavar="HOST:PORT", help="the broker that is meant")
    parser.add_argument(
        "-n", "--namesrv", metavar="HOST:PORT", help="name servers, whose brokers are asked"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="promote although the master answers; demote although no slave has all",
    )
    parser.add_argument("-t", "--timeout", type=float, default=3.0, help="in seconds")
    return parser


def _say(problem: str, code: int) -> int:
    print(f"txrocket ha: {problem}", file=sys.stderr)
    return code
