"""Quorums whose voters are of both kinds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.compat.mixed import clients
from tests.compat.mixed.nodes import KAFKA, KAFKA_OLDEST, OTTLA, Mixed, Node, NotSo, tool, until
from tools.apache_kafka import OLDEST

VOTERS = (1, 2, 3)
KILLS = 4
#: With these settings snapshots are written, and older segments are deleted.
SMALL_SNAPSHOTS = {
    "metadata_log_max_record_bytes_between_snapshots": 4_000,
    "internal_metadata_log_segment_bytes": 1_048_576,
    "metadata_max_retention_bytes": 20_000,
}
SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
DIRECTORY_ID = re.compile(r"^directory\.id=(.*)$", re.MULTILINE)


def survive(directory: Path, kinds: tuple[str, str, str]) -> None:
    """The active controller of either kind is killed, and a follower without its log gets a snapshot of the other kind."""
    with Mixed(directory, VOTERS, offsets_topic_replication_factor=3, **SMALL_SNAPSHOTS) as mixed:
        nodes = [mixed.add(kind, voter, "broker,controller") for kind, voter in zip(kinds, VOTERS, strict=True)]
        if KAFKA_OLDEST in kinds:
            # Who is elected first writes the metadata.version of its own formatting, and an older release could not read it.
            for node in nodes:
                node.format("--release-version", OLDEST.rpartition(".")[0])
        for node in nodes:
            node.start()
        mixed.wait_leader()
        mixed.wait_brokers(*VOTERS)
        mixed.create("t", [VOTERS], min_insync_replicas=2)
        mixed.wait_isr("t", VOTERS)
        written = [f"m{i}" for i in range(500)]
        clients.produce(mixed.bootstrap, "t", written)
        for turn in range(KILLS):
            active, epoch = mixed.wait_leader(), mixed.epoch()
            active.kill()
            mixed.wait_leader(epoch)
            mixed.create(f"after-{turn}", [[node.id for node in mixed.serving()]])
            more = [f"kill {turn}, {i}" for i in range(200)]
            clients.produce(mixed.bootstrap, "t", more)
            written += more
            active.start()
            mixed.wait_isr("t", VOTERS)
            clients.check(mixed.bootstrap, "t", written)
        for number in range(15):
            mixed.create(f"many-{number}", [VOTERS] * 10)
        until("snapshots of all", lambda: all(_snapshots(node) for node in nodes))
        for node in nodes:
            _lose_metadata_log(mixed, node)
        clients.check(mixed.bootstrap, "t", written)


def _lose_metadata_log(mixed: Mixed, node: Node) -> None:
    """Remove the node's metadata log. The node comes back as a follower, and reads its leader's snapshot."""
    epoch = mixed.epoch()
    if mixed.wait_leader() is node:
        node.stop()
        mixed.wait_leader(epoch)
    else:
        node.stop()
    for entry in node.metadata_dir.iterdir():
        if entry.name != "partition.metadata":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    node.start()
    mixed.wait_isr("t", VOTERS)
    # A node that read the log from its beginning would have that segment.
    until(f"a snapshot at {node.kind} {node.id}", lambda: _snapshots(node))
    if (node.metadata_dir / f"{0:020}.log").exists():
        raise NotSo(f"{node.kind} {node.id} read the whole log: {sorted(p.name for p in node.metadata_dir.iterdir())}")


def _snapshots(node: Node) -> list[int]:
    """Return the offsets of the node's snapshots, without the initial one."""
    names = (SNAPSHOT.fullmatch(path.name) for path in node.metadata_dir.iterdir())
    return sorted(offset for match in names if match is not None and (offset := int(match[1])))


def replace_voters(directory: Path, first_kind: str) -> None:
    """The voters are in the log (KIP-853): controllers of both kinds are added by Kafka's tool, then the first one is killed
    and removed.
    """
    with Mixed(directory) as mixed:
        bootstrap = f"127.0.0.1:{mixed.base_port + 11}"
        mixed.properties["controller.quorum.bootstrap.servers"] = bootstrap
        first = mixed.add(first_kind, 1, "controller").format("--standalone").start()
        added = [
            mixed.add(KAFKA, 2, "controller").format("--no-initial-controllers"),
            mixed.add(OTTLA, 3, "controller").format("--no-initial-controllers"),
        ]
        broker = mixed.add(OTTLA, 4, "broker").start()
        mixed.wait_brokers(4)
        for node in added:
            node.start()
            _until_added(node, bootstrap)
        mixed.create("before", [[4]])
        directory_id = DIRECTORY_ID.search((first.dir / "meta.properties").read_text())
        assert directory_id is not None
        first.kill()
        mixed.create("after", [[4]])
        left = added[1].controller_address
        said = tool(
            "kafka-metadata-quorum", "--bootstrap-controller", left,
            "remove-controller", "-i", 1, "-d", directory_id[1].replace("\\", ""),
        )  # fmt: skip
        if "Removed" not in said:
            raise NotSo(said)
        status = tool("kafka-metadata-quorum", "--bootstrap-server", broker.bootstrap, "describe", "--status")
        voters = next((line for line in status.splitlines() if line.startswith("CurrentVoters")), status)
        if sorted(re.findall(r'"id": (\d)', voters)) != ["2", "3"]:
            raise NotSo(voters)
        mixed.create("last", [[4]])


def _until_added(node: Node, bootstrap: str) -> None:
    """Wait until the node is added as a voter. It has to catch up with the log before."""
    said = ""

    def done() -> bool:
        nonlocal said
        said = tool(
            "kafka-metadata-quorum",
            "--command-config",
            node.properties,
            "--bootstrap-controller",
            bootstrap,
            "add-controller",
        )
        return "Added controller" in said or "DuplicateVoter" in said

    try:
        until(f"{node.kind} {node.id} votes", done)
    except NotSo as error:
        raise NotSo(f"{error}: {said}") from None


def raise_kraft_version(directory: Path, leading: str) -> None:
    """kraft.version becomes 1 in a static quorum of both kinds while a node of this kind leads."""
    kinds = {1: leading, 2: KAFKA if leading == OTTLA else OTTLA, 3: leading}
    with Mixed(directory, VOTERS) as mixed:
        nodes = {voter: mixed.add(kind, voter, "controller") for voter, kind in kinds.items()}
        nodes[1].start()
        nodes[3].start()
        leader = mixed.wait_leader()
        nodes[2].start()
        broker = mixed.add(OTTLA, 4, "broker").start()
        mixed.wait_brokers(4)
        assert mixed.wait_leader() is leader

        def raised() -> bool:
            upgrade = ("upgrade", "--feature", "kraft.version=1")
            return "was upgraded" in tool("kafka-features", "--bootstrap-server", broker.bootstrap, *upgrade)

        until(f"kraft.version is raised by {leader.kind}", raised)
        epoch = mixed.epoch()
        leader.kill()
        mixed.wait_leader(epoch)
        mixed.create("after", [[4]])
        leader.start()
        status = tool("kafka-metadata-quorum", "--bootstrap-server", broker.bootstrap, "describe", "--status")
        directories = re.findall(r'"directoryId": "([^"]+)"', status)
        if len(set(directories)) < len(VOTERS):
            raise NotSo(status)
