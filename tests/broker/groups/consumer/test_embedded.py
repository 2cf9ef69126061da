"""Subscriptions and assignments of classic members, as consumers of every version write them."""

from __future__ import annotations

import pytest

from ottla.broker.groups.modern import assignment as embedded
from ottla.protocol.compile import encode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.control_messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from tests.broker.groups.cluster import id_of, topics_image

TOPICS = topics_image({"t": 3, "u": 1})


def subscription(version: int) -> bytes:
    value = ConsumerProtocolSubscription(
        ["t"], None, [TopicNamePartitions("t", [0, 2]), TopicNamePartitions("gone", [1])], 5, "r"
    )
    return version.to_bytes(2, "big") + encode(value, version)


def test_what_a_member_has_is_in_its_subscription_since_version_1() -> None:
    for version in range(4):
        subscribed = embedded.subscription(subscription(version))
        assert subscribed.topics == ["t"]
        owned = [(each.topic_id, each.partitions) for each in embedded.owned(subscribed, TOPICS)]
        assert owned == ([(id_of("t"), [0, 2])] if version else [])
        assert subscribed.rack_id == ("r" if version == 3 else None)


def test_a_newer_subscription_is_read_as_the_newest_known_one() -> None:
    assert embedded.subscription(b"\0\x09" + subscription(3)[2:] + b"more").topics == ["t"]


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_has_the_version_of_its_members_subscription(version: int) -> None:
    assignment = {id_of("t"): frozenset({1, 0}), id_of("gone"): frozenset({0})}
    data = embedded.assignment_bytes(assignment, TOPICS, subscription(version))
    assert data[:2] == version.to_bytes(2, "big")
    assert embedded.assigned(data, TOPICS) == {id_of("t"): frozenset({0, 1})}


def test_an_assignment_with_data_of_the_clients_own_assignor_is_refused() -> None:
    value = ConsumerProtocolAssignment([TopicNamePartitions("t", [0])], b"mine")
    with pytest.raises(embedded.CustomAssignor):
        embedded.assigned(b"\0\0" + encode(value, 0), TOPICS)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\x09", subscription(1)[:-1]])
def test_malformed_bytes_are_an_error_of_the_protocol(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        embedded.subscription(data)
