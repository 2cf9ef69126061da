from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import pytest

from ottla.controller.decisions.configs import BYTES_PER_TURN, ConfigDecisions, ConfigOp, alter_in_turns
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.releases import RELEASES
from tests.controller.harness import DecisionHarness
from tests.controller.images import same_content

TOPIC, BROKER, GROUP, METRICS = (
    ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS,
)  # fmt: skip


def alter(
    cluster: DecisionHarness,
    kind: int,
    resource: str,
    operations: Mapping[str, tuple[int, str | None]],
    *,
    validate_only: bool = False,
) -> tuple[str, str | None]:
    outcome = cluster.configs.incremental_alter(
        cluster.state, [(kind, resource, operations)], validate_only=validate_only
    )
    (result,) = cluster.decide(outcome)
    return ("NONE", None) if result.error is None else (result.error.code.name, result.error.message)


def with_topic() -> DecisionHarness:
    cluster = DecisionHarness()
    cluster.topic("orders")
    return cluster


def test_set_append_subtract_and_delete() -> None:
    cluster = with_topic()
    assert alter(cluster, TOPIC, "orders", {"retention.ms": (ConfigOp.SET, "5")}) == ("NONE", None)
    alter(cluster, TOPIC, "orders", {"cleanup.policy": (ConfigOp.APPEND, "compact")})
    assert cluster.image.configs.for_topic("orders")["cleanup.policy"] == "delete,compact", "appended to the default"
    alter(cluster, TOPIC, "orders", {"cleanup.policy": (ConfigOp.SUBTRACT, "delete")})
    alter(cluster, TOPIC, "orders", {"retention.ms": (ConfigOp.DELETE, None)})
    assert dict(cluster.image.configs.for_topic("orders")) == {"cleanup.policy": "compact"}


def test_a_topic_of_the_name_of_rejected_records_has_no_table() -> None:
    """Otherwise a user who may create `orders__dlq` could stop the table of `orders`, which writes its rejected records
    there.
    """
    cluster = with_topic()
    cluster.topic("orders__dlq")
    for name, value, wanted in (
        ("orders__dlq", "iceberg", "INVALID_CONFIG"),
        ("orders__dlq", "none", "NONE"),
        ("orders", "none", "NONE"),
    ):
        code, message = alter(cluster, TOPIC, name, {"ottla.table.format": (ConfigOp.SET, value)})
        assert code == wanted and (message is None or "rejected records of orders" in message)


THROTTLED = "leader.replication.throttled.replicas"


def test_parts_are_appended_once_and_as_many_are_subtracted_as_are_named() -> None:
    cluster = with_topic()
    alter(cluster, TOPIC, "orders", {THROTTLED: (ConfigOp.SET, "0:1,0:2,0:1")})
    alter(cluster, TOPIC, "orders", {THROTTLED: (ConfigOp.APPEND, "0:2,0:3,0:3")})
    assert cluster.image.configs.for_topic("orders")[THROTTLED] == "0:1,0:2,0:1,0:3"
    alter(cluster, TOPIC, "orders", {THROTTLED: (ConfigOp.SUBTRACT, "0:1,0:3,0:9")})
    assert cluster.image.configs.for_topic("orders")[THROTTLED] == "0:2,0:1"


@pytest.mark.parametrize("operation", [ConfigOp.APPEND, ConfigOp.SUBTRACT])
def test_a_list_of_many_parts_is_changed_in_linear_time(operation: ConfigOp) -> None:
    """Before the fix 8,000 parts were searched for each of 8,000: a value of 32 KB held the controller's loop for 0.15 s, and a
    request may have 500 of them.
    """
    cluster, many = with_topic(), ",".join(f"{number}:1" for number in range(30_000))
    alter(cluster, TOPIC, "orders", {THROTTLED: (ConfigOp.SET, "0:1" if operation is ConfigOp.APPEND else many)})
    backwards = ",".join(reversed(many.split(",")))
    began_s = time.thread_time()  # the time of this thread alone
    assert alter(cluster, TOPIC, "orders", {THROTTLED: (operation, backwards)}) == ("NONE", None)
    assert time.thread_time() - began_s < 1.5, "it was ten times as much"
    now = cluster.image.configs.for_topic("orders")[THROTTLED]
    assert len(now) == (len(many) if operation is ConfigOp.APPEND else 0)


