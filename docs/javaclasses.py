# SPDX-License-Identifier: Apache-2.0
"""
A Sphinx extension that writes the index from Java's classes to our modules, from the docstrings of
the modules::

    "...; Java's C{ProducerManager} and C{ConsumerManager}."   -->   docs/api/javaclasses.inc
    "...; all of them C{AdminBrokerProcessor}'s in Java."

L{FURTHER} has the pairs that no docstring states.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apipages import modules

_NAME = r"C\{[A-Z]\w*[a-z]\w*(?:\.\w+)?\}"
_OWNER = r"(?:Java|RocketMQ(?: 4\.9\.7)?)(?:'s)?(?: has it)?"
# Names in a row: "C{A}, C{B} (with C{C}) and C{D}".
_CHAIN = re.compile(
    rf"\b{_OWNER}\s+(?:(?:keeps in|filter module)\s+)?\(?({_NAME}"
    rf"(?:(?:\)?,?\s+and|\)?,|\s+\(with)\s+{_NAME})*)"
)
_AFTER = re.compile(rf"({_NAME})'s\s+in\s+Java\b")
_ONE = re.compile(r"C\{(\w+)")

# Java's own library, which is not RocketMQ's.
_LIBRARY = frozenset({"Double", "Integer", "Long", "String"})

# Java's class -> modules whose docstrings do not name it.
FURTHER: dict[str, tuple[str, ...]] = {
    "AdminBrokerProcessor": (
        "txrocket.processors.admin.resetoffset",
        "txrocket.processors.clients.connections",
        "txrocket.processors.clients.offsets",
    ),
    "AllocateMessageQueueStrategy": ("txrocket.client.consumer.allocate",),
    "AssignedMessageQueue": ("txrocket.client.consumer.pull.prefetch",),
    "BloomFilter": ("txrocket.filters.bloom",),
    "BrokerController": ("txrocket.broker.service", "txrocket.services"),
    "BrokerFastFailure": ("txrocket.remoting.executors",),
    "BrokerOuterAPI": ("txrocket.broker.nameserverlink", "txrocket.broker.registration"),
    "BrokerStartup": ("txrocket.broker.tap",),
    "ClientConfig": ("txrocket.client.cluster",),
    "CommitLog": ("txrocket.store.log.commitlog",),
    "CommitLogDispatcher": ("txrocket.store.dispatch",),
    "ConsumeQueue": ("txrocket.store.queue.consumequeue",),
    "ConsumerManageProcessor": ("txrocket.processors.clients.offsets",),
    "DefaultMessageStore": ("txrocket.store.messagestore", "txrocket.store.read.reader"),
    "DefaultRequestProcessor": (
        "txrocket.processors.nameserver.config",
        "txrocket.processors.nameserver.kvconfig",
        "txrocket.processors.nameserver.registration",
        "txrocket.processors.nameserver.routes",
    ),
    "FlushConsumeQueueService": ("txrocket.store.flush.checkpointer",),
    "FlushRealTimeService": ("txrocket.store.flush.flusher",),
    "GroupCommitService": ("txrocket.store.flush.flusher",),
    "IndexService": ("txrocket.store.index",),
    "LatencyFaultTolerance": ("txrocket.client.sansio.queueselector",),
    "LocalFileOffsetStore": ("txrocket.client.consumer.offsetstore",),
    "MQClientInstance": ("txrocket.client.sansio.topicroute",),
    "MQFaultStrategy": ("txrocket.client.sansio.queueselector",),
    "Message": ("txrocket.message",),
    "MessageExt": ("txrocket.message",),
    "MessageQueue": ("txrocket.model",),
    "MessageQueueSelector": ("txrocket.client.sansio.queueselector",),
    "NamesrvStartup": ("txrocket.nameserver.tap",),
    "NettyEncoder": ("txrocket.protocol.command",),
    "NettyRemotingAbstract": ("txrocket.remoting.protocol", "txrocket.remoting.remoting"),
    "NettyRemotingClient": ("txrocket.remoting.nameservers", "txrocket.remoting.peers"),
    "NettyRemotingServer": ("txrocket.remoting.server",),
    "NettyRequestProcessor": ("txrocket.remoting.interfaces",),
    "PullResult": ("txrocket.client.sansio.results",),
    "QueryMessageProcessor": ("txrocket.processors.messages.query",),
    "RPCHook": ("txrocket.remoting.interfaces",),
    "RemoteBrokerOffsetStore": ("txrocket.client.consumer.offsetstore",),
    "ReputMessageService": ("txrocket.store.dispatch",),
    "ResponseFuture": ("txrocket.remoting.responsetable",),
    "SendMessageContext": ("txrocket.broker.interfaces",),
    "SendResult": ("txrocket.client.sansio.results",),
    "StoreCheckpoint": ("txrocket.store.flush.checkpoint",),
    "TopicPublishInfo": ("txrocket.client.sansio.queueselector",),
    "TransactionalMessageBridge": ("txrocket.broker.transaction.opmessages",),
}


def named(docstring: str) -> set[str]:
    """
    The classes of RocketMQ that a module's docstring names as Java's.
    """
    found = [*_CHAIN.findall(docstring), *_AFTER.findall(docstring)]
    return {name for each in found for name in _ONE.findall(each)} - _LIBRARY


def index() -> dict[str, list[str]]:
    """
    Java's classes and the modules that have their part.
    """
    found: dict[str, set[str]] = {name: set(names) for name, names in FURTHER.items()}
    for module, path in modules():
        for name in named(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""):
            found.setdefault(name, set()).add(module)
    return {name: sorted(found[name]) for name in sorted(found, key=str.lower)}


def table() -> str:
    """
    The index as a table.
    """
    return "\n".join(_lines())


def write(folder: Path) -> None:
    """
    Write the table, unless it has not changed.
    """
    folder.mkdir(exist_ok=True)
    path = folder / "javaclasses.inc"
    text = table()
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def setup(app: Any) -> dict[str, bool]:
    """
    Called by Sphinx.
    """
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "api"))
    return {"parallel_read_safe": True}


def _lines() -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 45 55", "")
    yield from ("   * - Java's class", "     - our modules")
    for name, found in index().items():
        yield f"   * - ``{name}``"
        yield "     - " + ", ".join(f":py:mod:`{each}`" for each in found)
    yield ""
