"""The log directory of a combined node goes from one kind to the other and back; the tools and images of each understand what
the other wrote.
"""

from __future__ import annotations

from pathlib import Path

from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.snapshots import Snapshots
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.records.batch import HEADER_BYTES, BatchView, batch_size
from ottla.protocol.work import do_now
from ottla.storage.files import OsFiles
from tests.compat.mixed import clients
from tests.compat.mixed.nodes import KAFKA, OTTLA, Mixed, Node, NotSo, tool, until
from tools.apache_kafka import ToolSession

IN_TURN = (KAFKA, OTTLA, KAFKA, OTTLA, KAFKA)
RETENTION_MS = "123456789"
#: Below a delivery of the metadata loader, so that each one is followed by a snapshot.
SNAPSHOT_BYTES = 8_000
VOTERS = (1, 2, 3)


def go_on(directory: Path, how: str, quorum: str) -> None:
    """Go on after an orderly stop or kill -9, with a static quorum or a standalone one (kraft.version 1), and many snapshots."""
    end = {"stop": Node.stop, "kill": Node.kill}[how]
    static = quorum == "static"
    with Mixed(
        directory, [1] if static else [], metadata_log_max_record_bytes_between_snapshots=SNAPSHOT_BYTES
    ) as mixed:
        if not static:
            mixed.properties["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{mixed.base_port + 11}"
        node = mixed.add(KAFKA, 1, "broker,controller").format(*(() if static else ("--standalone",)))
        written: list[str] = []
        topics = {"t"}
        for turn, kind in enumerate(IN_TURN):
            node.become(kind).start()
            mixed.wait_brokers(1)
            if turn == 0:
                mixed.create("t", [[1]], retention_ms=RETENTION_MS)
            mixed.wait_isr("t", [1])
            clients.check(node.bootstrap, "t", written)
            more, committed = [f"{turn} {i}" for i in range(300)], [f"{turn} committed {i}" for i in range(10)]
            clients.produce(node.bootstrap, "t", more)
            clients.transact(node.bootstrap, "t", committed, f"id-{turn % 2}")
            clients.check_by_group(node.bootstrap, "t", "g", more + committed)
            written += more + committed
            topics |= {f"{kind}-{turn}-{number}" for number in range(5)}
            for topic in sorted(topics):
                mixed.create(topic, [[1]] * 10)
            if (found := _retention_ms(mixed)) != RETENTION_MS:
                raise NotSo(f"retention.ms is {found} at {kind} {turn}")
            for topic in topics:
                mixed.wait_isr(topic, [1])
            end(node)


def _retention_ms(mixed: Mixed) -> str | None:
    asked = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
    (found,) = mixed.request(DescribeConfigsRequest([asked]), ApiKey.DESCRIBE_CONFIGS, 4).results
    return found.configs[0].value if found.configs else None


def agree_about_snapshots(directory: Path) -> None:
    """Check that equal images come from the snapshots and logs that each node wrote, whatever records Kafka's tools made."""
    with Mixed(directory, VOTERS, metadata_log_max_record_bytes_between_snapshots=3_000) as mixed:
        nodes = [
            mixed.add(kind, voter, "broker,controller")
            for voter, kind in zip(VOTERS, (KAFKA, OTTLA, OTTLA), strict=True)
        ]
        for node in nodes:
            node.start()
        mixed.wait_brokers(*VOTERS)
        for number in range(8):
            mixed.create(f"t{number}", [VOTERS] * 4, **({"retention_ms": 1_000 + number} if number % 2 else {}))
        _make_records(mixed)
        clients.transact(mixed.bootstrap, "t1", ["x"], "id")
        mixed.wait_isr("t1", VOTERS)
        nodes[0].kill()
        mixed.create("while-down", [[2, 3]])
        nodes[0].start()
        mixed.wait_isr("t1", VOTERS)
        for number in range(30):
            mixed.create(f"u{number}", [VOTERS])
        until("snapshots of all", lambda: all(_known(node) for node in nodes))
        for node in nodes:
            node.kill()
        images = [image for node in nodes for image in _images(node, min(_end(each) for each in nodes))]
        if len(images) < len(nodes) or any(image.parts != images[0].parts for image in images):
            raise NotSo(f"{len(images)} images are not equal: {directory}")


def _make_records(mixed: Mixed) -> None:
    at = ("--bootstrap-server", mixed.bootstrap)
    alter = ("kafka-configs", *at, "--alter", "--add-config")
    alice = ("--entity-type", "users", "--entity-name", "alice")
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
    with ToolSession() as tools:
        for words in (
            (*alter, "SCRAM-SHA-256=[iterations=4096,password=x]", *alice),
            (*alter, rates, *alice, "--entity-type", "clients", "--entity-default"),
            (*alter, "log.cleaner.threads=2", "--entity-type", "brokers", "--entity-default"),
            ("kafka-client-metrics", *at, "--alter", "--name", "m", "--metrics", "org.apache", "--interval", "5000"),
            ("kafka-topics", *at, "--delete", "--topic", "t7"),
        ):
            if (done := tools.run(*words)).returncode:
                raise NotSo(f"{' '.join(words)}: {done.stdout}{done.stderr}")


def _batches(node: Node) -> list[CommittedBatch]:
    """Return the batches of a node's log; the last batch of a killed node is followed by the zeros of its preallocated segment."""
    found = []
    for file in sorted(node.metadata_dir.glob("*.log")):
        data, pos = memoryview(file.read_bytes()), 0
        while any(data[pos : pos + HEADER_BYTES]) and (size := batch_size(data, pos, len(data))) is not None:
            found.append(CommittedBatch(BatchView(data, pos)))
            pos += size
    return found


def _end(node: Node) -> int:
    return _batches(node)[-1].last_offset


def _known(node: Node) -> list[int]:
    return [found.offset for found in Snapshots(OsFiles(), str(node.metadata_dir)).known() if found.offset]


def _images(node: Node, end: int) -> list[MetadataImage]:
    """Return the image at this offset, made from each snapshot of the node and the log after it."""
    found, batches, snapshots = [], _batches(node), Snapshots(OsFiles(), str(node.metadata_dir))
    for snapshot in snapshots.known():
        if not 0 < snapshot.offset <= end:
            continue
        loader = MetadataLoader()
        do_now(loader.handle_snapshot(snapshots.reader(snapshot)))
        for batch in batches:
            if loader.last_offset < batch.base_offset and batch.last_offset <= end:
                do_now(loader.handle_commit([batch]))
        if loader.last_offset == end:
            found.append(loader.image)
    return found


def read_by_kafkas_tools(directory: Path) -> None:
    """Check the tools of the metadata quorum at an Ottla node, and those that read its files when it is stopped."""
    with Mixed(directory, [1], metadata_log_max_record_bytes_between_snapshots=3_000) as mixed:
        node = mixed.add(OTTLA, 1, "broker,controller").start()
        mixed.wait_brokers(1)
        for number in range(12):
            mixed.create(f"t{number}", [[1]] * 8)
        until("a snapshot", lambda: _known(node))
        at_broker, at_controller = (
            ("--bootstrap-server", node.bootstrap),
            ("--bootstrap-controller", node.controller_address),
        )
        default = ("--entity-type", "brokers", "--entity-default")
        with ToolSession() as tools:
            for says, *words in (
                *(("LeaderId: ", "kafka-metadata-quorum", *at, "describe", "--status") for at in (at_broker, at_controller)),
                *(("Leader", "kafka-metadata-quorum", *at, "describe", "--replication") for at in (at_broker, at_controller)),
                *(("FinalizedVersionLevel: 4.3", "kafka-features", *at, "describe") for at in (at_broker, at_controller)),
                ("Cluster ID: ", "kafka-cluster", "cluster-id", *at_broker),
                ("127.0.0.1", "kafka-cluster", "list-endpoints", *at_broker, "--include-fenced-brokers"),
                ("127.0.0.1", "kafka-cluster", "list-endpoints", *at_controller),
                ("Completed updating", "kafka-configs", *at_controller, "--alter", "--add-config", "min.insync.replicas=1", *default),
                ("min.insync.replicas=1", "kafka-configs", *at_controller, "--describe", *default),
            ):  # fmt: skip
                done = tools.run(*words)
                if done.returncode or says not in done.stdout:
                    raise NotSo(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        node.stop()
        _read_files(node)


def _read_files(node: Node) -> None:
    log, snapshot = min(node.metadata_dir.glob("*.log")), max(node.metadata_dir.glob("*.checkpoint"))
    for file in (log, snapshot):
        said = tool("kafka-dump-log", "--cluster-metadata-decoder", "--files", file)
        if "PARTITION_RECORD" not in said or "rror" in said or "xception" in said:
            raise NotSo(f"kafka-dump-log {file}: {said[-500:]}")
    indexes = ",".join(
        str(path) for kind in ("index", "timeindex") for path in sorted(node.metadata_dir.glob(f"*.{kind}"))
    )
    said = tool("kafka-dump-log", "--index-sanity-check", "--files", indexes)
    if "passed sanity check" not in said or "xception" in said:
        raise NotSo(f"kafka-dump-log of indexes: {said[-500:]}")
    said = tool("kafka-storage", "info", "-c", node.properties)
    if "Found metadata" not in said:
        raise NotSo(f"kafka-storage info: {said}")