def test_long_values_are_checked_in_several_turns_and_a_bad_one_hinders_no_other() -> None:
    """Before the fix 270 values of 31 KB, which are 8 MB, took half a second of the active controller's loop."""
    cluster = DecisionHarness()
    names = [f"t{number}" for number in range(30)]
    for name in names:
        cluster.topic(name)
    value = ",".join(["0:1"] * 8_000)
    changes = [(TOPIC, name, {THROTTLED: (ConfigOp.SET, value if name != "t15" else "no list")}) for name in names]
    results = cluster.decide(
        alter_in_turns(cluster.state, changes, partial(cluster.configs.incremental_alter, validate_only=False))
    )
    assert cluster.turns == [9, 9, 9, 2]
    assert [result.resource for result in results if result.error] == ["t15"]
    assert len(results) == 30 and cluster.image.configs.for_topic("t29")[THROTTLED] == value


def test_more_records_than_a_batch_has_are_refused_before_the_first_of_several_turns() -> None:
    cluster, long = with_topic(), "x" * BYTES_PER_TURN
    groups = [(GROUP, f"g{number}", {"consumer.session.timeout.ms": (0, "50000")}) for number in range(10_000)]
    changes = [(TOPIC, "orders", {THROTTLED: (ConfigOp.SET, long)}), *groups]
    with pytest.raises(KafkaError, match="excessively large"):
        cluster.decide(
            alter_in_turns(cluster.state, changes, partial(cluster.configs.incremental_alter, validate_only=False))
        )
    assert not cluster.image.configs.for_topic("orders")


def test_one_bad_config_keeps_the_others_of_its_resource_out() -> None:
    cluster = with_topic()
    bad = {"retention.ms": (ConfigOp.SET, "5"), "segment.bytes": (ConfigOp.SET, "1")}
    code, message = alter(cluster, TOPIC, "orders", bad)
    assert code == "INVALID_CONFIG" and message is not None and "segment.bytes" in message
    assert not cluster.image.configs.for_topic("orders")


def test_legacy_alter_removes_what_it_does_not_name() -> None:
    cluster = with_topic()
    alter(cluster, TOPIC, "orders", {"retention.ms": (ConfigOp.SET, "5"), "segment.ms": (ConfigOp.SET, "6")})
    outcome = cluster.configs.legacy_alter(cluster.state, [(TOPIC, "orders", {"segment.ms": "7"})], validate_only=False)
    cluster.decide(outcome)
    assert dict(cluster.image.configs.for_topic("orders")) == {"segment.ms": "7"}


def test_validate_only_says_what_would_be_and_does_nothing() -> None:
    cluster = with_topic()
    assert alter(cluster, TOPIC, "orders", {"retention.ms": (0, "5")}, validate_only=True) == ("NONE", None)
    assert not cluster.image.configs.for_topic("orders")


def test_an_unchanged_topic_config_writes_nothing_but_a_broker_config_is_written_again() -> None:
    cluster = with_topic()
    for kind, resource, name in ((TOPIC, "orders", "retention.ms"), (BROKER, "1", "log.retention.ms")):
        alter(cluster, kind, resource, {name: (0, "5")})
        before = cluster.offset
        alter(cluster, kind, resource, {name: (0, "5")})
        assert cluster.offset - before == (1 if kind == BROKER else 0)


def test_groups_and_subscriptions_need_not_exist() -> None:
    cluster = DecisionHarness()
    assert alter(cluster, GROUP, "g", {"consumer.session.timeout.ms": (0, "50000")})[0] == "NONE"
    assert alter(cluster, METRICS, "sub", {"interval.ms": (0, "1000")})[0] == "NONE"
    assert dict(cluster.image.configs.for_group("g")) == {"consumer.session.timeout.ms": "50000"}


