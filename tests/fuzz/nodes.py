"""Requests to a whole node, in virtual time: each request that can be decoded gets a response of its API.

The node has both roles and runs on the simulator's loop, disk and network; the requests come straight into its listener.
A finding is a failure that it logs (the client gets UNKNOWN_SERVER_ERROR then), or a callback that fails. The node is replaced
after a number of inputs, because their topics and groups add up. So a finding may need earlier inputs: its text has the
traceback.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ottla.protocol.api import APIS, Api, ApiKey, encode_request_header
from ottla.protocol.compile import encode
from ottla.protocol.records.builder import build_batch
from ottla.protocol.schema import Field, WireType, fields
from ottla.server.network.connection import Connection
from ottla.server.network.listener import Listener
from tests.fuzz.logs import CUT
from tests.fuzz.target import Target
from tests.fuzz.wire import SentBytes, deliver
from tests.sim.cluster import SimCluster
from tests.sim.loop import SimLoop
from tests.sim.world import EPOCH_MS

INPUTS_PER_NODE = 300
SETTINGS = dict.fromkeys(
    (
        "default.replication.factor",
        "min.insync.replicas",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    ),
    "1",
) | {"auto.create.topics.enable": "true", "unstable.api.versions.enable": "true"}
#: In virtual time: long enough for a write to be committed, and too short for most requests that wait.
ANSWER_S_MAX = 0.1
FRAMES_MAX = 6
START_S_MAX = 20


class Transport(SentBytes):
    """A transport that is `done` once there is a response, or the connection is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.done = asyncio.Event()

    def write(self, data: Any) -> None:
        super().write(data)
        self.done.set()

    def close(self) -> None:
        self.done.set()


class OneNode:
    """A node that serves requests, and its loop."""

    def __init__(self) -> None:
        self.inputs = 0
        self.loop = SimLoop()
        asyncio.set_event_loop(self.loop)
        self.cluster: SimCluster = self.loop.run_until_complete(self._start())

    async def _start(self) -> SimCluster:
        cluster = SimCluster(random.Random(1), {1: "broker,controller"}, SETTINGS)
        cluster.start()
        assert await cluster.all_serve(START_S_MAX)
        self.loop.on_failure = lambda lane, failure: cluster.unexpected.add(lane, "a callback failed", failure)
        return cluster

    def ask(self, listener: int, frames: list[bytes]) -> None:
        """Send the frames of one client, each after the response to the last one."""
        self.inputs += 1
        seen = self.cluster.unexpected.seen
        seen.clear()
        logging.getLogger().addHandler(self.cluster.unexpected)
        try:
            self.loop.run_until_complete(self._ask(listener, frames))
        finally:
            logging.getLogger().removeHandler(self.cluster.unexpected)
        if seen:
            raise seen[0][1]

    async def _ask(self, listener: int, frames: list[bytes]) -> None:
        node = self.cluster.nodes[0]
        assert node.server is not None
        listeners: list[Listener] = node.server.listeners
        client, transport = self._connect(listeners[listener % len(listeners)])
        for frame in frames:
            transport.done.clear()
            node.host.lane.context.run(deliver, client, struct.pack(">i", len(frame)) + frame, 1 << 20)
            with suppress(TimeoutError):
                await asyncio.wait_for(transport.done.wait(), ANSWER_S_MAX)
            if client.closed:
                break
        node.host.lane.context.run(client.connection_lost, None)

    def _connect(self, listener: Listener) -> tuple[Connection, Transport]:
        client, transport = Connection(listener, listener._dispatcher, 0), Transport()
        client.connection_made(transport)
        return client, transport

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.close()


_node: list[OneNode] = []


def node(data: bytes) -> None:
    """Send up to FRAMES_MAX requests, separated by CUT, to the listener that the first byte says."""
    if not data:
        return
    if _node and _node[0].inputs >= INPUTS_PER_NODE:
        _node.pop().close()
    if not _node:
        _node.append(OneNode())
    try:
        _node[0].ask(data[0], data[1:].split(CUT)[:FRAMES_MAX])
    except BaseException:
        _node.pop().close()
        raise


# Seeds

NAMES = ("t", "u")
BATCH = build_batch([(b"k", b"v", EPOCH_MS)])


def tame(cls: type[Any], version: int, number: int) -> Any:
    """Return a request that may be useful: one element in each list, few names, small numbers."""
    chosen = {field.name: _tame(field, version, number) for field in fields(cls) if version in field.versions}
    return cls(**chosen)


def _tame(field: Field, version: int, number: int) -> Any:
    if version in field.nullable and number < 0:
        return None
    return _value(field.type, version, number)


def _value(wire_type: WireType, version: int, number: int) -> Any:
    if wire_type.item is not None:
        return [_value(wire_type.item, version, number)]
    if wire_type.struct is not None:
        return tame(wire_type.struct, version, number)
    name = NAMES[number % 2]
    return {
        "bool": number > 0,
        "float64": float(number),
        "uuid": bytes(16),
        "str": name,
        "bytes": name.encode(),
        "Records": BATCH,
        "uint16": max(0, number),
        "uint32": max(0, number),
    }.get(wire_type.name, number)


def _seed(api: Api, version: int, number: int) -> bytes:
    header = encode_request_header(api.key, version, 7, "fuzz")
    return header + encode(tame(api.request, version, number), version)


def node_seeds() -> Iterator[bytes]:
    for api in APIS.values():
        for version in {api.min_version, api.max_version}:
            for number in (1, 0, -1):
                data = _seed(api, version, number)
                yield b"\0" + data
                if number == 1:
                    yield b"\1" + data

    for keys in STORIES:
        yield b"\0" + CUT.join(_seed(APIS[key], APIS[key].max_version, 1) for key in keys)


STORIES = (
    (ApiKey.CREATE_TOPICS, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS, ApiKey.DELETE_TOPICS),
    (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN),
    (ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP),
    (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS, ApiKey.LIST_GROUPS),
    (ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS),
    (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    (ApiKey.CREATE_TOPICS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.ELECT_LEADERS, ApiKey.ALTER_REPLICA_LOG_DIRS),
)  # fmt: skip
TARGETS = [Target("node", node, node_seeds, bytes_max=1024, share=1)]
