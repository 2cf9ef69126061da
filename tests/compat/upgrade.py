"""`make compat ARGS="upgrade [COMMIT]"`: the wheel of this tree goes on with data of the wheel of an older commit, and the
older one with data of the newer.

Both wheels are built, the old one from the commit's files, the new one as `make dist` does, and installed into empty
environments.
"""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
import tarfile
import threading
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.cimpl import Message
from confluent_kafka.error import KafkaError

from tests.compat.librdkafka import Outcome
from tests.compat.mixed import clients
from tests.compat.mixed.nodes import OTTLA, Mixed, Node, NotSo, until
from tests.ottla.conftest import Cli
from tests.unpacking import unpack
from tools import dist

#: The commit is of 24 November 2026.
COMMIT = "3319c38e"
OLD = "old"
PROPERTIES = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
    "log_segment_bytes": 1_048_576,
    "metadata_log_max_record_bytes_between_snapshots": 5_000,
}
#: The settings of a user, each made by a command of the newer wheel.
SETTINGS = (
    "user create alice --generate",
    "acl add alice read topic:plain",
    "acl add bob write topic:pl --prefixed --deny",
    "quota set user alice producer_byte_rate=1048576",
    "quota set user <default> --client-id app consumer_byte_rate=5000",
    "config set topic plain retention.ms=86400000",
    "config set broker all log.cleaner.threads=2",
    "config set group readers consumer.session.timeout.ms=50000",
)
#: The commands whose rows, as JSON, must be the same before and after: of topics and settings, and of groups and transactions.
LISTS = (
    "topic list", "topic describe plain", "topic describe changes", "config get topic plain --changed", "config get topic changes --changed",
    "config get broker all", "config get group readers --changed", "user list", "quota list", "acl list", "group list", "group describe classic",
    "group describe readers", "txn list",
)  # fmt: skip
#: The fields of these rows that a restart may change.
VARYING = frozenset(("leader", "leader_epoch", "isr", "coordinator", "state", "producer_epoch", "producer_id", "bytes"))
PAUSE_S = 0.002


def missing(commit: str) -> str | None:
    """Return why the older wheel cannot be built."""
    done = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=dist.ROOT, capture_output=True)
    return f"this clone has no commit {commit}" if done.returncode else None


