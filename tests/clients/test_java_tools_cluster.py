"""Apache Kafka's own command-line tools against three nodes; skipped with the reason where Java is missing.

One JVM runs them all: the tools take a tenth of a second each, a JVM two seconds of processor time.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.cluster.roles import HOST, separate_roles
from tests.cluster.shared import STEADY
from tests.needs import needs_apache_kafka
from tools.apache_kafka import ToolSession, java_command
from tools.apache_kafka.programs import TOOLS

pytestmark = [
    needs_apache_kafka,
    pytest.mark.timeout(300),
]

CONSUMED_SECONDS_MAX = 60

#: Runs a tool, which has to succeed, and returns its output.
Run = Callable[..., str]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the directories of node 1. The other nodes have one each."""
    place = tmp_path_factory.mktemp("node-1")
    return [str(place / "one"), str(place / "two")]


@pytest.fixture(scope="module")
def cluster(directories: list[str]) -> Iterator[Cluster]:
    # The tools are those of 4.3.1, and do not know later levels.
    release = {"ottla.advertised.release": "4.3.1"}
    with Cluster(3, per_node={1: {"log.dirs": ",".join(directories)}}, **release, **STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolSession]:
    with ToolSession() as session:
        yield session


@pytest.fixture
def run(tools: ToolSession, cluster: Cluster) -> Run:
    def run(name: str, *args: str, stdin: str = "", code: int = 0) -> str:
        where = ("--bootstrap-server", cluster.bootstrap)
        # kafka-cluster needs its command as the first argument.
        words = (args[0], *where, *args[1:]) if name == "kafka-cluster" else (*where, *args)
        done = tools.run(name, *words, stdin=stdin)
        assert done.returncode == code, f"{name} {' '.join(args)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


def create(run: Run, cluster: Cluster, topic: str, *args: str) -> None:
    """Create a topic and wait until every broker knows it: the next tool may send its requests to any of them."""
    run("kafka-topics", "--create", "--topic", topic, *args)
    for node_id in cluster.nodes:
        eventually(lambda n=node_id: not cluster.metadata([topic], n).topics[0].error_code, f"{topic} on {node_id}")


