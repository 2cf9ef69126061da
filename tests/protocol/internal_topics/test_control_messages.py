"""Messages with a version in front."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.internal_topics.control_messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DefaultPrincipalData,
    EndTxnMarker,
    ProducerEntry,
    ProducerSnapshot,
    decode_versioned,
)
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from tests.protocol.catalog import encode_versioned

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["a", "b"],
    owned_partitions=[TopicNamePartitions(topic="a", partitions=[0, 2])],
    generation_id=4,
    rack_id="r",
)


def test_version_comes_first() -> None:
    assert encode_versioned(EndTxnMarker(coordinator_epoch=7), 0) == b"\0\0\0\0\0\7"
    assert encode_versioned(ProducerSnapshot(crc=1, producer_entries=[ProducerEntry()]), 1)[:2] == b"\0\1"
    assert decode_versioned(ConsumerProtocolSubscription, encode_versioned(SUBSCRIPTION, 3)) == (SUBSCRIPTION, 3)


def test_older_version_drops_what_it_lacks() -> None:
    old, version = decode_versioned(ConsumerProtocolSubscription, encode_versioned(SUBSCRIPTION, 1))
    assert version == 1
    assert (old.topics, old.owned_partitions) == (SUBSCRIPTION.topics, SUBSCRIPTION.owned_partitions)
    assert (old.generation_id, old.rack_id) == (-1, None)


def test_subscription_of_a_newer_client_is_read_as_far_as_known() -> None:
    newer = b"\0\7" + encode_versioned(SUBSCRIPTION, 3)[2:] + b"something new"
    assert decode_versioned(ConsumerProtocolSubscription, newer, newer_too=True) == (SUBSCRIPTION, 7)
    with pytest.raises(UnsupportedVersion):
        decode_versioned(ConsumerProtocolSubscription, newer)


def test_other_versions_are_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="DefaultPrincipalData has versions 0, not 1"):
        decode_versioned(DefaultPrincipalData, b"\0\1\1\1\0\0")
    with pytest.raises(UnsupportedVersion):
        decode_versioned(ConsumerProtocolAssignment, b"\xff\xff\0\0\0\0", newer_too=True)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\0\0\0\0", b"\0\0\0\0\0\0\0"])
def test_broken(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_versioned(EndTxnMarker, data)
