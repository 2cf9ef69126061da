"""An answer has no trace of what may not be seen (invariant 49)."""

from __future__ import annotations

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.server.authorization.operations import (
    ALL,
    CREATE,
    DESCRIBE,
    GROUP,
    PREFIXED,
    READ,
    TOPIC,
)
from tests.broker.authorization.entries import (
    ALICE,
    GROUP_REFUSED,
    TOPIC_REFUSED,
    acl,
    create,
    delete,
    denied,
    error_codes,
)
from tests.broker.authorization.requests import (
    commit,
)
from tests.broker.wire import Wire


def test_metadata_answers_the_same_for_a_hidden_topic_and_for_one_that_does_not_exist(wire: Wire) -> None:
    create(wire, acl(TOPIC, "never-created", ALL, principal=ALICE))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in ("hidden", "never-created")])
    hidden, absent = wire.request(request, 12).topics
    hidden.name = absent.name = None
    assert hidden == absent
    assert (hidden.error_code, hidden.topic_id, hidden.partitions) == (TOPIC_REFUSED, ZERO_UUID, [])


def test_who_asks_for_all_topics_gets_those_it_may_know_of(wire: Wire) -> None:
    for version, topics in ((0, []), (1, None), (12, None)):
        names = {topic.name for topic in wire.request(MetadataRequest(topics=topics), version).topics}
        assert "open" in names
        assert "hidden" not in names
    described = wire.request(DescribeTopicPartitionsRequest(topics=[])).topics
    assert "open" in {topic.name for topic in described}
    assert "hidden" not in {topic.name for topic in described}


def test_a_hidden_topic_alone_in_the_oldest_request_does_not_become_all_topics(wire: Wire) -> None:
    answer = wire.request(MetadataRequest(topics=[MetadataRequestTopic(name="hidden")]), 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("hidden", TOPIC_REFUSED)]
    assert answer.brokers


def test_by_id_the_name_is_kept_back(wire: Wire, ids: dict[str, bytes]) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ids[n]) for n in ("hidden", "open")])
    described = {topic.topic_id: (topic.name, topic.error_code) for topic in wire.request(asked, 13).topics}
    assert described == {ids["hidden"]: (None, TOPIC_REFUSED), ids["open"]: ("open", 0)}


def test_creating_by_mention_needs_create_on_the_cluster_or_on_the_topic(wire: Wire) -> None:
    create(wire, acl(TOPIC, "mine-", CREATE, pattern=PREFIXED), acl(TOPIC, "mine-", DESCRIBE, pattern=PREFIXED))
    create(wire, acl(TOPIC, "other-", DESCRIBE, pattern=PREFIXED))
    with denied(wire, CREATE):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in ("mine-1", "other-1")])
        described = {topic.name: topic.error_code for topic in wire.request(asked, 12).topics}
        assert described == {"mine-1": 0, "other-1": TOPIC_REFUSED}
        created = CreateTopicsRequest(
            topics=[CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in ("mine-2", "other-2")],
            timeout_ms=5_000,
        )
        answers = {topic.name: topic.error_code for topic in wire.request(created).topics}
        assert answers == {"mine-2": 0, "other-2": TOPIC_REFUSED}


def test_only_groups_that_may_be_described_are_listed(wire: Wire) -> None:
    mine = acl(GROUP, "secret-", ALL, pattern=PREFIXED)
    create(wire, mine)
    for group in ("secret-9", "visible"):
        assert not error_codes(wire.request(commit(group, "open"), 8))
    delete(wire, mine)
    assert {"secret-9", "visible"} <= {group.group_id for group in wire.request(ListGroupsRequest()).groups}
    with denied(wire, DESCRIBE):
        groups = {group.group_id for group in wire.request(ListGroupsRequest()).groups}
        assert "visible" in groups
        assert "secret-9" not in groups


def test_all_offsets_of_a_group_leave_out_hidden_topics(wire: Wire) -> None:
    mine = acl(TOPIC, "hidden", READ)
    create(wire, mine)
    assert not error_codes(wire.request(commit("both", "open", "hidden"), 8))
    delete(wire, mine)
    old = wire.request(OffsetFetchRequest(group_id="both", topics=None), 7)
    assert [topic.name for topic in old.topics] == ["open"]
    asked = [OffsetFetchRequestGroup(group_id=g, member_id=None, topics=None) for g in ("secret-1", "both")]
    refused, both = wire.request(OffsetFetchRequest(groups=asked), 9).groups
    assert (refused.group_id, refused.error_code) == ("secret-1", GROUP_REFUSED)
    assert [topic.name for topic in both.topics] == ["open"]


def test_topics_are_deleted_by_name_or_id_only_with_permission(wire: Wire, ids: dict[str, bytes]) -> None:
    states = [DeleteTopicState(name="hidden"), DeleteTopicState(name=None, topic_id=ids["hidden"])]
    with denied(wire, 6):  # the client must not have DELETE on the cluster, which would be enough
        for state in states:
            answer = wire.request(DeleteTopicsRequest(topics=[state], timeout_ms=5_000)).responses[0]
            assert answer.error_code == TOPIC_REFUSED
            assert answer.name == state.name
