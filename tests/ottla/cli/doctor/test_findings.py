"""The table of findings, and the findings about a cluster that was read."""

from __future__ import annotations

import pytest

from ottla.cli.doctor import cluster, findings
from ottla.cli.doctor.connection import is_loopback
from ottla.cli.doctor.findings import KINDS, SEVERITIES, DoctorFinding
from ottla.cli.doctor.record import clock_difference
from ottla.cli.errors import OK, UNHEALTHY
from ottla.client.admin_listeners import AdminSample
from ottla.client.cluster_state import FeatureLevels
from ottla.client.troubles import LAG_S_MAX, table_troubles
from ottla.node.python_build import PythonBuild
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.messages.describe_quorum import PartitionDataResponse, ReplicaState
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


def kinds(found: list[DoctorFinding]) -> list[str]:
    return [each.kind for each in found]


def test_each_finding_has_a_remedy_and_only_errors_have_an_exit_code() -> None:
    for name, kind in KINDS.items():
        assert kind.severity in SEVERITIES and kind.meaning.endswith(".") and kind.remedy, name
        assert (kind.exit_code != OK) == (kind.severity == findings.ERROR), name


def test_the_worst_finding_has_the_say() -> None:
    found = [
        DoctorFinding("not-known", "", ""),
        DoctorFinding("disk-full", "", ""),
        DoctorFinding("one-replica", "", ""),
        DoctorFinding("no-kafka", "", ""),
    ]
    assert kinds(findings.in_order(found)) == ["no-kafka", "disk-full", "one-replica", "not-known"]
    assert findings.exit_code(found) == findings.NO_PROTOCOL
    assert findings.exit_code(found[1:3]) == UNHEALTHY
    assert findings.exit_code(found[2:3]) == findings.exit_code([]) == OK


def topic(name: str, *parts: tuple[int, list[int], list[int]]) -> MetadataResponseTopic:
    rows = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)
        for index, (leader, replicas, isr) in enumerate(parts)
    ]
    return MetadataResponseTopic(name=name, partitions=rows)


@pytest.mark.parametrize(
    ("part", "min_isr", "found"),
    [
        ((1, [1, 2, 3], [1, 2, 3]), 2, []),
        ((-1, [1, 2, 3], [1]), 2, ["partition-offline"]),
        ((1, [1, 2, 3], [1]), 2, ["under-min-isr"]),
        ((1, [1, 2, 3], [1, 2]), 2, ["under-replicated"]),
        ((2, [1, 2, 3], [1, 2, 3]), 2, ["leaders-unbalanced"]),
        ((1, [1], [1]), 1, ["one-replica"]),
        ((1, [1, 2], [1, 2]), 1, ["min-isr-one"]),
        ((1, [1, 2], [1, 2]), 2, ["min-isr-all"]),
    ],
)
def test_a_partition_is_judged_by_its_replicas(
    part: tuple[int, list[int], list[int]], min_isr: int, found: list[str]
) -> None:
    assert kinds(cluster.judge_partitions([topic("t", part)], {"t": min_isr}, set(), {})) == found


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ((1, [1, 2, 3, 4], [1, 2, 3]), []),
        ((1, [1, 2, 3, 4], [1, 2]), ["under-replicated"]),
        ((1, [1, 2, 3, 4], [1, 2, 4]), []),  # three are in sync: broker 4 replaces broker 3
    ],
)
def test_a_replica_that_is_being_added_is_not_missed(part: tuple[int, list[int], list[int]], found: list[str]) -> None:
    assert kinds(cluster.judge_partitions([topic("t", part)], {"t": 2}, set(), {("t", 0): [4]})) == found


def test_a_setting_that_loses_records_is_named_with_its_topics() -> None:
    topics = [topic(f"t{number}", (1, [1, 2, 3], [1, 2, 3])) for number in range(5)]
    (found,) = cluster.judge_partitions(
        topics, {f"t{number}": 2 for number in range(5)}, {f"t{number}" for number in range(5)}, {}
    )
    assert found == DoctorFinding("unclean-election", "t0, t1, t2 and 2 more", "5 in all")


def test_voters_that_are_silent_missing_or_even() -> None:
    def quorum(leader: int, *fetched_ms: int) -> PartitionDataResponse:
        voters = [ReplicaState(replica_id=index, last_fetch_timestamp=at) for index, at in enumerate(fetched_ms)]
        return PartitionDataResponse(leader_id=leader, current_voters=voters)

    assert kinds(cluster.judge_quorum(quorum(0, 60_000, 60_000, 59_000))) == []
    assert kinds(cluster.judge_quorum(quorum(0, 60_000, 60_000, 40_000))) == ["quorum-voter-behind"]
    assert kinds(cluster.judge_quorum(quorum(-1, 1, 1, 1))) == ["quorum-no-leader"]
    assert kinds(cluster.judge_quorum(quorum(0, 1))) == ["quorum-of-one"]
    assert kinds(cluster.judge_quorum(quorum(0, 1, 1, 1, 1))) == ["quorum-even"]


