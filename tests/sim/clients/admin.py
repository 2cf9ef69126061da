"""Administration under load: topics made, grown and deleted, configurations changed, replicas moved, leaders elected.

`existing` and `gone` say what must be so in the end; an operation whose answer was lost takes its topic out of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ottla.controller.raft.voters import ReplicaKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import add_raft_voter
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.quorum_structs import Listener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.history import TopicPartition

TIMEOUT_MS = 5_000
CONTROLLER_PORT = 9093
METADATA_VERSION = 30
UPGRADE = 1
TOPIC = 2
PREFERRED, UNCLEAN = 0, 1


class Admin(Client):
    """The administrator of a simulated cluster. `moved` are the partitions it may reassign, over `brokers`."""

    moved: Sequence[TopicPartition] = ()
    brokers: tuple[int, ...] = ()
    replication_factor = 3
    pause_seconds = 3.0
    #: The cluster was formatted with an older release's levels.
    raises_features = False

    def start(self) -> None:
        self.existing: dict[str, int] = {}  # partitions
        self.gone: set[str] = set()
        self._made = self._raised = 0
        super().start()

    async def run(self) -> None:
        operations = (
            self._create,
            self._delete,
            self._grow,
            self._configure,
            self._move,
            self._move,
            self._cancel,
            self.elect,
        )
        while not self.stopping:
            await self.pause(self.pause_seconds)
            await self.rng.choice(operations)()
            if self.raises_features and self.rng.random() < 0.3:
                await self._raise_features()

    async def create(self, name: str, partitions: int, configs: dict[str, str], replication_factor: int) -> bool:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        code = await self._do("create", (name, partitions), CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _create(self) -> None:
        self._made += 1
        name, partitions = f"made-{self._made}", self.rng.randint(1, 2)
        if await self.create(name, partitions, {}, self.replication_factor):
            self.existing[name] = partitions

    async def _delete(self) -> None:
        if not self.existing:
            return
        name = self.rng.choice(sorted(self.existing))
        del self.existing[name]
        if await self.delete(name):
            self.gone.add(name)

    async def delete(self, name: str) -> bool:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
        code = await self._do("delete", name, request)
        return code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _grow(self) -> None:
        if not self.existing:
            return
        name = self.rng.choice(sorted(self.existing))
        count = self.existing.pop(name) + 1
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        code = await self._do("grow", (name, count), CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        if code is ErrorCode.NONE:
            self.existing[name] = count

    async def _configure(self) -> None:
        name = self.rng.choice(self.moved)[0]
        value = str(self.rng.choice((2048, 16_384, 1 << 20)))
        config = AlterableConfig(name="internal.segment.bytes", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config])
        await self._do("configure", (name, value), IncrementalAlterConfigsRequest(resources=[resource]))

    async def _move(self) -> None:
        topic, partition = self.rng.choice(self.moved)
        replicas = self.rng.sample(self.brokers, min(self.replication_factor, len(self.brokers)))
        row = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[row])]
        )
        await self._do("reassign", (topic, partition, replicas), request)

    async def _cancel(self) -> None:
        """Return a reassignment that is in progress, if there is one."""
        topic, partition = self.rng.choice(self.moved)
        row = ReassignablePartition(partition_index=partition, replicas=None)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[row])]
        )
        await self._do("cancel", (topic, partition), request)

    async def elect(self, election_type: int = PREFERRED) -> None:
        """Elect leaders for all partitions."""
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=None, timeout_ms=TIMEOUT_MS)
        await self._do("elect", "unclean" if election_type == UNCLEAN else "preferred", request)

    async def _raise_features(self) -> None:
        """Raise metadata.version first, because the other features need it."""
        names = ("metadata.version", "eligible.leader.replicas.version")
        levels = {"metadata.version": METADATA_VERSION, "eligible.leader.replicas.version": 1}
        name = names[self._raised]
        update = FeatureUpdateKey(feature=name, max_version_level=levels[name], upgrade_type=UPGRADE)
        code = await self._do("raise", name, UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update]))
        if code is ErrorCode.NONE:
            self._raised += 1
            self.raises_features = self._raised < len(names)

    # -- What others ask it to do ------------------------------------------------------------------------------------

    async def send(self, request: Any) -> ErrorCode | None:
        return await self._do("asks", type(request).__name__, request)

    async def add_voter(self, voter: ReplicaKey, host: str) -> None:
        listener = Listener(name="CONTROLLER", host=host, port=CONTROLLER_PORT)
        await self.send(
            add_raft_voter.AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=TIMEOUT_MS,
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                listeners=[listener],
            )
        )

    async def remove_voter(self, voter: ReplicaKey) -> None:
        await self.send(
            RemoveRaftVoterRequest(cluster_id=None, voter_id=voter.id, voter_directory_id=voter.directory_id)
        )

    async def _do(self, name: str, given: Any, request: Any) -> ErrorCode | None:
        """Return the first error; NONE if there is none, or None without a response."""
        operation = self.history.begin(self.name, name, given)
        try:
            response = await self.ask_any(request, TIMEOUT_MS + 1000)
        except Unreachable as failure:
            self.history.end(operation, "info", str(failure))
            await asyncio.sleep(BACKOFF_SECONDS)
            return None
        code = ErrorCode(first_error(response))
        self.history.end(operation, "ok" if code is ErrorCode.NONE else "info", code.name)
        return code


def first_error(response: Any) -> int:
    """Return the error of the response itself, or of its first row."""
    code = getattr(response, "error_code", 0)
    for rows in ("topics", "results", "responses"):
        for row in getattr(response, rows, ()):
            code = code or getattr(row, "error_code", 0)
            code = code or next((part.error_code for part in getattr(row, "partitions", ())), 0)
    return int(code)
