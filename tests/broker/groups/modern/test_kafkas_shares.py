"""The simple assignor gives members of share groups what Apache Kafka 4.3.1 gave them.

Which partitions a member gives up to another one with the same subscription is not compared: in Kafka their order is that of hash codes
of random topic ids.
"""

from __future__ import annotations

from ottla.broker.groups.modern.assignment import Assignment, Subscriber
from ottla.broker.groups.modern.simple import assign_simple
from tests.broker.groups.cluster import id_of
from tests.broker.groups.modern.kafkas_shares import HISTORIES, Share, histories


def assignment(share: Share) -> Assignment:
    return {id_of(topic): frozenset(partitions) for topic, partitions in share.items()}


def size(share: Assignment) -> int:
    return sum(map(len, share.values()))


def test_members_have_the_shares_that_kafka_gave_them() -> None:
    kinds = {True: 0, False: 0}
    for history in histories():
        assignable = {id_of(topic): range(count) for topic, count in history.partitions.items()}
        topics: dict[str, tuple[str, ...]] = {}
        before: dict[str, Share] = {}
        for step in history.steps:
            topics[step.member] = step.topics
            topics = {member: names for member, names in topics.items() if names}
            assert topics.keys() == step.shares.keys()
            members = {
                member: Subscriber(frozenset(map(id_of, names)), assignment(before.get(member, {})))
                for member, names in topics.items()
            }
            is_one_subscription = len(set(topics.values())) == 1
            ours = assign_simple(members, assignable, is_one_subscription=is_one_subscription)
            kafkas = {member: assignment(share) for member, share in step.shares.items()}
            if is_one_subscription:
                assert {m: size(share) for m, share in ours.items()} == {m: size(share) for m, share in kafkas.items()}
            else:
                assert ours == kafkas
            kinds[is_one_subscription] += 1
            before = step.shares
    assert min(kinds.values()) > HISTORIES
