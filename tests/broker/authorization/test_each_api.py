"""Allowed and refused over the wire, API by API and version by version (invariant 49)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.alter_configs import AlterConfigsResource as LegacyResource
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_acls import CreateAclsRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.shared_structs import PartitionIndex, Subtopology, TopicInfo
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes as ProducersTopic
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.schema import ZERO_UUID
from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER
from ottla.server.authorization.operations import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    TOPIC,
)
from tests.broker.authorization.entries import (
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    REFUSED,
    TOPIC_REFUSED,
    acl,
    create,
    delete,
    denied,
    error_codes,
)
from tests.broker.authorization.requests import (
    Build,
    alter_share_offsets,
    commit,
    delete_share_offsets,
    describe_share_offsets,
    fetch,
    find_coordinator,
    metadata,
    offset_fetch,
    produce,
    share_fetch,
    share_heartbeat,
)
from tests.broker.conftest import start_node, stop_node
from tests.broker.wire import Wire

ON_TOPICS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "Produce": (produce, (3, 9, 12, 13)),
    "Fetch": (fetch, (4, 7, 12, 13, 17)),
    "ShareFetch": (share_fetch, (1, 2)),
    "ListOffsets": (
        lambda topic, ids, v: ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        ),
        (1, 6, 9),
    ),
    "Metadata": (metadata, (0, 1, 5, 9, 13)),
    "OffsetCommit": (
        lambda topic, ids, v: OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=ids[topic],
                    partitions=[OffsetCommitRequestPartition(partition_index=0, committed_metadata="")],
                )
            ],
        ),
        (2, 8, 10),
    ),
    "OffsetFetch": (lambda topic, ids, v: offset_fetch(topic, "g", v, ids[topic]), (1, 2, 7, 8, 9, 10)),
    "DeleteRecords": (
        lambda topic, ids, v: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])]
        ),
        (0, 2),
    ),
    "DescribeConfigs": (
        lambda topic, ids, v: DescribeConfigsRequest(resources=[DescribeConfigsResource(2, topic, None)]),
        (1, 4),
    ),
    "OffsetDelete": (
        lambda topic, ids, v: OffsetDeleteRequest(
            group_id="g", topics=[OffsetDeleteRequestTopic(topic, [PartitionIndex(0)])]
        ),
        (0,),
    ),
    "DescribeProducers": (
        lambda topic, ids, v: DescribeProducersRequest(topics=[ProducersTopic(name=topic, partition_indexes=[0])]),
        (0,),
    ),
    "DescribeTopicPartitions": (
        lambda topic, ids, v: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]),
        (0,),
    ),
    "CreatePartitions": (
        lambda topic, ids, v: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=5)], timeout_ms=5_000, validate_only=True
        ),
        (0, 3),
    ),
    "IncrementalAlterConfigs": (
        lambda topic, ids, v: IncrementalAlterConfigsRequest(
            validate_only=True, resources=[AlterConfigsResource(resource_type=2, resource_name=topic)]
        ),
        (0, 1),
    ),
    "AlterConfigs": (
        lambda topic, ids, v: AlterConfigsRequest(
            validate_only=True, resources=[LegacyResource(resource_type=2, resource_name=topic)]
        ),
        (0, 2),
    ),
}


@pytest.mark.parametrize("api", ON_TOPICS)
def test_a_topic_of_another_principal_is_refused_and_an_open_one_is_not(
    api: str, wire: Wire, ids: dict[str, bytes]
) -> None:
    build, versions = ON_TOPICS[api]
    for version in versions:
        assert TOPIC_REFUSED in error_codes(wire.request(build("hidden", ids, version), version)), version
        assert not error_codes(wire.request(build("open", ids, version), version)) & REFUSED, version


def consumer_heartbeat(group: str, topic: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=[topic], topic_partitions=[]
    )


def streams_heartbeat(group: str, topic: str, changelog: str | None = None) -> StreamsGroupHeartbeatRequest:
    stores = [] if changelog is None else [TopicInfo(changelog)]
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=1000,
        topology=Topology(0, [Subtopology("0", [topic], state_changelog_topics=stores)]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


ON_GROUPS: dict[str, tuple[Callable[[str, int], Any], tuple[int, ...]]] = {
    "OffsetCommit": (lambda group, v: commit(group, "open"), (2, 8, 9)),
    "OffsetFetch": (lambda group, v: offset_fetch("open", group, v, ZERO_UUID), (1, 2, 7, 8, 9)),
    "FindCoordinator": (lambda group, v: find_coordinator(group, 0, v), (0, 1, 3, 4, 6)),
    "JoinGroup": (
        lambda group, v: JoinGroupRequest(group_id=group, session_timeout_ms=10_000, protocol_type="consumer"),
        (0, 4, 9),
    ),
    "SyncGroup": (
        lambda group, v: SyncGroupRequest(
            group_id=group, **({"protocol_type": "consumer", "protocol_name": "range"} if v >= 5 else {})
        ),
        (0, 5),
    ),
    "Heartbeat": (lambda group, v: HeartbeatRequest(group_id=group), (0, 4)),
    "LeaveGroup": (lambda group, v: LeaveGroupRequest(group_id=group), (0, 5)),
    "DescribeGroups": (lambda group, v: DescribeGroupsRequest(groups=[group]), (0, 5, 6)),
    "ConsumerGroupHeartbeat": (lambda group, v: consumer_heartbeat(group, "open"), (0, 1)),
    "ConsumerGroupDescribe": (lambda group, v: ConsumerGroupDescribeRequest(group_ids=[group]), (0, 1)),
    "ShareFetch": (lambda group, v: ShareFetchRequest(group_id=group, member_id="m"), (1, 2)),
    "ShareAcknowledge": (lambda group, v: ShareAcknowledgeRequest(group_id=group, member_id="m"), (1, 2)),
    "StreamsGroupHeartbeat": (lambda group, v: streams_heartbeat(f"{group}-streams", "open"), (0, 1)),
    "StreamsGroupDescribe": (lambda group, v: StreamsGroupDescribeRequest(group_ids=[group]), (0, 1)),
    "DeleteGroups": (lambda group, v: DeleteGroupsRequest(groups_names=[group]), (0, 2)),
    "ShareGroupHeartbeat": (lambda group, v: share_heartbeat(group, "open"), (1,)),
    "ShareGroupDescribe": (lambda group, v: ShareGroupDescribeRequest(group_ids=[group]), (1,)),
    "DescribeShareGroupOffsets": (lambda group, v: describe_share_offsets(group, "open"), (0, 1)),
    "AlterShareGroupOffsets": (lambda group, v: alter_share_offsets(group, "open"), (0,)),
    "DeleteShareGroupOffsets": (lambda group, v: delete_share_offsets(group, "open"), (0,)),
    "OffsetDelete": (lambda group, v: OffsetDeleteRequest(group_id=group), (0,)),
    "DescribeConfigs": (
        lambda group, v: DescribeConfigsRequest(resources=[DescribeConfigsResource(32, group, None)]),
        (4,),
    ),
}


@pytest.mark.parametrize("api", ON_GROUPS)
def test_a_group_of_another_principal_is_refused_and_an_open_one_is_not(api: str, wire: Wire) -> None:
    build, versions = ON_GROUPS[api]
    for version in versions:
        assert error_codes(wire.request(build("secret-1", version), version)) == {GROUP_REFUSED}, version
        assert not error_codes(wire.request(build("g2", version), version)) & REFUSED, version


def test_members_of_consumer_groups_need_their_topics_and_descriptions_do_not_disclose_them(wire: Wire) -> None:
    group = "g-consumers"
    assert wire.request(consumer_heartbeat(group, "hidden")).error_code == TOPIC_REFUSED
    assert not wire.request(consumer_heartbeat(group, "open")).error_code
    describe = ConsumerGroupDescribeRequest(group_ids=[group])
    assert not wire.request(describe).groups[0].error_code
    entry = acl(TOPIC, "open", DESCRIBE, DENY)
    create(wire, entry)
    answer = wire.request(describe).groups[0]
    delete(wire, entry)
    assert (answer.error_code, answer.members) == (TOPIC_REFUSED, [])


def test_members_and_offsets_of_share_groups_need_their_topics(wire: Wire) -> None:
    group = "g-share"
    assert wire.request(share_heartbeat(group, "hidden")).error_code == TOPIC_REFUSED
    assert not wire.request(share_heartbeat(group, "open")).error_code
    for build in (describe_share_offsets, alter_share_offsets, delete_share_offsets):
        assert TOPIC_REFUSED in error_codes(wire.request(build("g-share-offsets", "hidden"))), build
        assert not error_codes(wire.request(build("g-share-offsets", "open"))) & REFUSED, build


def test_members_of_streams_groups_need_their_topics_and_the_right_to_create_internal_ones(wire: Wire) -> None:
    group = "g-streams"
    for topology in (("hidden", None), ("open", "hidden")):
        assert wire.request(streams_heartbeat(group, *topology)).error_code == TOPIC_REFUSED
    entries = [acl(TOPIC, "open-changelog", DESCRIBE), acl(CLUSTER, CLUSTER_NAME, CREATE, DENY)]
    create(wire, *entries)
    answer = wire.request(streams_heartbeat(group, "open", "open-changelog"))
    delete(wire, *entries)
    status = answer.status[-1]
    assert status.status_detail == (
        "Internal topics are missing: open-changelog; Unauthorized to CREATE on topics open-changelog."
    )
    describe = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    assert wire.request(describe).groups[0].topology.epoch == 0
    entry = acl(TOPIC, "open-changelog", DESCRIBE, DENY)
    create(wire, entry)
    described = wire.request(describe).groups[0]
    delete(wire, entry)
    assert (described.error_code, described.topology, described.members) == (TOPIC_REFUSED, None, [])


ON_CLUSTER: dict[str, tuple[Callable[[], Any], int]] = {
    "DescribeAcls": (lambda: DescribeAclsRequest(1, None, 1, None, None, 1, 1), DESCRIBE),
    "DescribeLogDirs": (lambda: DescribeLogDirsRequest(), DESCRIBE),
    "ListConfigResources": (lambda: ListConfigResourcesRequest(), DESCRIBE_CONFIGS),
    "DescribeConfigs of a broker": (
        lambda: DescribeConfigsRequest(resources=[DescribeConfigsResource(4, "1", ["log.dirs"])]),
        DESCRIBE_CONFIGS,
    ),
    "DescribeQuorum": (lambda: DescribeQuorumRequest(), DESCRIBE),
    "ElectLeaders": (lambda: ElectLeadersRequest(topic_partitions=[]), ALTER),
    "ListPartitionReassignments": (lambda: ListPartitionReassignmentsRequest(topics=[]), DESCRIBE),
    "IncrementalAlterConfigs of a broker": (
        lambda: IncrementalAlterConfigsRequest(
            validate_only=True, resources=[AlterConfigsResource(resource_type=4, resource_name="1")]
        ),
        ALTER_CONFIGS,
    ),
    "CreateAcls": (lambda: CreateAclsRequest(creations=[acl(TOPIC, "x", READ)]), ALTER),
    "DeleteAcls": (lambda: DeleteAclsRequest(filters=[DeleteAclsFilter(2, "x", 3, None, None, 1, 1)]), ALTER),
}


@pytest.mark.parametrize("api", [api for api, (_, operation) in ON_CLUSTER.items() if operation != ALTER])
def test_an_operation_on_the_cluster_that_is_denied(api: str, wire: Wire) -> None:
    build, operation = ON_CLUSTER[api]
    assert not error_codes(wire.request(build())) & REFUSED
    with denied(wire, operation):
        assert error_codes(wire.request(build())) == {CLUSTER_REFUSED}


def test_who_may_not_alter_the_cluster_cannot_help_himself_to_entries() -> None:
    """The test has a node of its own: once ALTER is denied, this caller cannot take that back."""
    node = start_node(authorizer_class_name=STANDARD_AUTHORIZER, allow_everyone_if_no_acl_found="true")
    try:
        with node.wire() as wire:
            allowed = (CLUSTER_ACTION, DESCRIBE)
            create(
                wire,
                acl(CLUSTER, CLUSTER_NAME, ALTER, DENY),
                *(acl(CLUSTER, CLUSTER_NAME, operation) for operation in allowed),
            )
            for api in ("ElectLeaders", "CreateAcls", "DeleteAcls"):
                assert error_codes(wire.request(ON_CLUSTER[api][0]())) == {CLUSTER_REFUSED}, api
    finally:
        stop_node(node)
