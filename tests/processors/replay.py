# SPDX-License-Identifier: Apache-2.0
"""
Captured requests sent to processors of ours, and the answers held against what
Java's servers answered.

A request goes the whole way: its frame is read by a connection, served through
the C{processorTable}, and the answer is what was written on the wire.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock

from tests.captures import Capture, captures
from tests.remoting.doubles import Wire, connected, serving
from txrocket.protocol import fastjson as javajson
from txrocket.protocol.command import RemotingCommand
from txrocket.remoting.interfaces import Process
from txrocket.remoting.protocol import RemotingProtocol


def requests(code: int, *receivers: str) -> list[Capture]:
    """
    The captured requests of a code to some kinds of server.
    """
    return [
        each
        for each in captures()
        if each.requestCode == code and each.kind != "response" and each.receiver in receivers
    ]


def responseTo(request: Capture) -> Capture | None:
    """
    What Java answered, where that was captured too.
    """
    for each in captures():
        if each.kind == "response" and each.pair == request.pair:
            return each
    return None


class Server:
    """
    Processors behind a connection.

    @ivar peer: the server's end of it.
    """

    def __init__(self, codes: dict[int, Process], clock: Clock | None = None) -> None:
        self.peer: RemotingProtocol
        self.wire: Wire
        self.peer, self.wire = connected(serving(Clock(), codes))
        self._clock = clock

    def send(self, frame: bytes) -> RemotingCommand | None:
        """
        What is answered to a request, if anything.
        """
        self.peer.dataReceived(frame)
        if self._clock is not None:
            # What is done bit by bit.
            self._clock.pump([0] * 10)
        answers = self.wire.drain()
        assert len(answers) < 2, answers
        return answers[0] if answers else None


def fieldsOf(capture: Capture) -> dict[str, Any]:
    """
    What of a captured response must be so in ours: everything but the language
    and the words of a remark.
    """
    header = capture.header
    return {
        "code": header["code"],
        "flag": header["flag"],
        "opaque": header["opaque"],
        "version": header["version"],
        "form": capture.form,
        "hasRemark": bool(header.get("remark")),
        "extFields": header.get("extFields") or {},
        "body": content(capture.body),
    }


def fieldsOfOurs(command: RemotingCommand) -> dict[str, Any]:
    """
    The same of an answer of ours.
    """
    return {
        "code": command.code,
        "flag": command.flag,
        "opaque": command.opaque,
        "version": command.version,
        "form": "binary" if command.serializeType else "json",
        "hasRemark": bool(command.remark),
        "extFields": command.extFields,
        "body": content(command.body),
    }


def content(body: bytes) -> Any:
    """
    A body's JSON, as fastjson writes it.  Java's sets come in any order, so lists are sorted.
    """

    def sort(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: sort(each) for name, each in value.items()}
        if isinstance(value, list):
            return sorted(map(sort, value), key=json.dumps)
        return value

    return sort(javajson.parse(body, lambda members: json.dumps(members))) if body else None
