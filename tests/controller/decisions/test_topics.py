"""Topics are created and deleted, and partitions are added; rejections have the words of Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.controller.decisions.control_state import ControlSettings
from ottla.controller.decisions.outcome import in_turns
from ottla.controller.decisions.topics import (
    ATTEMPTS,
    PARTITIONS_PER_TURN,
    create_partitions,
    create_topics,
    delete_topics,
)
from ottla.controller.metadata.encoding import EncodedRecords, encode_metadata
from ottla.controller.metadata.topic_names import NAME_LENGTH_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, PartitionRecord
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
)
from ottla.protocol.releases import METADATA_VERSION, METADATA_VERSION_MIN, RELEASES, Advertised
from tests.controller.harness import DecisionHarness, topic_id
from tests.controller.images import same_content


def wanted(name: str = "orders", partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


def assigned(*replicas: list[int], name: str = "orders", first: int = 0) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=each) for index, each in enumerate(replicas, first)
    ]
    return wanted(name, -1, -1, assignments=assignments)


def create(
    cluster: DecisionHarness, *topics: CreatableTopic, validate_only: bool = False, describable: str = ""
) -> list[CreatableTopicResult]:
    decision = create_topics(
        cluster.state,
        topics,
        cluster.configs,
        cluster.rng,
        validate_only=validate_only,
        describable=frozenset(describable.split()),
    )
    results: list[CreatableTopicResult] = cluster.decide(decision)
    return results


def refusal(cluster: DecisionHarness, topic: CreatableTopic) -> tuple[str, str | None]:
    before = cluster.image
    (result,) = create(cluster, topic)
    assert same_content(cluster.image, before), "a refused topic leaves nothing behind"
    return ErrorCode(result.error_code).name, result.error_message


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ("2.8.2", "Replication factor: 4 larger than available brokers: 3."),
        (
            "4.2.0",
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because only"
            " 3 broker(s) are registered.",
        ),
    ],
)
def test_too_few_brokers_is_said_in_the_words_of_the_emulated_release(release: str, message: str) -> None:
    settings = ControlSettings(node_id=1, cluster_id="emulated", advertised=Advertised(RELEASES[release]))
    cluster = DecisionHarness(settings=settings)
    assert refusal(cluster, wanted(factor=4)) == ("INVALID_REPLICATION_FACTOR", message)


def test_a_topic_gets_its_partitions_replicas_and_configs() -> None:
    cluster = DecisionHarness(brokers=3)
    (result,) = create(
        cluster,
        wanted("orders", 4, 2, configs=[CreatableTopicConfig(name="retention.ms", value="1000")]),
        describable="orders",
    )
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (4, 2)
    topic = cluster.image.topics.by_id(result.topic_id)
    assert topic is not None and sorted(topic.partitions) == [0, 1, 2, 3]
    for partition in topic.partitions.values():
        assert partition.isr == partition.replicas and partition.leader == partition.replicas[0]
    assert dict(cluster.image.configs.for_topic("orders")) == {"retention.ms": "1000"}
    described = {config.name: (config.value, config.config_source) for config in result.configs or []}
    assert described["retention.ms"] == ("1000", 1)
    assert described["cleanup.policy"] == ("delete", 5)


def test_configs_are_not_returned_to_principals_that_may_not_read_them() -> None:
    cluster = DecisionHarness()
    (result,) = create(cluster, wanted())
    assert (result.num_partitions, result.configs) == (-1, None)
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_defaults_stand_in_for_minus_one() -> None:
    cluster = DecisionHarness()
    create(cluster, wanted("orders", -1, -1))
    assert cluster.show("orders").startswith("replicas ")
    assert len(cluster.partition("orders").replicas) == 1


def test_validate_only_answers_the_same_and_changes_nothing() -> None:
    cluster = DecisionHarness()
    before = cluster.image
    results = create(cluster, wanted("orders", 3), wanted("bad name"), validate_only=True, describable="orders")
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert results[0].num_partitions == 3
    assert same_content(cluster.image, before)


def test_one_bad_topic_does_not_hinder_the_others() -> None:
    cluster = DecisionHarness()
    results = create(cluster, wanted("good"), wanted("bad", 0), wanted("fine"))
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_PARTITIONS, 0]
    assert {topic.name for topic in cluster.image.topics} == {"good", "fine"}


def config(name: str, value: str | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value)]


NAME = "Topic name is invalid: "
REFUSED = [
    (wanted(""), "INVALID_TOPIC_EXCEPTION", NAME + "the empty string is not allowed"),
    (wanted("."), "INVALID_TOPIC_EXCEPTION", NAME + "'.' is not allowed"),
    (
        wanted("a b"),
        "INVALID_TOPIC_EXCEPTION",
        NAME + "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    (
        wanted("x" * (NAME_LENGTH_MAX + 1)),
        "INVALID_TOPIC_EXCEPTION",
        NAME + f"the length of '{'x' * 250}' is longer than the max allowed length 249",
    ),
    (wanted("taken"), "TOPIC_ALREADY_EXISTS", "Topic 'taken' already exists."),
    (wanted("a_b"), "INVALID_TOPIC_EXCEPTION", "Topic 'a_b' collides with existing topic: a.b"),
    (wanted(partitions=0), "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."),
    (wanted(partitions=-2), "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."),
    (
        wanted(factor=0),
        "INVALID_REPLICATION_FACTOR",
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        wanted(factor=4),
        "INVALID_REPLICATION_FACTOR",
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because only"
        " 3 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    (
        wanted(configs=config("retention.ms", None)),
        "INVALID_CONFIG",
        "Null value not supported for topic configs: retention.ms",
    ),
    (wanted(configs=config("no.such", "1")), "INVALID_CONFIG", "Unknown topic config name: no.such"),
    (
        wanted(configs=config("retention.ms", "soon")),
        "INVALID_CONFIG",
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ),
    (
        wanted(partitions=-1, factor=2, assignments=assigned([1]).assignments),
        "INVALID_REQUEST",
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        wanted(partitions=2, factor=-1, assignments=assigned([1]).assignments),
        "INVALID_REQUEST",
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        assigned([1, 9]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    ),
    (
        assigned([1, 1]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (assigned([]), "INVALID_REPLICA_ASSIGNMENT", "The manual partition assignment includes an empty replica list."),
    (
        assigned([1, 2], [1]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with"
        " previous partitions, which have 2 replica(s).",
    ),
    (
        assigned([1], first=1),
        "INVALID_REPLICA_ASSIGNMENT",
        "partitions should be a consecutive 0-based integer sequence",
    ),
]


@pytest.mark.parametrize(("topic", "code", "message"), REFUSED, ids=lambda value: None)
def test_a_bad_topic_is_refused(topic: CreatableTopic, code: str, message: str) -> None:
    cluster = DecisionHarness(brokers=3)
    cluster.topic("taken")
    cluster.topic("a.b")
    assert refusal(cluster, topic) == (code, message)


def test_two_billion_partitions_are_refused_before_they_are_placed() -> None:
    assert refusal(DecisionHarness(), wanted(partitions=2_000_000_000))[0] == "POLICY_VIOLATION"


def test_a_fenced_broker_of_a_manual_assignment_is_not_in_sync() -> None:
    cluster = DecisionHarness()
    cluster.fence(1)
    create(cluster, assigned([1, 2]))
    assert cluster.show("orders") == "replicas 1 2 isr 2 leader 2 epoch 0"
    assert refusal(cluster, assigned([1], name="other")) == (
        "INVALID_REPLICA_ASSIGNMENT",
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown.",
    )


def test_a_name_is_free_again_once_its_topic_is_deleted_and_the_new_topic_is_another() -> None:
    cluster = DecisionHarness()
    (first,) = create(cluster, wanted("a.b", configs=config("retention.ms", "5")))
    (deleted,) = cluster.decide(delete_topics(cluster.state, [("a.b", first.topic_id)]))
    assert (deleted.name, deleted.error_code) == ("a.b", 0)
    assert cluster.image.topics.by_id(first.topic_id) is None
    assert not cluster.image.configs.for_topic("a.b")
    (second,) = create(cluster, wanted("a_b"))
    assert second.error_code == 0 and second.topic_id != first.topic_id


def test_a_topic_that_is_gone_cannot_be_deleted() -> None:
    (result,) = DecisionHarness().decide(delete_topics(DecisionHarness().state, [("ghost", topic_id("ghost"))]))
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_partitions_are_added_with_the_topics_replication_factor() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2")
    wanted_count = [CreatePartitionsTopic(name="orders", count=3, assignments=None)]
    (result,) = cluster.decide(create_partitions(cluster.state, wanted_count, cluster.rng, validate_only=False))
    assert (result.error_code, result.error_message) == (0, None)
    topic = cluster.image.topics.by_name("orders")
    assert topic is not None and [len(p.replicas) for _, p in topic.sorted_partitions()] == [2, 2, 2]


def test_partitions_are_added_on_the_brokers_of_a_manual_assignment() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2")
    manual = [CreatePartitionsAssignment(broker_ids=[3, 1]), CreatePartitionsAssignment(broker_ids=[2, 3])]
    more = [CreatePartitionsTopic(name="orders", count=3, assignments=manual)]
    (result,) = cluster.decide(create_partitions(cluster.state, more, cluster.rng, validate_only=False))
    assert (result.error_code, result.error_message) == (0, None)
    topic = cluster.image.topics.by_name("orders")
    assert topic is not None
    assert [(list(p.replicas), p.leader) for _, p in topic.sorted_partitions()] == [
        ([1, 2], 1),
        ([3, 1], 3),
        ([2, 3], 2),
    ]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "message"),
    [
        ("orders", 2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            "orders",
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic orders currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            "orders",
            4,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        ("ghost", 4, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    ],
)
def test_partitions_cannot_be_added(
    name: str, count: int, assignments: list[list[int]] | None, code: int, message: str | None
) -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1", partitions=2)
    manual = None if assignments is None else [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=manual)]
    (result,) = cluster.decide(create_partitions(cluster.state, topics, cluster.rng, validate_only=False))
    assert (result.error_code, result.error_message) == (code, message)


def test_many_topics_of_one_request_are_created_in_bounded_turns_each_of_them_whole() -> None:
    """Before the fix 10,000 partitions in one turn held the event loop for 0.1 s, and 3,000 topics with their configs for 0.3
    s.
    """
    cluster = DecisionHarness()
    topics = [wanted(f"t{number}", 300, 3) for number in range(10)]
    topics += [wanted("bad name", 300, 3), wanted("too-many", 9_000, 3), wanted("last", 1, 3)]
    sizes, results = [], None
    decide = in_turns(
        lambda state: create_topics(
            state, topics, cluster.configs, cluster.rng, validate_only=False, describable=frozenset()
        )
    )
    while results is None:
        records, results = decide(cluster.state)
        made = [record for record in records if isinstance(record, PartitionRecord)]
        assert len(made) % 300 in (0, 1), "whole topics"
        sizes += [len(made)] if made else []
        cluster.replay(records)
    assert sizes == [1_200, 1_200, 600, 1] and max(sizes) < PARTITIONS_PER_TURN + 300
    assert [(each.name, ErrorCode(each.error_code).name) for each in results] == [
        *((f"t{number}", "NONE") for number in range(10)),
        ("bad name", "INVALID_TOPIC_EXCEPTION"),
        ("too-many", "POLICY_VIOLATION"),
        ("last", "NONE"),
    ]


def creating(
    cluster: DecisionHarness, topic: CreatableTopic
) -> Iterator[tuple[list[Any], CreatableTopicResult | None]]:
    """Give the records of each turn, and the result in the last one."""
    decide = in_turns(
        lambda state: create_topics(
            state, [topic], cluster.configs, cluster.rng, validate_only=False, describable=frozenset()
        )
    )
    results = None
    while results is None:
        records, results = decide(cluster.state)
        yield records, None if results is None else results[0]
        cluster.replay(records)


def test_a_large_topic_is_placed_in_turns_and_is_one_batch() -> None:
    cluster, turns, last = DecisionHarness(), [], list[Any]()
    for last, _ in creating(cluster, wanted("wide", 5_500, 3)):
        turns.append(len(last))
    assert turns == [0] * 11 + [5_501], "five turns for the replicas, six for the records"
    assert len(cluster.image.topics.by_name("wide").partitions) == 5_500
    level = cluster.image.features.metadata_version
    assert isinstance(last, EncodedRecords) and encode_metadata(last, level) is last.values, "encoded in those turns"
    assert last.values == encode_metadata(list(last), level)


@pytest.mark.parametrize("partitions", [PARTITIONS_PER_TURN, PARTITIONS_PER_TURN + 1])
def test_topics_before_a_large_one_are_appended_before_it_is_placed(partitions: int) -> None:
    """Between the turns of its placement another request could create them too."""
    cluster = DecisionHarness()
    topics = [wanted("small"), wanted("wide", partitions, 3)]
    cluster.decide(
        create_topics(cluster.state, topics, cluster.configs, cluster.rng, validate_only=False, describable=frozenset())
    )
    assert [turn for turn in cluster.turns if turn] == [2, partitions + 1]


def test_a_large_topic_is_encoded_again_if_the_metadata_version_has_changed_meanwhile() -> None:
    cluster, last = DecisionHarness(), list[Any]()
    for number, (records, _) in enumerate(creating(cluster, wanted("wide", 2_500, 3))):
        last = records
        if number == 4:
            cluster.replay([FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_MIN)])
    assert isinstance(last, EncodedRecords) and last.metadata_version == METADATA_VERSION_MIN
    assert last.values == encode_metadata(list(last), METADATA_VERSION_MIN)


def test_a_large_topic_is_placed_again_if_a_broker_has_gone_meanwhile() -> None:
    cluster = DecisionHarness(brokers=4)
    for number, (_, _) in enumerate(creating(cluster, wanted("wide", 2_500, 3))):
        if number == 1:
            cluster.fence(2)
    topic = cluster.image.topics.by_name("wide")
    assert all(2 not in partition.isr and partition.leader != 2 for partition in topic.partitions.values())


def test_brokers_that_come_and_go_all_the_time_do_not_keep_a_topic_from_being_made() -> None:
    cluster = DecisionHarness(brokers=4)
    number = 0
    for number, (_, _) in enumerate(creating(cluster, wanted("wide", 2_500, 3))):
        (cluster.unfence if number % 2 else cluster.fence)(2)
    assert number == ATTEMPTS * 5 and "wide" in cluster.image.topics.names


def test_a_topic_that_another_request_has_made_meanwhile_is_there_already() -> None:
    cluster, result = DecisionHarness(), None
    for number, (_, made) in enumerate(creating(cluster, wanted("wide", 2_500, 3))):
        result = made or result
        if number == 1:
            cluster.topic("wide", "1 2 3")
    assert result is not None and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_partitions_are_added_again_if_others_were_added_meanwhile() -> None:
    cluster, result = DecisionHarness(), None
    cluster.topic("wide", "1 2 3")
    more = [CreatePartitionsTopic(name="wide", count=2_500, assignments=None)]
    decide = in_turns(lambda state: create_partitions(state, more, cluster.rng, validate_only=False))
    while result is None:
        records, result = decide(cluster.state)
        cluster.replay(records)
        if result is None and len(cluster.image.topics.by_name("wide").partitions) == 1:
            few = [CreatePartitionsTopic(name="wide", count=3, assignments=None)]
            cluster.decide(create_partitions(cluster.state, few, cluster.rng, validate_only=False))
    assert sorted(cluster.image.topics.by_name("wide").partitions) == list(range(2_500))


def test_partitions_are_added_to_many_topics_in_bounded_turns() -> None:
    cluster = DecisionHarness()
    for number in range(5):
        cluster.topic(f"t{number}", "1 2 3")
    more = [CreatePartitionsTopic(name=f"t{number}", count=501, assignments=None) for number in range(5)]
    results = cluster.decide(create_partitions(cluster.state, more, cluster.rng, validate_only=False))
    assert cluster.turns == [1_000, 1_000, 500]
    assert [each.error_code for each in results] == [0] * 5
