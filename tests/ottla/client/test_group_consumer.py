"""The assignor of the commands' group consumer."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor

from ottla.client.consumer_members import assign_ranges


def ranges(subscribed: dict[str, list[str]], counts: dict[str, int]) -> dict[str, dict[str, list[int]]]:
    return {
        member: {row.topic: row.partitions for row in assignment.assigned_partitions}
        for member, assignment in assign_ranges(subscribed, counts).items()
    }


@given(
    st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from("tuv"), unique=True), max_size=4),
    st.fixed_dictionaries(dict.fromkeys("tuv", st.integers(1, 7))),
)
def test_the_assignment_is_kafka_pythons(subscribed: dict[str, list[str]], counts: dict[str, int]) -> None:
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: range(counts[topic]))
    members = [
        SimpleNamespace(member_id=member, group_instance_id=None, metadata=SimpleNamespace(topics=topics))
        for member, topics in subscribed.items()
    ]
    expected = {
        member: {topic: list(partitions) for topic, partitions in assignment.assigned_partitions if partitions}
        for member, assignment in RangePartitionAssignor.assign(cluster, members).items()
    }
    assert ranges(subscribed, counts) == expected


def test_each_topic_is_divided_and_the_first_members_get_one_more() -> None:
    assert ranges({"b": ["t", "u"], "a": ["t"]}, {"t": 3, "u": 2}) == {"a": {"t": [0, 1]}, "b": {"t": [2], "u": [0, 1]}}
    assert ranges({"a": ["t"], "b": ["t"]}, {"t": 1}) == {"a": {"t": [0]}, "b": {}}
    assert ranges({"a": ["gone"]}, {"gone": 0}) == {"a": {}}
