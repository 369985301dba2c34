# SPDX-License-Identifier: Apache-2.0
"""
RocketMQ's C{mqadmin}.
"""

from __future__ import annotations

from tests.interop.cells import Cell, scenario, sleep
from tests.interop.messages import PROPERTIES, many

# How often a command is tried.
_TIMES = 240

_CLUSTER = "DefaultCluster"


class _Tool:
    """
    C{mqadmin} at a cell's servers.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    async def __call__(self, *arguments: str, says: tuple[str, ...] = ()) -> str:
        """
        Run a command, again until it says what it should: offsets are kept, and messages
        indexed, a little later, and Java's broker tells of itself only after a while.

        @param says: what is to be in what it prints.
        """
        for _ in range(_TIMES):
            said = await self._cell.tool(*arguments)
            if all(each in said for each in says):
                return said
            await sleep(0.5)
        raise AssertionError(f"mqadmin {' '.join(arguments)} said: {said}")


@scenario("mqadmin: topics", "sync", "push tool")
async def topics(cell: Cell) -> None:
    """
    Topics are made, shown, changed and deleted.
    """
    tool, broker, topic = _Tool(cell), cell.servers.broker, cell.named("tooled")
    await tool(
        "updateTopic", "-b", broker, "-t", topic, "-r", "3", "-w", "3", says=("success", topic)
    )
    await cell.known(topic)
    await tool("topicList", says=(topic,))
    await tool("topicList", "-c", says=(topic, _CLUSTER))
    await tool("topicClusterList", "-t", topic, says=(_CLUSTER,))
    await tool("topicRoute", "-t", topic, says=('"readQueueNums":3', broker))
    producer = await cell.producer()
    await producer.send(many(topic, 9))
    await tool("topicStatus", "-t", topic, says=("broker-a", "#Max Offset"))
    await tool("updateTopicPerm", "-b", broker, "-t", topic, "-p", "4", says=("success",))
    await tool("topicRoute", "-t", topic, says=('"perm":4',))
    await tool("allocateMQ", "-t", topic, "-i", "10.0.0.1,10.0.0.2", says=("10.0.0.1", "broker-a"))
    await tool("deleteTopic", "-c", _CLUSTER, "-t", topic, says=("success",))
    assert topic not in (await tool("topicList")).split()


@scenario("mqadmin: messages", "sync", "push tool")
async def messages(cell: Cell) -> None:
    """
    Messages are found by key, and printed.  Not by id or offset: those commands write
    files outside of the run's folder.
    """
    tool, topic = _Tool(cell), await cell.topic(1)
    producer = await cell.producer()
    sent = many(topic, 5)
    uniqueId = (await producer.send(sent))[2]["msgId"]
    await tool("queryMsgByKey", "-t", topic, "-k", sent[2]["keys"][0], says=(uniqueId,))
    await tool("printMsg", "-t", topic, "-d", "true", says=("body 0", "body 4", uniqueId))
    await tool(
        *("printMsgByQueue", "-t", topic, "-a", "broker-a", "-i", "0", "-p", "true", "-d", "true"),
        says=("body 4",),
    )


@scenario("mqadmin: groups", "sync", "push tool")
async def groups(cell: Cell) -> None:
    """
    Groups are made, shown, moved and deleted.
    """
    tool, broker = _Tool(cell), cell.servers.broker
    topic, group = await cell.topic(2), cell.group()
    await tool("updateSubGroup", "-b", broker, "-g", group, "-r", "5", says=("success", group))
    await tool("getConsumerConfig", "-g", group, says=(_CLUSTER,))
    producer = await cell.producer()
    consumer = await cell.consumer(topic, group=group, properties=PROPERTIES)
    await producer.send(many(topic, 10))
    await consumer.until(10)
    await tool("consumerConnection", "-g", group, says=(topic, "CLUSTERING"))
    await tool("consumerStatus", "-g", group, says=(consumer.name, "Rebalance OK"))
    await tool("consumerProgress", "-g", group, says=(topic, "Diff Total: 0"))
    await tool("resetOffsetByTime", "-g", group, "-t", topic, "-s", "-1", says=("broker-a",))
    await tool("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", says=("broker-a",))
    # All of it again.
    await consumer.until(20)
    await consumer.stop()
    await tool("deleteSubGroup", "-b", broker, "-g", group, says=("success",))


@scenario("mqadmin: servers", "sync", "push tool")
async def servers(cell: Cell) -> None:
    """
    What the servers tell of themselves, and their settings.
    """
    tool, broker = _Tool(cell), cell.servers.broker
    await tool("clusterList", says=("broker-a", broker))
    await tool("clusterList", "-m", says=("broker-a", _CLUSTER))
    await tool("brokerStatus", "-b", broker, says=("bootTimestamp", "brokerVersionDesc"))
    await tool("getBrokerConfig", "-b", broker, says=("brokerName", "broker-a", "listenPort"))
    await tool(
        *("updateBrokerConfig", "-b", broker, "-k", "shortPollingTimeMills", "-v", "1001"),
        says=("success",),
    )
    await tool(
        "getBrokerConfig",
        "-b",
        broker,
        says=(f"{'shortPollingTimeMills':<50}=  1001",),
    )
    await tool("getNamesrvConfig", says=("listenPort",))
    key = cell.named("key")
    await tool("updateKvConfig", "-s", "interop", "-k", key, "-v", "v", says=("success",))
    await tool("deleteKvConfig", "-s", "interop", "-k", key, says=("success",))
    await tool("statsAll", says=("#Topic",))
    await tool("cleanUnusedTopic", "-b", broker, says=("success",))
    await tool("cleanExpiredCQ", "-b", broker, says=("success",))
    await tool("sendMsgStatus", "-b", "broker-a", "-c", "3", "-s", "100", says=("SEND_OK",))