def install(wheel: Path, folder: Path) -> str:
    """Install a wheel into an environment of its own. Returns its interpreter."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise NotSo(f"{wheel.name} cannot be installed: {done.stderr[-500:]}")
    return python


def old_wheel(commit: str, folder: Path) -> Path:
    """Build the wheel of a commit from its files."""
    packed = subprocess.run(["git", "archive", commit], cwd=dist.ROOT, capture_output=True, check=True).stdout
    source = folder / "source"
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        unpack(archive, source)
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=source, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


class Machine:
    """The interpreters of both versions, and clusters with nodes of either."""

    def __init__(self, commit: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._old = install(old_wheel(commit, folder), folder / "old-environment")
        (new,) = [
            path for path in dist.build(folder / "dist") if path.name.startswith("ottla-") and path.suffix == ".whl"
        ]
        self._new = install(new, folder / "new-environment")

    @contextmanager
    def cluster(self, directory: Path, nodes: int, **properties: object) -> Iterator[Mixed]:
        """Start nodes of the old version."""
        ids = list(range(1, nodes + 1))
        with Mixed(directory, ids, **PROPERTIES, **properties) as mixed:
            # Isolated: PYTHONPATH may name this tree.
            mixed.pythons |= {OLD: [self._old, "-I"], OTTLA: [self._new, "-I"]}
            mixed.release = {}  # no node of Apache Kafka takes part
            for node in ids:
                mixed.add(OLD, node, "broker,controller").start()
            mixed.wait_brokers(*ids)
            yield mixed


def rows(cli: Cli, lists: Sequence[str] = LISTS) -> dict[str, object]:
    """Return the state of the cluster, by the commands that list it."""
    found: dict[str, object] = {}
    for words in lists:
        listed = cli.rows(*words.split())
        found[words] = [{name: value for name, value in row.items() if name not in VARYING} for row in listed]
    return found


def expect_same(before: dict[str, object], after: dict[str, object]) -> None:
    for words, expected in before.items():
        if after[words] != expected:
            raise NotSo(f"ottla {words}: {after[words]}, before it was {expected}")


def fill(mixed: Mixed, replicas: list[int]) -> tuple[list[str], list[str]]:
    """Make topics, records, transactions, groups and settings. Returns the values of both topics."""
    cli = Cli(mixed.bootstrap)
    mixed.create("plain", [replicas])
    mixed.create("changes", [replicas], compression_type="lz4")
    plain, changes = [f"value-{i}" * 20 for i in range(8_000)], [f"c{i}" for i in range(50)]
    clients.produce(mixed.bootstrap, "plain", plain)
    clients.transact(mixed.bootstrap, "changes", changes, "bank")
    for words in SETTINGS:
        cli.ok(*words.split())
    clients.check_by_group(mixed.bootstrap, "plain", "classic", plain)
    clients.check_by_group(mixed.bootstrap, "plain", "readers", plain, **{"group.protocol": "consumer"})
    return plain, changes


def go_on(machine: Machine, directory: Path, end: Callable[[Node], None]) -> None:
    """One node changes its version: the new one opens the directory of the old one, and the old one that of the new one."""
    with machine.cluster(directory, 1) as mixed:
        (node,) = mixed.nodes.values()
        plain, changes = fill(mixed, [1])
        before = rows(Cli(mixed.bootstrap))
        for turn, kind in enumerate((OTTLA, OLD, OTTLA)):
            end(node)
            node.become(kind).start()
            mixed.wait_brokers(1)
            mixed.wait_isr("plain", [1])
            expect_same(before, rows(Cli(mixed.bootstrap)))
            clients.check(mixed.bootstrap, "plain", plain)
            clients.check(mixed.bootstrap, "changes", changes)
            more = [f"by {kind} {turn}-{i}" for i in range(200)]
            clients.produce(mixed.bootstrap, "plain", more)
            clients.check_by_group(mixed.bootstrap, "plain", "classic", more)
            clients.check_by_group(mixed.bootstrap, "plain", "readers", more, **{"group.protocol": "consumer"})
            plain += more
            changes += (added := [f"t{turn}-{i}" for i in range(5)])
            clients.transact(mixed.bootstrap, "changes", added, "bank")
            before = rows(Cli(mixed.bootstrap))


class Load:
    """A producer with acks=all that runs while nodes are replaced, and its acknowledged records."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[str] = []
        self.failures: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                **clients.SILENT,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._over.wait(PAUSE_S):
                break
            self._producer.produce(self._topic, f"{number}", partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
        if left := self._producer.flush(150):
            self.failures.append(f"{left} records are not acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append((message.value() or b"").decode())
        else:
            self.failures.append(str(error))


def roll(machine: Machine, directory: Path) -> None:
    """Three nodes are replaced one by one under load, and back: no acknowledged record is lost, and no write fails."""
    with machine.cluster(
        directory, 3, offsets_topic_replication_factor=3, transaction_state_log_replication_factor=3
    ) as mixed:
        ids = sorted(mixed.nodes)
        plain, changes = fill(mixed, ids)
        mixed.create("load", [ids], min_insync_replicas=2)
        before = rows(Cli(mixed.bootstrap))
        with Load(mixed.bootstrap, "load") as load:
            for kind in (OTTLA, OLD):
                for node in mixed.nodes.values():
                    for topic in ("plain", "changes", "load", "__consumer_offsets"):
                        mixed.wait_isr(topic, ids)
                    node.stop()
                    node.become(kind).start()
                    mixed.wait_brokers(*ids)
                begun = len(load.acknowledged)
                until("the load goes on", lambda begun=begun: len(load.acknowledged) > begun + 100)
        if load.failures:
            raise NotSo(f"{len(load.failures)} writes failed: {load.failures[:2]}")
        mixed.wait_isr("load", ids)
        expect_same(before, rows(Cli(mixed.bootstrap)))
        clients.check(mixed.bootstrap, "plain", plain)
        clients.check(mixed.bootstrap, "changes", changes)
        clients.check(mixed.bootstrap, "load", load.acknowledged)


STEPS: dict[str, Callable[[Machine, Path], None]] = {
    "stop": lambda machine, directory: go_on(machine, directory, Node.stop),
    "kill": lambda machine, directory: go_on(machine, directory, Node.kill),
    "roll": roll,
}


def outcomes(commit: str, names: list[str], logs: Path) -> Iterator[Outcome]:
    """Run each step, or the named ones."""
    machine = Machine(commit, logs / "upgrade")
    for name in [name for name in STEPS if name in names] or STEPS:
        begin, result, why = time.monotonic(), "PASS", ""
        try:
            STEPS[name](machine, logs / f"upgrade-{name}")
        except (AssertionError, NotSo, OSError) as error:
            result, why = "FAIL", f"{type(error).__name__}: {error}"
        yield Outcome(f"upgrade-{name}", result, time.monotonic() - begin, why)