def test_disks_that_are_full_failed_or_uneven() -> None:
    def disk(usable: int, held: int = 0, error: int = 0) -> list[DescribeLogDirsResult]:
        parts = [DescribeLogDirsPartition(partition_size=held)]
        rows = [DescribeLogDirsTopic(name="t", partitions=parts)]
        return [DescribeLogDirsResult(error, "/d", rows, total_bytes=10**9, usable_bytes=usable)]

    assert kinds(cluster.judge_directories({1: disk(10**9), 2: disk(-1)})) == []
    assert kinds(cluster.judge_directories({1: disk(0), 2: disk(5 * 10**7), 3: disk(1, error=56)})) == [
        "disk-full", "disk-nearly-full", "directory-offline"
    ]  # fmt: skip
    assert kinds(cluster.judge_directories({1: disk(10**9, 9 * 10**9), 2: disk(10**9)})) == ["brokers-unbalanced"]
    assert kinds(cluster.judge_directories({1: disk(10**9, 9000), 2: disk(10**9)})) == []


def test_a_fenced_broker_and_a_feature_that_could_be_higher() -> None:
    rows = [DescribeClusterBroker(broker_id=1, is_fenced=True), DescribeClusterBroker(broker_id=2)]
    assert [each.place for each in cluster.judge_brokers(rows)] == ["broker 1"]
    old, new = {"f": FeatureLevels(1, 2, 1)}, {"f": FeatureLevels(1, 3, 1)}
    assert kinds(cluster.judge_features([new, new])) == ["features-behind"]
    assert kinds(cluster.judge_features([{"f": FeatureLevels(1, 1, 1)}, old])) == []


def test_old_clients_and_librdkafkas_wait() -> None:
    def sample(name: str, version: str) -> AdminSample:
        return AdminSample(
            cluster.SOFTWARE_METRIC, {"client_software_name": name, "client_software_version": version}, 1.0
        )

    found = cluster.judge_clients(
        [sample("apache-kafka-java", "2.8.0"), sample("apache-kafka-java", "4.1.0"), sample("x", "?")]
    )
    assert [(each.kind, each.place) for each in found] == [("old-client", "apache-kafka-java 2.8.0")]
    assert kinds(cluster.judge_clients([sample("librdkafka", "2.5.0")])) == ["librdkafka-backoff"]
    assert kinds(cluster.judge_clients([sample("librdkafka", "1.9.2")])) == ["old-client", "librdkafka-backoff"]


def test_a_node_on_a_python_without_a_profile_is_named_and_one_that_does_not_say_its_build_is_not() -> None:
    def node(**labels: str) -> list[AdminSample]:
        return [AdminSample(cluster.BUILD_METRIC, {"version": "1", "python": "3.11.7", **labels}, 1.0)]

    builds = {each: node(python_build=each.value) for each in PythonBuild}
    found = cluster.judge_builds({3: builds[PythonBuild.NO_PROFILE], 1: builds[PythonBuild.DEBUG], 2: node()})
    assert [(each.kind, each.place, each.problem) for each in found] == [
        ("slow-python", "node 1", "Python 3.11.7: debug"),
        ("slow-python", "node 3", "Python 3.11.7: no profile"),
    ]
    assert cluster.judge_builds({1: builds[PythonBuild.PROFILE], 2: builds[PythonBuild.UNKNOWN]}) == []


def test_clocks_differ_only_outside_of_the_time_of_the_request() -> None:
    assert clock_difference(1500, 1000, 2000) == clock_difference(900, 1000, 2000) == []
    assert clock_difference(62_000, 1000, 2000)[0].problem == "60.0 s ahead of this machine"
    assert clock_difference(1000, 91_000, 92_000)[0].problem == "90.0 s behind this machine"


def test_addresses_of_this_machine() -> None:
    assert (
        all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1")))
        and not is_loopback("10.0.0.1")
        and not is_loopback("fe80::1%eth0")
    )


def test_what_is_wrong_with_a_table() -> None:
    well = {
        "node": 1, "topic": "orders", "waits": None, "maintenance_failed": None, "rejected": 0, "left_out": 0, "lost": 0,
        "partitions": {"0": {"lag_seconds": 3.0}, "1": {"lag_seconds": 0}},
    }  # fmt: skip
    wrong = {
        "table-waits": {"waits": "the store does not answer", "partitions": {"0": {"lag_seconds": 9_000}}},
        "table-behind": {"partitions": {"0": {"lag_seconds": 1}, "1": {"lag_seconds": LAG_S_MAX + 1}}},
        "table-lost-records": {"lost": 3},
        "table-not-maintained": {"maintenance_failed": "no space"},
        "table-rejects": {"rejected": 2},
    }
    assert [*table_troubles(well)] == [*table_troubles({})] == [*table_troubles({"partitions": [], "lost": "x"})] == []
    for kind, changed in wrong.items():
        (found,) = table_troubles(well | changed)
        assert (found.kind, found.topic) == (kind, "orders") and "node 1" in found.text and kind in KINDS
    (left_out,) = table_troubles(well | {"left_out": 4})
    assert left_out.text == "4 records did not fit its table at node 1, and are left out"
