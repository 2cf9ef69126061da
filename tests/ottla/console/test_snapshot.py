"""Two samples of a cluster, and the events between them."""

from __future__ import annotations

from dataclasses import replace

from ottla.console.snapshot import Broker, ConsoleSnapshot, PartitionRow, QuorumRow, changes, setting_changes


def cluster(**topics: list[tuple[int, tuple[int, ...]]]) -> ConsoleSnapshot:
    brokers = {node: Broker(node, "h", 9092, None, fenced=False) for node in (1, 2, 3)}
    made = {
        name: tuple(PartitionRow(leader, leader, (1, 2, 3), isr) for leader, isr in parts)
        for name, parts in topics.items()
    }
    return ConsoleSnapshot(1_000, "c", brokers, made, quorum=QuorumRow(1, 5, 10, ()))


def texts(before: ConsoleSnapshot, after: ConsoleSnapshot) -> list[str]:
    return [f"{event.kind} {event.place}: {event.text}" for event in changes(before, after)]


def test_a_broker_that_dies_is_a_fencing_an_election_and_a_smaller_isr() -> None:
    before = cluster(t=[(1, (1, 2, 3))])
    after = cluster(t=[(2, (2, 3))])
    after = replace(after, brokers={**after.brokers, 1: after.brokers[1]._replace(fenced=True)})
    assert texts(before, after) == [
        "fencing broker 1: fenced",
        "election t-0: leader 1 → 2, epoch 2",
        "isr t-0: ISR shrank: [1, 2, 3] → [2, 3]",
    ]
    assert texts(before, before) == []


def test_many_partitions_that_change_at_once_are_one_line() -> None:
    before, after = cluster(t=[(1, (1, 2, 3))] * 50), cluster(t=[(1, (1, 2))] * 50)
    (event,) = changes(before, after)
    assert event.place == "50 partitions" and "t-0, t-1" in event.text


def test_topics_and_controllers_come_and_go() -> None:
    before = cluster(gone=[(1, (1,))], more=[(1, (1,))])
    after = replace(cluster(new=[(1, (1,))], more=[(1, (1,))] * 2), quorum=QuorumRow(3, 6, 10, ()))
    assert texts(before, after) == [
        "controller quorum: active controller 1 → 3, epoch 6",
        "topic new: created with 1 partition",
        "topic gone: deleted",
        "topic more: partitions 1 → 2",
    ]


def test_a_setting_that_is_read_for_the_first_time_is_no_change() -> None:
    assert list(setting_changes(0, "topic t", None, {"a": "1"})) == []
    found = [event.text for event in setting_changes(0, "topic t", {"a": "1", "b": "2"}, {"a": "3"})]
    assert found == ["a: 1 → 3", "b: 2 → (default)"]
