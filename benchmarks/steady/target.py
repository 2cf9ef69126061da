"""The cluster of an accident, of either server: who leads, follows and controls, and the actions on it."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import raw
from benchmarks.servers import Server
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.shared_structs import PartitionIndex, TopicNamePartitions
from ottla.testing.connection import ClusterConnection

NODES = 3
LOAD = "steady"
WAIT_SECONDS_MAX = 180
LOOK_SECONDS = 0.1
#: The requests of one connection that are in flight during writes; a server answers them in their order.
IN_FLIGHT = 4
METADATA_VERSION = 12
#: The type of a resource with configs.
TOPIC = 2
GROUP_NAMES_MAX = 200
NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


@dataclass(frozen=True)
class Cast:
    """The roles of the nodes for the load's only partition. The active controller does not lead it."""

    leader: int
    follower: int
    controller: int


class Known(NamedTuple):
    """A node's knowledge of a partition."""

    leader: int
    replicas: list[int]
    in_sync: list[int]


class Target:
    """Three nodes, and the topic of the load while one accident is measured."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.addresses = self._addresses()
        self.admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
        self.cast = Cast(0, 0, 0)

    def _addresses(self) -> dict[int, tuple[str, int]]:
        """Return the addresses by node id; both servers list their nodes in the order of their ids."""
        split = [each.rpartition(":") for each in self.server.bootstrap.split(",")]
        return {number + 1: (host, int(port)) for number, (host, _, port) in enumerate(split)}

    def request(self, message: object, api: ApiKey, version: int, node_id: int | None = None) -> Any:
        """Return the response of that node, or of the first node that responds."""
        lost: Exception | None = None
        for host, port in self.addresses.values() if node_id is None else [self.addresses[node_id]]:
            try:
                with ClusterConnection(host, port, None) as connection:
                    return connection.request(message, api, version)
            except OSError as error:
                lost = error
        raise ConnectionError(f"no node answers: {lost}")

    # -- Facts -------------------------------------------------------------------------------------------------------

    def controller(self) -> int:
        """Return the active controller."""
        asked = DescribeQuorumRequest([TopicDataRequest("__cluster_metadata", [PartitionIndex(0)])])
        return int(self.request(asked, ApiKey.DESCRIBE_QUORUM, 0).topics[0].partitions[0].leader_id)

    def tls(self, node_id: int) -> dict[str, Any]:
        listener = self.server.listeners[node_id - 1]
        return {"host": "127.0.0.1", "port": listener.port, "ca": listener.ca_file}

    def size(self, topic: str, node_id: int, partitions: int = 1) -> int:
        """Return the bytes of a node's replicas of these partitions; 0 where there is none."""
        asked = DescribeLogDirsRequest([TopicNamePartitions(topic, list(range(partitions)))])
        found = self.request(asked, ApiKey.DESCRIBE_LOG_DIRS, 1, node_id)
        return sum(
            each.partition_size
            for result in found.results
            for described in result.topics
            for each in described.partitions
        )

    def has_directories(self, topic: str) -> bool:
        """Return whether any node has a directory of a partition of the topic, also one that waits for its removal under
        another name.
        """
        nodes = [self.server.directory / f"node{number}" for number in range(1, NODES + 1)]
        nodes += [self.server.directory / f"node-{number}" / "data" for number in range(1, NODES + 1)]
        return any(entry.name.startswith(f"{topic}-") for each in nodes if each.is_dir() for entry in os.scandir(each))

    def group_of(self, node_id: int) -> str:
        """Return a group whose coordinator is that node."""
        wait("a coordinator", lambda: self._coordinator("group") >= 0)
        names = (f"group-{number}" for number in range(GROUP_NAMES_MAX))
        return next(name for name in names if self._coordinator(name) == node_id)

    def _coordinator(self, group: str) -> int:
        answer = self.request(FindCoordinatorRequest(coordinator_keys=[group]), ApiKey.FIND_COORDINATOR, 4)
        return -1 if answer.coordinators[0].error_code else int(answer.coordinators[0].node_id)

    def metadata(self, node_id: int, topic: str | None = None) -> dict[str, dict[int, Known]]:
        """Return that node's knowledge of a topic, or of all topics, by name and partition. A topic that it does not know is
        left out.
        """
        topics = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = self.request(request, ApiKey.METADATA, METADATA_VERSION, node_id)
        return {
            each.name: {
                one.partition_index: Known(one.leader_id, sorted(one.replica_nodes), sorted(one.isr_nodes))
                for one in each.partitions
            }
            for each in answer.topics
            if not each.error_code
        }

    # -- Topics ------------------------------------------------------------------------------------------------------

    def create(self, topic: str, assignment: Sequence[Sequence[int]], **configs: object) -> None:
        """Create the topic, and wait until every node knows that all replicas are in sync."""
        config = {name.replace("_", "."): str(value) for name, value in configs.items()}
        new = NewTopic(topic, len(assignment), replica_assignment=[list(each) for each in assignment], config=config)
        self.admin.create_topics([new], request_timeout=120)[topic].result(150)
        self.wait_known(topic, [sorted(each) for each in assignment])

    def wait_known(self, topic: str, assignment: Sequence[Sequence[int]]) -> None:
        """Wait until every node knows a leader of each partition, and these replicas in sync."""
        wanted = {number: sorted(replicas) for number, replicas in enumerate(assignment)}

        def is_known(node_id: int) -> bool:
            found = self.metadata(node_id, topic).get(topic, {})
            has_leaders = all(each.leader >= 0 for each in found.values())
            return has_leaders and {n: each.in_sync for n, each in found.items()} == wanted

        for node_id in self.addresses:
            wait(f"{topic} on node {node_id}", partial(is_known, node_id))

    def delete(self, topic: str) -> None:
        """Delete the topic, and wait until no node knows it."""
        self.admin.delete_topics([topic], request_timeout=120)[topic].result(150)
        wait(f"the end of {topic}", lambda: not any(self.metadata(node_id, topic) for node_id in self.addresses))

    def alter(self, topic: str, configs: Mapping[str, str]) -> None:
        changes = [AlterableConfig(name, 0, value) for name, value in configs.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, topic, changes)])
        answer = self.request(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        assert not answer.responses[0].error_code, answer

    def reassign(self, topic: str, partitions: int, replicas: list[int]) -> None:
        moves = [ReassignablePartition(number, replicas) for number in range(partitions)]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, moves)])
        answer = self.request(request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
        assert not answer.error_code, answer

    def write(self, topic: str, leader: int, batches: Iterable[tuple[int, bytes]]) -> None:
        """Write the batches of partitions to their leader, and wait until all replicas have acknowledged them. Raises
        RuntimeError if one is rejected for good.
        """
        waiting = deque[tuple[int, bytes]]()
        with socket.create_connection(self.addresses[leader], timeout=60) as conn:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def send(partition: int, batch: bytes) -> None:
                conn.sendall(raw.produce_frame(topic, partition, batch))
                waiting.append((partition, batch))

            def read_one() -> None:
                """Read one response. A broker may begin to lead a partition a little later than its metadata says."""
                error, sent = produce_error(conn, topic), waiting.popleft()
                if error in NOT_YET:
                    time.sleep(LOOK_SECONDS)
                    send(*sent)
                elif error:
                    raise RuntimeError(f"error {error} of a Produce to {topic}")

            for partition, batch in batches:
                if len(waiting) == IN_FLIGHT:
                    read_one()
                send(partition, batch)
            until = time.monotonic() + WAIT_SECONDS_MAX
            while waiting and time.monotonic() < until:
                read_one()
            assert not waiting, f"{len(waiting)} batches of {topic} are not acknowledged"

    # -- Nodes -------------------------------------------------------------------------------------------------------

    def cast_for_load(self) -> None:
        """Create the topic of the load, and choose the roles of the nodes."""
        controller = self.controller()
        leader, follower = (node_id for node_id in self.addresses if node_id != controller)
        self.cast = Cast(leader, follower, controller)
        self.create(LOAD, [[leader, follower, controller]], min_insync_replicas=2)

    def end(self, node_id: int, number: int) -> None:
        """Send the signal, and wait until the node's process has ended."""
        pid = self.server.pids[node_id - 1]
        os.kill(pid, number)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def stop(self, node_id: int) -> None:
        self.end(node_id, signal.SIGTERM)

    def kill(self, node_id: int) -> None:
        self.end(node_id, signal.SIGKILL)

    def start(self, node_id: int) -> None:
        self.server.restart(node_id - 1)

    def wait_in_sync(self) -> None:
        """Wait until every node runs, and knows that all replicas of all partitions are in sync."""
        for node_id in self.addresses:
            wait("in sync", partial(self._knows_all_in_sync, node_id))

    def _knows_all_in_sync(self, node_id: int) -> bool:
        try:
            topics = self.metadata(node_id).values()
        except OSError:
            return False  # it does not listen yet
        return all(each.leader >= 0 and each.in_sync == each.replicas for one in topics for each in one.values())


def produce_error(conn: socket.socket, topic: str) -> int:
    """Read one complete response of a Produce for one partition."""
    (size,) = struct.unpack(">i", conn.recv(4, socket.MSG_WAITALL))
    return raw.produce_error(bytes(4) + conn.recv(size, socket.MSG_WAITALL), topic)


def wait(what: str, is_so: Callable[[], bool], seconds: float = WAIT_SECONDS_MAX) -> None:
    """Wait until `is_so` returns True. Raises TimeoutError after `seconds`."""
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(LOOK_SECONDS)
