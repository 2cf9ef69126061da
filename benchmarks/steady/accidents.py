"""The accidents of the cluster, as data: a row is a name, a preparation, the accident itself, and a clean-up.

`strike` returns when the accident is over, and returns its description. Its clients are started by `prepare` and wait, so that
their start is not part of the accident.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks import raw
from benchmarks.steady.clients import Child
from benchmarks.steady.target import Target, wait
from ottla.protocol.records.builder import build_batch

#: One client process in Python makes 150 handshakes a second.
TLS_PROCESSES = 4
#: A batch of 800 records of 1 KB, below the 1 MB that a server takes.
RECORDS, RECORD_BYTES = 800, 1_000
#: The smallest segment that Kafka 4 accepts; and the segment of the compacted log, so large that its active segment is never
#: rolled.
SMALL_SEGMENT_BYTES, SEGMENT_BYTES = 1 << 20, 64 << 20
SEGMENTS_MIN = 16
#: The number of versions of each key in the compacted topic.
KEY_VERSIONS = 10
COMPACTED = 0.3
#: The length of accidents that go on until they are ended.
LASTING_SECONDS = 10.0
#: The time for which a killed node stays away.
AWAY_SECONDS = 5.0
PARTITIONS = 6


@dataclass(frozen=True)
class Sizes:
    """The sizes of the accidents. With the defaults both servers take a quarter of an hour."""

    catch_up_gb: float = 1.0
    read_gb: float = 2.0
    compacted_gb: float = 1.0
    partitions: int = 1_000
    moved: int = 100
    segments: int = 100
    members: int = 500
    connections: int = 500


#: The sizes that the goals name.
FULL = Sizes(catch_up_gb=10.0, read_gb=5.0, compacted_gb=10.0)
#: Sizes for a check that each row runs.
SHORT = Sizes(0.05, 0.1, 0.05, 30, 6, 10, 20, 50)


@dataclass
class Scene:
    """One accident at one cluster."""

    target: Target
    sizes: Sizes
    children: list[Child] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)

    def child(self, name: str, **options: Any) -> None:
        self.children.append(Child(name, options))

    def lasting(self, seconds: float = LASTING_SECONDS) -> list[Any]:
        """Let the children work for that time; return their figures."""
        for each in self.children:
            each.begin()
        time.sleep(seconds)
        for each in self.children:
            each.stop()
        return [each.figures() for each in self.children]

    def close(self) -> None:
        for each in self.children:
            each.kill()


@dataclass(frozen=True)
class Accident:
    """A row. Its name has the sizes in braces."""

    name: str
    strike: Callable[[Scene], str]
    prepare: Callable[[Scene], None] = lambda scene: None
    #: The topics that the accident creates; they are deleted after it.
    topics: tuple[str, ...] = ()


def batches(gigabytes: float, partition: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the same batch again and again, of records that do not compress."""
    batch = build_batch([(None, os.urandom(RECORD_BYTES), now_ms()) for _ in range(RECORDS)])
    return ((partition, batch) for _ in range(max(1, round(gigabytes * 1e9 / len(batch)))))


def now_ms() -> int:
    return int(time.time() * 1000)


# -- Clients -------------------------------------------------------------------------------------------------------------


def prepare_tls(scene: Scene) -> None:
    where = scene.target.tls(scene.target.cast.leader)
    for _ in range(TLS_PROCESSES):
        scene.child("arrive", **where, rate=scene.sizes.connections / TLS_PROCESSES)


def strike_tls(scene: Scene) -> str:
    found = scene.lasting()
    return f"{sum(each['made'] / each['seconds'] for each in found):.0f} connections/s"


def prepare_read(scene: Scene) -> None:
    target, leader = scene.target, scene.target.cast.leader
    target.create("backlog", [[leader]])
    target.write("backlog", leader, batches(min(1.0, scene.sizes.read_gb)))
    host, port = target.addresses[leader]
    scene.child("read", host=host, port=port, topic="backlog", bytes=scene.sizes.read_gb * 1e9)


def strike_read(scene: Scene) -> str:
    (found,) = scene.lasting()
    return f"{found['bytes'] / 1e9:.1f} GB at {found['bytes'] / found['seconds'] / 1e6:,.0f} MB/s"


def prepare_group(scene: Scene) -> None:
    leader = scene.target.cast.leader
    group, (_, port) = scene.target.group_of(leader), scene.target.addresses[leader]
    scene.child("group", group=f"{group}", port=port, members=scene.sizes.members)


def strike_group(scene: Scene) -> str:
    (found,) = scene.lasting()
    return f"{found['rebalances']} rebalances of {scene.sizes.members} in {found['seconds']:.0f} s"


# -- Partitions ----------------------------------------------------------------------------------------------------------


def everywhere(scene: Scene) -> list[list[int]]:
    ids = list(scene.target.addresses)
    return [ids[number % 3 :] + ids[: number % 3] for number in range(scene.sizes.partitions)]


def strike_creation(scene: Scene) -> str:
    begin = time.monotonic()
    scene.target.create("new", everywhere(scene))
    return f"known everywhere after {time.monotonic() - begin:.1f} s"


def prepare_deletion(scene: Scene) -> None:
    """Write a record into each partition, which creates its files."""
    assignment = everywhere(scene)
    scene.target.create("doomed", assignment)
    batch = raw.one_record_batch(b"first")
    for leader in scene.target.addresses:
        led = (number for number, replicas in enumerate(assignment) if replicas[0] == leader)
        scene.target.write("doomed", leader, ((number, batch) for number in led))


def strike_deletion(scene: Scene) -> str:
    begin = time.monotonic()
    scene.target.delete("doomed")
    wait("the files go", lambda: not scene.target.has_directories("doomed"))
    return f"files gone after {time.monotonic() - begin:.1f} s"