@pytest.mark.parametrize(
    ("kind", "resource", "operations", "code", "part"),
    [
        (TOPIC, "ghost", {"retention.ms": (0, "1")}, "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'ghost' does not exist."),
        (TOPIC, "", {"retention.ms": (0, "1")}, "INVALID_REQUEST", "Default topic resources are not allowed."),
        (TOPIC, "orders", {"no.such": (0, "1")}, "INVALID_CONFIG", "Unknown topic config name: no.such"),
        (TOPIC, "orders", {"retention.ms": (2, "1")}, "INVALID_CONFIG", "Can't APPEND to key retention.ms"),
        (TOPIC, "orders", {"retention.ms": (9, "1")}, "INVALID_REQUEST", "Unknown config operation 9"),
        (TOPIC, "orders", {"cleanup.policy": (0, "burn")}, "INVALID_CONFIG", "cleanup.policy"),
        (
            BROKER,
            "one",
            {"log.retention.ms": (0, "1")},
            "INVALID_REQUEST",
            "Node id must be an integer, but it is: one",
        ),
        (BROKER, "-1", {"log.retention.ms": (0, "1")}, "INVALID_REQUEST", "Invalid negative broker ID."),
        (BROKER, "77", {"log.retention.ms": (0, "1")}, "BROKER_ID_NOT_REGISTERED", "No node with id 77 found."),
        (
            BROKER,
            "1",
            {"node.id": (0, "2")},
            "INVALID_REQUEST",
            "Cannot update these configs dynamically: [node.id]",
        ),
        (
            BROKER,
            "1",
            {"ssl.keystore.location": (0, "x")},
            "INVALID_REQUEST",
            "only per-listener using the listener prefix: [ssl.keystore.location]",
        ),
        (BROKER, "1", {"log.retention.ms": (0, "x")}, "INVALID_REQUEST", "Invalid value x"),
        (GROUP, "", {"consumer.session.timeout.ms": (0, "50000")}, "INVALID_REQUEST", "Default group resources"),
        (GROUP, "g", {"consumer.session.timeout.ms": (0, "1")}, "INVALID_CONFIG", "consumer.session.timeout.ms"),
        (METRICS, "", {"interval.ms": (0, "1000")}, "INVALID_REQUEST", "Subscription name can't be empty"),
        (METRICS, "s", {"interval.ms": (0, "1")}, "INVALID_REQUEST", "interval must be between 100"),
        (99, "x", {}, "INVALID_REQUEST", "Unknown resource type 99"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    kind: int, resource: str, operations: dict[str, tuple[int, str]], code: str, part: str
) -> None:
    cluster = with_topic()
    before = cluster.image
    got, message = alter(cluster, kind, resource, operations)
    assert got == code and message is not None and part in message, (got, message)
    assert same_content(cluster.image, before)


def test_with_elr_the_minimum_is_the_clusters_and_always_said() -> None:
    cluster = DecisionHarness()
    alter(cluster, BROKER, "", {"min.insync.replicas": (0, "2")})
    assert alter(cluster, BROKER, "1", {"min.insync.replicas": (0, "2")}) == (
        "INVALID_CONFIG",
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    assert alter(cluster, BROKER, "1", {"min.insync.replicas": (1, None)})[0] == "INVALID_CONFIG"
    # Kafka's broker checks the values before the controller knows of the request.
    assert alter(cluster, BROKER, "1", {"min.insync.replicas": (0, "0")})[0] == "INVALID_REQUEST"
    assert alter(cluster, BROKER, "", {"min.insync.replicas": (1, None)}) == (
        "INVALID_CONFIG",
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    without = DecisionHarness(elr=False)
    assert alter(without, BROKER, "1", {"min.insync.replicas": (0, "2")})[0] == ErrorCode.NONE.name


@pytest.mark.parametrize(
    ("release", "kind", "name", "operations", "code"),
    [
        ("3.9.1", GROUP, "g", {"consumer.session.timeout.ms": "50000"}, "INVALID_REQUEST"),
        ("4.0.2", GROUP, "g", {"consumer.session.timeout.ms": "50000"}, "NONE"),
        ("3.5.2", METRICS, "m", {"interval.ms": "1000"}, "INVALID_REQUEST"),
        ("3.7.2", METRICS, "m", {"interval.ms": "1000"}, "NONE"),
        ("3.0.2", TOPIC, "orders", {"retention.ms": "x"}, "INVALID_REQUEST"),
        ("3.0.2", TOPIC, "orders", {"no.such": "x"}, "INVALID_CONFIG"),
        ("3.3.2", TOPIC, "orders", {"retention.ms": "x"}, "INVALID_CONFIG"),
        ("2.4.1", TOPIC, "none", {"retention.ms": "1"}, "UNKNOWN_SERVER_ERROR"),
        ("2.8.2", TOPIC, "none", {"retention.ms": "1"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("2.8.2", TOPIC, "none", {"no.such": "1"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("3.3.2", TOPIC, "none", {"no.such": "1"}, "INVALID_CONFIG"),
    ],
)
def test_an_older_release_refuses_with_its_own_codes(
    release: str, kind: int, name: str, operations: Mapping[str, str], code: str
) -> None:
    """The codes were seen at the live releases, or stand in their sources (AdminZkClient)."""
    cluster = with_topic()
    cluster.configs = ConfigDecisions(1, cluster.configs._broker_values, release=RELEASES[release])
    changes = {config: (ConfigOp.SET.value, value) for config, value in operations.items()}
    assert alter(cluster, kind, name, changes)[0] == code