def of_brokers(run: Run) -> str:
    """Return the settings of all brokers, each as this broker knows them: a change arrives some milliseconds after its
    response.
    """
    return run("kafka-configs", "--describe", "--entity-type", "brokers")


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of a table with a header and columns separated by white space."""
    header, *rows = (line.split() for line in text.splitlines() if line.strip())
    return [dict(zip(header, row, strict=False)) for row in rows]


@pytest.mark.compat
def test_the_quorum_is_described_with_its_three_voters(run: Run) -> None:
    status = dict(line.split(":", 1) for line in run("kafka-metadata-quorum", "describe", "--status").splitlines())
    assert status["LeaderId"].strip() in ("1", "2", "3")
    voters = json.loads(status["CurrentVoters"])
    assert [voter["id"] for voter in voters] == [1, 2, 3]
    assert all(re.fullmatch(r"CONTROLLER://127\.0\.0\.1:\d+", voter["endpoints"][0]) for voter in voters)
    rows = table(run("kafka-metadata-quorum", "describe", "--replication"))
    assert sorted(row["NodeId"] for row in rows) == ["1", "2", "3"]
    assert sorted(row["Status"] for row in rows) == ["Follower", "Follower", "Leader"]


@pytest.mark.compat
def test_features_are_described_and_changed_where_that_is_allowed(run: Run) -> None:
    def levels() -> dict[str, str]:
        lines = run("kafka-features", "describe").splitlines()
        return {line.split()[1]: line.split("FinalizedVersionLevel:")[1].split()[0] for line in lines}

    assert levels() == {
        "eligible.leader.replicas.version": "1", "group.version": "1", "kraft.version": "0", "metadata.version": "4.3-IV0",
        "share.version": "1", "streams.version": "1", "transaction.version": "2",
    }  # fmt: skip
    assert "share.version was downgraded to 0." in run("kafka-features", "downgrade", "--feature", "share.version=0")
    eventually(lambda: levels()["share.version"] == "0", "every broker that is asked to know it")
    assert "share.version was upgraded to 1." in run("kafka-features", "upgrade", "--feature", "share.version=1")
    too_high = run("kafka-features", "upgrade", "--feature", "transaction.version=7", code=1)
    assert "only supports versions 0-2" in too_high
    lossy = run("kafka-features", "downgrade", "--feature", "metadata.version=7", code=1)
    assert "Refusing to perform the requested downgrade because it might delete metadata information." in lossy
    everything = run("kafka-features", "upgrade", "--release-version", "4.3-IV0", "--dry-run")
    assert "kraft.version can be upgraded to 1." in everything
    assert levels()["kraft.version"] == "0", "that was a dry run"


@pytest.mark.compat
def test_endpoints_and_versions_of_brokers_are_listed(run: Run, cluster: Cluster) -> None:
    rows = table(run("kafka-cluster", "list-endpoints"))
    assert {row["ID"]: (row["PORT"], row["STATE"]) for row in rows} == {
        str(node.id): (str(node.port), "unfenced") for node in cluster.nodes.values()
    }
    versions = run("kafka-broker-api-versions")
    assert versions.count("isFenced: false) -> (") == 3
    assert versions.count("Fetch(1): 4 to 18 [usable: 18]") == 3


@pytest.mark.compat
def test_partitions_that_miss_a_replica_are_listed_while_a_broker_is_away(run: Run, cluster: Cluster) -> None:
    create(run, cluster, "watched", "--partitions", "3", "--replication-factor", "3",
        "--config", "min.insync.replicas=3")  # fmt: skip
    described = run("kafka-topics", "--describe", "--topic", "watched")
    assert "PartitionCount: 3\tReplicationFactor: 3" in described
    lists = {
        name: lambda name=name: run("kafka-topics", "--describe", "--topic", "watched", name).count("Partition:")
        for name in ("--under-replicated-partitions", "--under-min-isr-partitions", "--at-min-isr-partitions", "--unavailable-partitions")
    }  # fmt: skip
    assert [count() for count in lists.values()] == [0, 0, 3, 0]
    cluster.kill(3)
    eventually(lambda: lists["--under-replicated-partitions"]() == 3, "the ISR without the dead broker")
    eventually(lambda: [count() for count in lists.values()] == [3, 3, 0, 0], "each list to be without it")
    cluster.start(3)
    cluster.wait_isr("watched")
    eventually(lambda: lists["--under-replicated-partitions"]() == 0, "no partition to miss a replica")


@pytest.mark.compat
def test_a_partition_is_moved_with_a_throttle_and_the_throttle_is_taken_back(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    create(run, cluster, "moved", "--replica-assignment", "1:2,2:1")
    topics, plan, back = (tmp_path / f"{name}.json" for name in ("topics", "plan", "back"))
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    generated = run(
        "kafka-reassign-partitions", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3", "--generate"
    )
    current, proposed = (json.loads(line) for line in generated.splitlines() if line.startswith("{"))
    assert [part["replicas"] for part in current["partitions"]] == [[1, 2], [2, 1]]
    assert all(set(part["replicas"]) == {2, 3} for part in proposed["partitions"])
    run(
        "kafka-producer-perf-test",
        "--topic",
        "moved",
        "--num-records",
        "300",
        "--record-size",
        "1000",
        "--throughput",
        "-1",
    )
    plan.write_text(json.dumps(proposed))
    by_plan = ("kafka-reassign-partitions", "--reassignment-json-file", str(plan))
    started = run(*by_plan, "--execute", "--throttle", "50000000")
    assert "The inter-broker throttle limit was set to 50000000 B/s" in started
    assert "Successfully started partition reassignments for moved-0,moved-1" in started
    rate = "  leader.replication.throttled.rate=50000000 sensitive=false"
    eventually(lambda: of_brokers(run).count(rate) == 3, "the throttle at each broker")

    def finished() -> bool:
        return run(*by_plan, "--verify").count("is completed.") == 2

    eventually(finished, "the moves to be over", seconds=60)
    eventually(lambda: "throttled" not in of_brokers(run), "the throttle's end at each broker")
    eventually(lambda: "throttled" not in run("kafka-topics", "--describe", "--topic", "moved"), "its end at the topic")
    assert run("kafka-reassign-partitions", "--list").strip() == "No partition reassignments found."
    offsets = run("kafka-get-offsets", "--topic", "moved")
    assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == 300
    back.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1, 9]}]}))
    refused = run("kafka-reassign-partitions", "--reassignment-json-file", str(back), "--execute", code=1)
    assert "Unknown broker id 9" in refused


@pytest.mark.compat
def test_a_move_that_a_throttle_holds_up_is_listed_and_cancelled(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    create(run, cluster, "slow", "--replica-assignment", "1:2")
    run("kafka-producer-perf-test", "--topic", "slow", "--num-records", "1000", "--record-size", "1000", "--throughput", "-1",
        "--command-property", "batch.size=2000")  # fmt: skip
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [3, 2]}]}))
    by_plan = ("kafka-reassign-partitions", "--reassignment-json-file", str(plan))
    # At this rate a megabyte takes a quarter of an hour.
    assert "Successfully started partition reassignment for slow-0" in run(*by_plan, "--execute", "--throttle", "1000")
    assert "slow-0: replicas: 3,2,1. adding: 3. removing: 1." in run("kafka-reassign-partitions", "--list")
    assert "Reassignment of partition slow-0 is still in progress." in run(*by_plan, "--verify")
    assert "Successfully cancelled partition reassignment for: slow-0" in run(*by_plan, "--cancel")
    assert run("kafka-reassign-partitions", "--list").strip() == "No partition reassignments found."
    eventually(lambda: "throttled" not in of_brokers(run), "the throttle's end at each broker")
    eventually(lambda: cluster.isr("slow") == {0: [1, 2]}, "the old replicas")


@pytest.mark.compat
def test_a_replica_is_moved_to_another_log_directory_under_a_throttle(
    run: Run, cluster: Cluster, directories: list[str], tmp_path: Path
) -> None:
    create(run, cluster, "aside", "--replica-assignment", "1:2")
    run("kafka-producer-perf-test", "--topic", "aside", "--num-records", "1000", "--record-size", "1000", "--throughput", "-1",
        "--command-property", "batch.size=2000")  # fmt: skip

    def replicas() -> dict[bool, tuple[str, int]]:
        """Return, for the copy and for the log itself, the directory and the lag."""
        printed = run("kafka-log-dirs", "--describe", "--topic-list", "aside", "--broker-list", "1")
        (broker,) = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))["brokers"]
        return {
            part["isFuture"]: (place["logDir"], part["offsetLag"])
            for place in broker["logDirs"]
            for part in place["partitions"]
        }

    source = replicas()[False][0]
    (target,) = set(directories) - {source}
    plan = tmp_path / "plan.json"
    wanted = {"topic": "aside", "partition": 0, "replicas": [1, 2], "log_dirs": [target, "any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    by_plan = ("kafka-reassign-partitions", "--reassignment-json-file", str(plan))
    # At this rate a megabyte takes a quarter of an hour.
    started = run(*by_plan, "--execute", "--replica-alter-log-dirs-throttle", "1000")
    assert f"Successfully started moving log directory to {target} for replica aside-0 with broker 1" in started
    assert replicas()[False] == (source, 0)
    assert replicas()[True][0] == target and replicas()[True][1] > 0
    assert "Reassignment of replica aside-0-1 is still in progress." in run(*by_plan, "--verify")
    run(*by_plan, "--execute", "--additional", "--replica-alter-log-dirs-throttle", "100000000")
    eventually(lambda: "aside-0-1 completed successfully" in run(*by_plan, "--verify"), "the move to be over", 60)
    assert replicas() == {False: (target, 0)}
    eventually(lambda: "alter.log.dirs" not in of_brokers(run), "the throttle's end")
    offsets = run("kafka-get-offsets", "--topic", "aside")
    assert offsets.split() == ["aside:0:1000"]


@pytest.mark.compat
def test_leaders_go_back_to_the_preferred_replicas(run: Run, cluster: Cluster) -> None:
    create(run, cluster, "elected", "--replica-assignment", "2:1")
    cluster.restart(2)
    cluster.wait_isr("elected")
    assert cluster.leaders("elected") == {0: 1}
    elect = ("kafka-leader-election", "--election-type", "preferred", "--topic", "elected", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in run(*elect)
    eventually(lambda: cluster.leaders("elected") == {0: 2}, "the preferred leader")
    assert "Valid replica already elected for partitions elected-0" in run(*elect)
    unknown = run(
        "kafka-leader-election", "--election-type", "preferred", "--topic", "nope", "--partition", "0", code=1
    )
    assert "UnknownTopicOrPartitionException" in unknown


@pytest.mark.compat
def test_log_directories_of_all_brokers_are_described(run: Run, cluster: Cluster) -> None:
    create(run, cluster, "dirs", "--replication-factor", "3")

    def partitions() -> dict[int, list[str]]:
        printed = run("kafka-log-dirs", "--describe", "--topic-list", "dirs")
        return {
            broker["broker"]: [part["partition"] for place in broker["logDirs"] for part in place["partitions"]]
            for broker in json.loads(printed.splitlines()[-1])["brokers"]
        }

    # A broker may know a topic before it has opened its log.
    eventually(lambda: partitions() == {1: ["dirs-0"], 2: ["dirs-0"], 3: ["dirs-0"]}, "each broker to have its log")
    assert "The given brokers do not exist from --broker-list: 9" in run(
        "kafka-log-dirs", "--describe", "--broker-list", "9", code=1
    )


@pytest.mark.compat
def test_console_producer_and_consumer_go_on_while_a_broker_is_killed(run: Run, cluster: Cluster) -> None:
    create(run, cluster, "lines", "--replication-factor", "3", "--config", "min.insync.replicas=2")
    run(
        "kafka-console-producer",
        "--topic",
        "lines",
        "--command-property",
        "acks=all",
        stdin="".join(f"{i}\n" for i in range(50)),
    )
    command = java_command(
        TOOLS["kafka-console-consumer"], "--bootstrap-server", cluster.bootstrap, "--topic", "lines", "--from-beginning",
        "--max-messages", "100", "--timeout-ms", str(CONSUMED_SECONDS_MAX * 1000),
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        first = [consumer.stdout.readline() for _ in range(50)]
        leader = cluster.leaders("lines")[0]
        cluster.kill(leader)
        try:
            run("kafka-console-producer", "--topic", "lines", "--command-property", "acks=all",
                stdin="".join(f"{i}\n" for i in range(50, 100)))  # fmt: skip
            rest = consumer.stdout.read().split("\n")
        finally:
            cluster.start(leader)
    assert [int(line) for line in [*first, *filter(None, rest)]] == list(range(100))


@pytest.mark.compat
def test_groups_are_described_at_once_when_a_broker_has_stopped(run: Run, cluster: Cluster) -> None:
    """The tool asks each broker in the Metadata response for its groups. Before the fix it failed after 30 s at the broker that
    was not there.
    """
    create(run, cluster, "read")
    reset = ("--reset-offsets", "--to-earliest", "--execute")
    run("kafka-consumer-groups", "--group", "readers", "--topic", "read", *reset)
    cluster.stop(3)
    try:
        assert "readers" in run("kafka-consumer-groups", "--describe", "--all-groups")
    finally:
        cluster.start(3)


@pytest.mark.compat
def test_a_broker_that_is_gone_for_good_is_unregistered(run: Run, cluster: Cluster) -> None:
    assert "Broker ID 9 is not currently registered" in run("kafka-cluster", "unregister", "--id", "9", code=1)
    cluster.stop(3)
    try:
        assert run("kafka-cluster", "unregister", "--id", "3") == "Broker 3 is no longer registered.\n"

        def listed() -> list[str]:
            return [row["ID"] for row in table(run("kafka-cluster", "list-endpoints", "--include-fenced-brokers"))]

        eventually(lambda: listed() == ["1", "2"], "the brokers to know it")
    finally:
        cluster.start(3)
    eventually(lambda: len(table(run("kafka-cluster", "list-endpoints"))) == 3, "the broker to be registered again")


@pytest.mark.compat
def test_the_metadata_log_and_a_snapshot_are_decoded(tools: ToolSession) -> None:
    """This test is the last one, because it stops the node: an active log is allocated ahead, and the tool fails at the
    zeros.
    """
    limits = {"metadata_log_max_record_bytes_between_snapshots": "5000"}
    with Cluster(1, **limits) as cluster:
        for i in range(40):
            created = tools.run("kafka-topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", f"t{i}")
            assert created.returncode == 0, created.stderr
        metadata = Path(cluster.nodes[1].dir) / "data" / "__cluster_metadata-0"
        eventually(lambda: any(metadata.glob("*.checkpoint")), "a snapshot")
        cluster.stop(1)

        def records(pattern: str) -> str:
            files = ",".join(sorted(map(str, metadata.glob(pattern))))
            done = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", files)
            assert done.returncode == 0, done.stdout[-500:] + done.stderr
            return done.stdout

        log = records("*.log")
        assert "LeaderChange" in log and log.count('"type":"TOPIC_RECORD"') >= 1
        assert "isvalid: false" not in log
        snapshot = records("*.checkpoint")
        assert "SnapshotHeader" in snapshot and "SnapshotFooter" in snapshot
        assert snapshot.count('"type":"REGISTER_BROKER_RECORD"') >= 1


@pytest.mark.compat
def test_controllers_are_added_and_removed_by_the_tool(tools: ToolSession, tmp_path: Path) -> None:
    with separate_roles(tmp_path, controllers=2, brokers=1, dynamic=True) as roles:
        one, two = roles.controllers.values()
        one.format("--standalone")
        two.format("--no-initial-controllers")
        roles.start(*roles.all)
        roles.wait_observer(two.id)
        controllers = f"{HOST}:{one.port}"

        def quorum(where: str, *args: str) -> subprocess.CompletedProcess[str]:
            return tools.run(
                "kafka-metadata-quorum", where, controllers if "controller" in where else roles.bootstrap, *args
            )

        add = ("--command-config", str(two.file), "add-controller")
        added = quorum("--bootstrap-controller", *add)
        deadline = time.monotonic() + 60
        while added.returncode != 0 and time.monotonic() < deadline:  # the new voter may not have caught up yet
            added = quorum("--bootstrap-controller", *add)
        assert added.returncode == 0, added.stderr
        eventually(lambda: roles.voters() == [1, 2], "two voters")
        printed = quorum("--bootstrap-controller", "describe", "--status").stdout
        assert '"directoryId"' in printed.partition("CurrentVoters:")[2].splitlines()[0]
        again = quorum("--bootstrap-server", *add)
        assert again.returncode == 1 and "DuplicateVoterException" in again.stderr
        directory = next(
            row["DirectoryId"]
            for row in table(quorum("--bootstrap-server", "describe", "--replication").stdout)
            if row["NodeId"] == "2"
        )
        remove = ("remove-controller", "--controller-id", "2", "--controller-directory-id", directory)
        removed = quorum("--bootstrap-server", *remove)
        assert removed.returncode == 0, removed.stderr
        eventually(lambda: roles.voters() == [1], "one voter")
        gone = quorum("--bootstrap-server", *remove)
        assert gone.returncode == 1 and "VoterNotFoundException" in gone.stderr
