"""The choices of a seed before it begins: roles, voters, time-outs, how its nodes were formatted, how good its disks are."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType

from ottla.broker.replication import log_moves
from ottla.broker.share import dead_letter_queue
from ottla.controller.decisions import leaving
from ottla.controller.metadata import loader as metadata_loader
from ottla.controller.raft.snapshots import write_bootstrap, write_initial_voters
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, encode_record
from ottla.storage.directories.log_dirs import read_meta_properties
from ottla.storage.producers import producer_snapshots
from tests.sim.cluster import CONTROLLER_PORT, SimCluster, SimNode
from tests.sim.formatting import format_node

BOTH = "broker,controller"
TWO_DIRECTORIES = "/data/a,/data/b"
UNSTABLE_FEATURES = "unstable.feature.versions.enable"
NEWEST_METADATA_VERSION = 30
#: The longest time of a slow disk's calls; other disks take 5 ms.
SLOW_DISK_SECONDS = (0.03, 0.15)
#: The time of a turn of the loop, if slices are small.
SMALL_SLICE_MS = 2.0
#: The share of seeds with two log directories, among those that could have one: replicas move between them.
MOVE_SHARE = 0.2
#: The share of seeds with a dead-letter topic, among those that may have a share group.
DEAD_LETTER_SHARE = 0.5

#: The share of seeds in which a killed voter may start while its disk is not mounted, among those with static voters.
UNMOUNTED_SHARE = 0.3

#: Bounds of the real code, for the time of a run.
Bounds = dict[tuple[ModuleType, str], int]
#: A move of a few KB takes many turns, and dead letters are tried until the last fault is over.
ALWAYS: Bounds = {
    (log_moves, "PIECE_BYTES"): 700,
    (log_moves, "SLICE_BYTES"): 2000,
    (dead_letter_queue, "ATTEMPTS_MAX"): 1_000,
    (dead_letter_queue, "RETRY_MS_MAX"): 2_000,
}
#: The work of one turn of the loop; and each truncation waits for a worker.
SMALL_SLICES: Bounds = {
    (metadata_loader, "UNITS_A_TURN"): 10,
    (leaving, "PARTITIONS_PER_TURN"): 1,
    (producer_snapshots, "PRODUCERS_AT_ONCE"): 0,
}


@dataclass(frozen=True)
class Plan:
    roles: Mapping[int, str]
    settings: Mapping[str, str]
    min_isr: int = 2
    #: The metadata.version with which the cluster was formatted, and which is raised while it runs; None for the newest.
    metadata_version: int | None = None
    #: The first voters, if the voters are in the log (KIP-853) and change.
    first_voters: tuple[int, ...] = ()
    #: Each record of the metadata is replayed, and each partition takes its role, in a turn of its own.
    small_slices: bool = False
    #: Replicas move between the log directories of a broker (AlterReplicaLogDirs).
    moves: bool = False
    #: A share group has a dead-letter topic (KIP-1191), which takes share.version 2.
    dead_letters: bool = False
    #: The disk of a static voter may be unmounted when the voter starts.
    unmounts: bool = False

    @property
    def flushes(self) -> bool:
        return "log.flush.interval.messages" in self.settings

    def describe(self) -> str:
        slices = " small slices" if self.small_slices else ""
        formatted = f" metadata.version {self.metadata_version}" if self.metadata_version else ""
        voters = f" voters {self.first_voters}" if self.first_voters else ""
        unmounts = " disks not mounted" if self.unmounts else ""
        return f"{dict(self.roles)} {dict(self.settings)}{formatted}{voters}{slices}{unmounts}"


def choose(rng: random.Random, seed: int) -> Plan:
    roles, first_voters = _roles(rng)
    session_ms = rng.choice((3000, 6000, 9000))
    settings = {
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // 4),
        # Half as many fetches without records: a fetch is answered at once when records exist.
        "replica.fetch.wait.max.ms": "1000",
        "replica.lag.time.max.ms": rng.choice(("2500", "5000", "15000")),
        "replica.high.watermark.checkpoint.interval.ms": rng.choice(("500", "5000")),
        "log.flush.offset.checkpoint.interval.ms": rng.choice(("1000", "60000")),
    }
    if rng.random() < 0.3:
        settings["log.dirs"] = TWO_DIRECTORIES
    min_isr = 2
    if rng.random() < 0.25:
        settings["log.flush.interval.messages"] = "1"
        if rng.random() < 0.3:
            min_isr = 1
            internal = dict.fromkeys(("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"), "1")
            settings |= {"min.insync.replicas": "1", **internal}
    if rng.random() < 0.4:
        settings |= {
            "metadata.log.max.record.bytes.between.snapshots": rng.choice(("3000", "10000")),
            "metadata.max.retention.bytes": "6000",
            "internal.metadata.log.segment.bytes": "4000",
            "controller.quorum.fetch.snapshot.max.bytes": rng.choice(("700", "1048576")),
        }
    if rng.random() < 0.2:
        settings["controller.quorum.fetch.max.bytes"] = "1"  # one batch at a time
    metadata_version = rng.choice((16, 16, 17, 25)) if rng.random() < 0.2 else None
    if metadata_version is not None:
        # Without the ELR the last replica is elected even if it has lost records, which is the reason for KIP-966: so nothing
        # may be lost then.
        settings["log.flush.interval.messages"] = "1"
    # These have their own random numbers, so that the rest of a seed stays as it was.
    small_slices = random.Random(f"slices {seed}").random() < 0.25
    chance = random.Random(f"moves {seed}")
    moves = chance.random() < MOVE_SHARE or "log.dirs" in settings
    if moves:
        settings |= {"log.dirs": TWO_DIRECTORIES}
        if (rate := chance.choice((None, "5000", "20000"))) is not None:
            settings["replica.alter.log.dirs.io.max.bytes.per.second"] = rate
    dead_letters = metadata_version is None and random.Random(f"dead letters {seed}").random() < DEAD_LETTER_SHARE
    if dead_letters:
        settings[UNSTABLE_FEATURES] = "true"
    unmounts = not first_voters and random.Random(f"unmounted {seed}").random() < UNMOUNTED_SHARE
    return Plan(roles, settings, min_isr, metadata_version, first_voters, small_slices, moves, dead_letters, unmounts)


@asynccontextmanager
async def slices(plan: Plan) -> AsyncIterator[None]:
    """Set the slices of the plan for the time of the block."""
    bounds = ALWAYS | (SMALL_SLICES if plan.small_slices else {})
    before = {(module, name): getattr(module, name) for module, name in bounds}
    for (module, name), bound in bounds.items():
        setattr(module, name, bound)
    try:
        yield
    finally:
        for (module, name), bound in before.items():
            setattr(module, name, bound)


def _roles(rng: random.Random) -> tuple[dict[int, str], tuple[int, ...]]:
    """Return the roles, and the first voters if they are in the log."""
    return rng.choices(
        (
            ({1: BOTH, 2: BOTH, 3: BOTH}, ()),
            ({1: BOTH, 2: BOTH, 3: BOTH, 4: "broker"}, ()),
            ({1: "broker", 2: "broker", 3: "broker", 4: "controller", 5: "controller", 6: "controller"}, ()),
            ({1: BOTH, 2: BOTH, 3: BOTH, 4: "controller", 5: "controller"}, ()),
            ({1: BOTH, 2: BOTH, 3: BOTH, 4: "controller"}, (1, 2, 3)),
        ),
        (11, 4, 4, 1, 2),
    )[0]


def settings_of(plan: Plan, number: int, rng: random.Random) -> dict[str, str]:
    """Return the settings of one node, in addition to those of all nodes."""
    settings: dict[str, str] = {}
    if "broker" in plan.roles[number]:
        settings["broker.rack"] = rng.choice(("north", "south"))
    if plan.first_voters:
        servers = (f"n{n}:{CONTROLLER_PORT}" for n in plan.first_voters)
        settings |= {"controller.quorum.bootstrap.servers": ",".join(servers), "controller.quorum.voters": ""}
    return settings


def format_nodes(plan: Plan, cluster: SimCluster) -> None:
    """Format the nodes that do not format themselves, as `kafka-storage format` would."""
    if plan.metadata_version is None and not plan.first_voters:
        return
    directories = {node.number: _format(plan, node) for node in cluster.nodes}
    if plan.first_voters:
        voters = VoterSet.of(
            Voter(ReplicaKey(n, directories[n]), (QuorumEndpoint("CONTROLLER", f"n{n}", CONTROLLER_PORT),))
            for n in plan.first_voters
        )
        for number in plan.first_voters:
            node = cluster.by_number[number]
            write_initial_voters(node.host.disk, f"{node.metadata_directory}/__cluster_metadata-0", voters, 0)
            node.host.disk.sync_dir(node.metadata_directory)


def _format(plan: Plan, node: SimNode) -> bytes:
    """Return the id of the directory with the metadata log."""
    disk = node.host.disk
    format_node(disk, node.properties, node.number)
    if plan.metadata_version is not None:
        level = FeatureLevelRecord(name="metadata.version", feature_level=plan.metadata_version)
        write_bootstrap(disk, node.metadata_directory, [encode_record(level, 0)], 0)
    meta = read_meta_properties(disk, node.metadata_directory)
    assert meta is not None and meta.directory_id is not None
    return meta.directory_id