def prepare_reassignment(scene: Scene) -> None:
    cast = scene.target.cast
    scene.target.create("moving", [[cast.leader, cast.follower]] * scene.sizes.moved)
    for number in range(scene.sizes.moved):
        scene.target.write("moving", cast.leader, batches(0.002, number))


def strike_reassignment(scene: Scene) -> str:
    cast, begin = scene.target.cast, time.monotonic()
    moved = [cast.leader, cast.controller]
    scene.target.reassign("moving", scene.sizes.moved, moved)
    scene.target.wait_known("moving", [moved] * scene.sizes.moved)
    return f"{scene.sizes.moved * 2} MB moved after {time.monotonic() - begin:.1f} s"


# -- Logs ----------------------------------------------------------------------------------------------------------------


def prepare_compaction(scene: Scene) -> None:
    """Write each key KEY_VERSIONS times."""
    leader = scene.target.cast.leader
    each = round(scene.sizes.compacted_gb * 1e9 / SEGMENTS_MIN)
    segment_bytes = min(max(each, SMALL_SEGMENT_BYTES), SEGMENT_BYTES)
    scene.target.create("compacted", [[leader]], segment_bytes=segment_bytes)
    count = max(1, round(scene.sizes.compacted_gb * 1e6 / KEY_VERSIONS / RECORDS))
    value = os.urandom(RECORD_BYTES)
    for _ in range(KEY_VERSIONS):
        rounds = (
            (0, build_batch([(b"key-%d-%d" % (number, key), value, now_ms()) for key in range(RECORDS)]))
            for number in range(count)
        )
        scene.target.write("compacted", leader, rounds)


def strike_compaction(scene: Scene) -> str:
    target, leader = scene.target, scene.target.cast.leader
    before, begin = target.size("compacted", leader), time.monotonic()
    target.alter("compacted", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    wait("compaction", lambda: target.size("compacted", leader) < COMPACTED * before)
    after = target.size("compacted", leader)
    return f"{before / 1e6:,.0f} MB to {after / 1e6:,.0f} after {time.monotonic() - begin:.1f} s"


def prepare_retention(scene: Scene) -> None:
    target = scene.target
    leader = target.cast.leader
    replicas = [leader, target.cast.follower, target.cast.controller]
    target.create("expiring", [replicas], segment_bytes=SMALL_SEGMENT_BYTES)
    target.write("expiring", leader, batches((scene.sizes.segments + 1) * SMALL_SEGMENT_BYTES / 1e9))


def strike_retention(scene: Scene) -> str:
    target, begin = scene.target, time.monotonic()
    target.alter("expiring", {"retention.bytes": "1"})
    few = 3 * SMALL_SEGMENT_BYTES
    wait("retention", lambda: all(target.size("expiring", node_id) < few for node_id in target.addresses))
    return f"gone from all replicas after {time.monotonic() - begin:.1f} s"


# -- Nodes ---------------------------------------------------------------------------------------------------------------


def prepare_catch_up(scene: Scene) -> None:
    """Stop the follower, and write the size that it will have to catch up."""
    target, cast = scene.target, scene.target.cast
    leaders = [cast.leader, cast.controller]
    missed = [[leaders[number % 2], leaders[(number + 1) % 2], cast.follower] for number in range(PARTITIONS)]
    target.create("missed", missed, min_insync_replicas=2)
    target.stop(cast.follower)
    for number, replicas in enumerate(missed):
        target.write("missed", replicas[0], batches(scene.sizes.catch_up_gb / PARTITIONS, number))


def strike_catch_up(scene: Scene) -> str:
    begin = time.monotonic()
    scene.target.start(scene.target.cast.follower)
    scene.target.wait_in_sync()
    took = time.monotonic() - begin
    return f"{scene.sizes.catch_up_gb:g} GB at {scene.sizes.catch_up_gb * 1e3 / took:.0f} MB/s"


def strike_restarts(scene: Scene) -> str:
    begin = time.monotonic()
    for node_id in scene.target.addresses:
        scene.target.stop(node_id)
        scene.target.start(node_id)
        scene.target.wait_in_sync()
    return f"all three in {time.monotonic() - begin:.1f} s"


def killed(role: str) -> Callable[[Scene], str]:
    def strike(scene: Scene) -> str:
        node_id = getattr(scene.target.cast, role)
        scene.target.kill(node_id)
        time.sleep(AWAY_SECONDS)
        begin = time.monotonic()
        scene.target.start(node_id)
        scene.target.wait_in_sync()
        return f"started {AWAY_SECONDS:g} s later, in sync after {time.monotonic() - begin:.1f} s"

    return strike


ACCIDENTS = [
    Accident("{connections} new TLS connections/s", strike_tls, prepare_tls),
    Accident("a node catches up", strike_catch_up, prepare_catch_up, ("missed",)),
    Accident("a consumer reads from the beginning", strike_read, prepare_read, ("backlog",)),
    Accident("compaction", strike_compaction, prepare_compaction, ("compacted",)),
    Accident("{partitions:,} partitions are created", strike_creation, topics=("new",)),
    Accident("{partitions:,} partitions are deleted", strike_deletion, prepare_deletion),
    Accident("a group of {members} rebalances", strike_group, prepare_group),
    Accident("{moved} partitions are reassigned", strike_reassignment, prepare_reassignment, ("moving",)),
    Accident("retention deletes {segments} segments", strike_retention, prepare_retention, ("expiring",)),
    Accident("rolling restart", strike_restarts),
    Accident("kill -9 of a follower", killed("follower")),
    Accident("kill -9 of the leader", killed("leader")),
    Accident("kill -9 of the active controller", killed("controller")),
]
