"""Settings that protect a node, over the wire: cordoned directories, the rate of new connections, one listener's limit."""

from __future__ import annotations

import contextlib
import socket

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.broker.conftest import start_node, stop_node


def test_a_node_whose_directories_are_all_cordoned_gets_no_new_replica() -> None:
    node = start_node(cordoned_log_dirs="*")
    try:
        with node.wire() as wire:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            answer = wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
            directories = wire.request(DescribeLogDirsRequest(topics=None), 5).results
            assert [directory.is_cordoned for directory in directories] == [True]
    finally:
        stop_node(node)


def test_a_listeners_own_limit_of_connections_holds() -> None:
    node = start_node(**{"listener.name.plaintext.max.connections": "2"})
    try:
        kept = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", node.port)) as third:
            third.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert third.recv(1) == b""
        for each in kept:
            each.close()
    finally:
        stop_node(node)
