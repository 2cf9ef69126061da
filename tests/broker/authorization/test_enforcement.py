"""Allowed and refused over the wire, API by API, as User:ANONYMOUS on a node where other people's things are hidden.

`open` and `g` are about nobody, so allow.everyone.if.no.acl.found lets everybody at them; `hidden`, `secret-*` and `secret-txn` belong
to User:alice. The cluster belongs to everybody but for what a test denies. Expectations are Apache Kafka 4.3.1's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_configs import AlterConfigsResource as LegacyResource
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.describe_producers import TopicRequest as ProducersTopic
from protocol.messages.describe_quorum import DescribeQuorumRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.sync_group import SyncGroupRequest
from protocol.primitives import ZERO_UUID
from server.security.authorizer import STANDARD_AUTHORIZER
from server.security.operations import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    PREFIXED,
    READ,
    SUPPORTED_OPERATIONS,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    bit_field,
)
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.records import batch
from tests.broker.wire import Wire

ALICE, ME = "User:alice", "User:ANONYMOUS"
TOPIC_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP_REFUSED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
CLUSTER_REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TRANSACTION_REFUSED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
REFUSED = {TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, TRANSACTION_REFUSED}


def acl(
    resource_type: int, name: str, operation: int, permission: int = ALLOW, principal: str = ME, pattern: int = LITERAL
) -> AclCreation:
    return AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def create(wire: Wire, *acls: AclCreation) -> None:
    answer = wire.request(CreateAclsRequest(creations=list(acls)))
    assert [result.error_code for result in answer.results] == [0] * len(acls)
    wanted = [(a.principal, a.operation, a.permission_type) for a in acls]
    eventually(lambda: all(entry in described(wire) for entry in wanted), "the entries to be in force")


def described(wire: Wire) -> list[tuple[str, int, int]]:
    # Everybody's right to describe the cluster may be what is denied just now.
    answer = wire.request(DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    if answer.error_code == CLUSTER_REFUSED:
        return [(ME, DESCRIBE, DENY)]
    return [(a.principal, a.operation, a.permission_type) for resource in answer.resources for a in resource.acls]


def delete(wire: Wire, *acls: AclCreation) -> None:
    filters = [
        DeleteAclsFilter(
            resource_type_filter=a.resource_type,
            resource_name_filter=a.resource_name,
            pattern_type_filter=a.resource_pattern_type,
            principal_filter=a.principal,
            host_filter=a.host,
            operation=a.operation,
            permission_type=a.permission_type,
        )
        for a in acls
    ]
    answer = wire.request(DeleteAclsRequest(filters=filters))
    assert [len(result.matching_acls) for result in answer.filter_results] == [1] * len(acls)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Node]:
    node = start_node(
        authorizer_class_name=STANDARD_AUTHORIZER, allow_everyone_if_no_acl_found="true", super_users="User:root"
    )
    for topic in ("open", "hidden", "other"):
        node.create(topic)
    with node.wire() as wire:
        eventually(lambda: not error_codes(wire.request(FindCoordinatorRequest(coordinator_keys=["g"]), 4)), "offsets")
        create(
            wire,
            acl(TOPIC, "hidden", ALL, principal=ALICE),
            acl(GROUP, "secret-", ALL, principal=ALICE, pattern=PREFIXED),
            acl(TRANSACTIONAL_ID, "secret-txn", ALL, principal=ALICE),
            *(acl(CLUSTER, CLUSTER_NAME, operation) for operation in SUPPORTED_OPERATIONS[CLUSTER]),
        )
    yield node
    stop_node(node)


@pytest.fixture
def wire(guarded: Node) -> Iterator[Wire]:
    with guarded.wire() as connection:
        yield connection


@pytest.fixture(scope="module")
def ids(guarded: Node) -> dict[str, bytes]:
    found = {}
    for name in ("open", "hidden", "other"):
        create_allow = acl(TOPIC, name, DESCRIBE)
        with guarded.wire() as connection:
            create(connection, create_allow)
            answer = connection.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
            found[name] = answer.topics[0].topic_id
            delete(connection, create_allow)
    return found


@contextmanager
def denied(wire: Wire, *operations: int) -> Iterator[None]:
    entries = [acl(CLUSTER, CLUSTER_NAME, operation, DENY) for operation in operations]
    create(wire, *entries)
    try:
        yield
    finally:
        delete(wire, *entries)


def error_codes(answer: Any) -> set[int]:
    """All errors anywhere in it."""
    if isinstance(answer, list):
        return set().union(*map(error_codes, answer)) if answer else set()
    if not hasattr(answer, "__field_names__"):
        return set()
    codes = set().union(*(error_codes(getattr(answer, name)) for name in answer.__field_names__))
    return codes | {int(getattr(answer, "error_code", 0))} - {0}


# -- The table -------------------------------------------------------------------------------------------------------

Build = Callable[[str, dict[str, bytes], int], Any]


def _offset_fetch(topic: str, group: str, version: int, topic_id: bytes) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    topics = [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, member_id=None, topics=topics)])


def _fetch(topic: str, ids: dict[str, bytes], version: int, replica_id: int = -1) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    request = FetchRequest(
        max_wait_ms=5_000,
        min_bytes=0,
        max_bytes=1000,
        session_epoch=-1 if version >= 7 else 0,
        topics=[FetchTopic(topic=topic, topic_id=ids[topic], partitions=partitions)],
    )
    if replica_id >= 0:
        request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=1)
    return request


def _metadata(topic: str, ids: dict[str, bytes], version: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)])


def _find(key: str, key_type: int, version: int) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=key, **({"key_type": key_type} if version else {}))
    return FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)


def _produce(topic: str, ids: dict[str, bytes], version: int) -> ProduceRequest:
    by_id = version >= 13
    data = [PartitionProduceData(index=0, records=batch([b"x"]))]
    named = TopicProduceData(name="" if by_id else topic, topic_id=ids[topic] if by_id else ZERO_UUID)
    named.partition_data = data
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[named])


def _commit(group: str, *topics: str) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(0, committed_metadata="")]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic in topics]
    )


ON_TOPICS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "Produce": (_produce, (3, 9, 12, 13)),
    "Fetch": (_fetch, (4, 7, 12, 13, 17)),
    "ListOffsets": (
        lambda topic, ids, v: ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        ),
        (1, 6, 9),
    ),
    "Metadata": (_metadata, (0, 1, 5, 9, 13)),
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
    "OffsetFetch": (lambda topic, ids, v: _offset_fetch(topic, "g", v, ids[topic]), (1, 2, 7, 8, 9, 10)),
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
            group_id="g", topics=[OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])]
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
def test_a_topic_of_somebody_else_is_refused_and_an_open_one_is_not(
    api: str, wire: Wire, ids: dict[str, bytes]
) -> None:
    build, versions = ON_TOPICS[api]
    for version in versions:
        assert TOPIC_REFUSED in error_codes(wire.request(build("hidden", ids, version), version)), version
        assert not error_codes(wire.request(build("open", ids, version), version)) & REFUSED, version


ON_GROUPS: dict[str, tuple[Callable[[str, int], Any], tuple[int, ...]]] = {
    "OffsetCommit": (lambda group, v: _commit(group, "open"), (2, 8, 9)),
    "OffsetFetch": (lambda group, v: _offset_fetch("open", group, v, ZERO_UUID), (1, 2, 7, 8, 9)),
    "FindCoordinator": (lambda group, v: _find(group, 0, v), (0, 1, 3, 4, 6)),
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
    "DeleteGroups": (lambda group, v: DeleteGroupsRequest(groups_names=[group]), (0, 2)),
    "OffsetDelete": (lambda group, v: OffsetDeleteRequest(group_id=group), (0,)),
    "DescribeConfigs": (
        lambda group, v: DescribeConfigsRequest(resources=[DescribeConfigsResource(32, group, None)]),
        (4,),
    ),
}


@pytest.mark.parametrize("api", ON_GROUPS)
def test_a_group_of_somebody_else_is_refused_and_an_open_one_is_not(api: str, wire: Wire) -> None:
    build, versions = ON_GROUPS[api]
    for version in versions:
        assert error_codes(wire.request(build("secret-1", version), version)) == {GROUP_REFUSED}, version
        assert not error_codes(wire.request(build("g2", version), version)) & REFUSED, version


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
    """On a node of its own: once ALTER is denied, this caller cannot take that back."""
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


# -- Nothing is told -------------------------------------------------------------------------------------------------


def test_metadata_tells_the_same_of_a_hidden_topic_and_of_one_that_is_not_there(wire: Wire) -> None:
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
    told = wire.request(DescribeTopicPartitionsRequest(topics=[])).topics
    assert "open" in {topic.name for topic in told}
    assert "hidden" not in {topic.name for topic in told}


def test_a_hidden_topic_alone_in_the_oldest_request_does_not_become_all_topics(wire: Wire) -> None:
    answer = wire.request(MetadataRequest(topics=[MetadataRequestTopic(name="hidden")]), 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("hidden", TOPIC_REFUSED)]
    assert answer.brokers


def test_by_id_the_name_is_kept_back(wire: Wire, ids: dict[str, bytes]) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ids[n]) for n in ("hidden", "open")])
    told = {topic.topic_id: (topic.name, topic.error_code) for topic in wire.request(asked, 13).topics}
    assert told == {ids["hidden"]: (None, TOPIC_REFUSED), ids["open"]: ("open", 0)}


def test_creating_by_mention_needs_create_on_the_cluster_or_on_the_topic(wire: Wire) -> None:
    create(wire, acl(TOPIC, "mine-", CREATE, pattern=PREFIXED), acl(TOPIC, "mine-", DESCRIBE, pattern=PREFIXED))
    create(wire, acl(TOPIC, "other-", DESCRIBE, pattern=PREFIXED))
    with denied(wire, CREATE):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in ("mine-1", "other-1")])
        told = {topic.name: topic.error_code for topic in wire.request(asked, 12).topics}
        assert told == {"mine-1": 0, "other-1": TOPIC_REFUSED}
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
        assert not error_codes(wire.request(_commit(group, "open"), 8))
    delete(wire, mine)
    assert {"secret-9", "visible"} <= {group.group_id for group in wire.request(ListGroupsRequest()).groups}
    with denied(wire, DESCRIBE):
        groups = {group.group_id for group in wire.request(ListGroupsRequest()).groups}
        assert "visible" in groups
        assert "secret-9" not in groups


def test_all_offsets_of_a_group_leave_out_hidden_topics(wire: Wire) -> None:
    mine = acl(TOPIC, "hidden", READ)
    create(wire, mine)
    assert not error_codes(wire.request(_commit("both", "open", "hidden"), 8))
    delete(wire, mine)
    old = wire.request(OffsetFetchRequest(group_id="both", topics=None), 7)
    assert [topic.name for topic in old.topics] == ["open"]
    asked = [OffsetFetchRequestGroup(group_id=g, member_id=None, topics=None) for g in ("secret-1", "both")]
    refused, both = wire.request(OffsetFetchRequest(groups=asked), 9).groups
    assert (refused.group_id, refused.error_code) == ("secret-1", GROUP_REFUSED)
    assert [topic.name for topic in both.topics] == ["open"]


def test_topics_are_deleted_by_name_or_id_only_with_permission(wire: Wire, ids: dict[str, bytes]) -> None:
    states = [DeleteTopicState(name="hidden"), DeleteTopicState(name=None, topic_id=ids["hidden"])]
    with denied(wire, 6):  # DELETE on the cluster would be enough
        for state in states:
            answer = wire.request(DeleteTopicsRequest(topics=[state], timeout_ms=5_000)).responses[0]
            assert answer.error_code == TOPIC_REFUSED
            assert answer.name == state.name


# -- Hot paths -------------------------------------------------------------------------------------------------------


def test_one_refused_topic_does_not_hold_up_the_others_of_a_produce_request(wire: Wire, ids: dict[str, bytes]) -> None:
    request = _produce("open", ids, 9)
    request.topic_data += _produce("hidden", ids, 9).topic_data
    answer = wire.request(request, 9)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"open": 0, "hidden": TOPIC_REFUSED}
    assert next(t for t in answer.responses if t.name == "hidden").partition_responses[0].base_offset == -1


def test_without_acknowledgement_a_refusal_closes_the_connection(wire: Wire, ids: dict[str, bytes]) -> None:
    request = _produce("hidden", ids, 9)
    request.acks = 0
    wire.send(request, 9)
    assert wire.closed_by_server()


@pytest.mark.parametrize("transactional_id", [None, "secret-txn"])
def test_transactional_records_need_the_transactional_id(
    wire: Wire, ids: dict[str, bytes], transactional_id: str | None
) -> None:
    request = _produce("open", ids, 9)
    request.transactional_id = transactional_id
    records = batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    request.topic_data[0].partition_data[0].records = records
    assert error_codes(wire.request(request, 9)) == {TRANSACTION_REFUSED}


def test_an_idempotent_producer_needs_one_topic_it_may_write_to(wire: Wire) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    assert not error_codes(wire.request(request, 4)) & REFUSED
    nowhere = acl(TOPIC, "*", WRITE, DENY)
    with denied(wire, IDEMPOTENT_WRITE):
        assert not error_codes(wire.request(request, 4)) & REFUSED
        create(wire, nowhere)
        assert error_codes(wire.request(request, 4)) == {CLUSTER_REFUSED}
    delete(wire, nowhere)
    named = InitProducerIdRequest(transactional_id="secret-txn", transaction_timeout_ms=1_000)
    assert error_codes(wire.request(named, 4)) == {TRANSACTION_REFUSED}
    for version in (1, 4):
        assert error_codes(wire.request(_find("secret-txn", 1, version), version)) == {TRANSACTION_REFUSED}


def test_a_refused_fetch_does_not_wait(wire: Wire, ids: dict[str, bytes]) -> None:
    request = _fetch("hidden", ids, 12)
    request.min_bytes, request.max_wait_ms = 1, 60_000
    wire.sock.settimeout(5)
    assert error_codes(wire.request(request, 12)) == {TOPIC_REFUSED}


def test_a_session_loses_a_topic_when_the_permission_goes(wire: Wire, ids: dict[str, bytes]) -> None:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10)]
    topics = [FetchTopic(topic_id=ids["other"], partitions=partitions)]
    opened = wire.request(FetchRequest(max_bytes=100, session_epoch=0, topics=topics), 17)
    assert opened.session_id
    assert not error_codes(opened)
    theirs = acl(TOPIC, "other", ALL, principal=ALICE)
    create(wire, theirs)
    again = FetchRequest(max_bytes=100, session_id=opened.session_id, session_epoch=1)
    assert error_codes(wire.request(again, 17)) == {TOPIC_REFUSED}
    delete(wire, theirs)
    restored = FetchRequest(max_bytes=100, session_id=opened.session_id, session_epoch=2)
    assert not error_codes(wire.request(restored, 17))


def test_replicas_and_epoch_lookups_of_brokers_need_cluster_action(wire: Wire, ids: dict[str, bytes]) -> None:
    assert TOPIC_REFUSED not in error_codes(wire.request(_fetch("hidden", ids, 17, replica_id=7), 17))
    epochs = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(topic="hidden", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        ],
    )
    assert not error_codes(wire.request(epochs)) & REFUSED


# -- What one may do -------------------------------------------------------------------------------------------------


def test_authorized_operations_are_the_callers(wire: Wire) -> None:
    reads = acl(TOPIC, "hidden", READ)
    create(wire, reads, acl(GROUP, "secret-ops", READ))
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=n) for n in ("hidden", "open")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = wire.request(asked, 9)
    told = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
    assert told == {"hidden": bit_field([READ, DESCRIBE]), "open": bit_field(SUPPORTED_OPERATIONS[TOPIC])}
    assert answer.cluster_authorized_operations == bit_field(SUPPORTED_OPERATIONS[CLUSTER])
    partitions = wire.request(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="hidden")]))
    assert partitions.topics[0].topic_authorized_operations == bit_field([READ, DESCRIBE])
    groups = wire.request(DescribeGroupsRequest(groups=["secret-ops"], include_authorized_operations=True), 5)
    assert groups.groups[0].authorized_operations == bit_field([READ, DESCRIBE])
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    with denied(wire, ALTER_CONFIGS):
        without = [op for op in SUPPORTED_OPERATIONS[CLUSTER] if op != ALTER_CONFIGS]
        assert wire.request(cluster).cluster_authorized_operations == bit_field(without)
    with denied(wire, DESCRIBE):
        assert wire.request(cluster).cluster_authorized_operations == 0
    delete(wire, reads)


def test_entries_are_described_by_resource_and_filter(wire: Wire) -> None:
    create(wire, acl(TOPIC, "desc", READ, pattern=PREFIXED), acl(TOPIC, "desc", WRITE, pattern=PREFIXED))
    match = wire.request(DescribeAclsRequest(TOPIC, "described", 2, None, None, 1, 1))
    assert [(r.resource_name, r.pattern_type, len(r.acls)) for r in match.resources] == [("desc", PREFIXED, 2)]
    assert not wire.request(DescribeAclsRequest(TOPIC, "described", LITERAL, None, None, 1, 1)).resources
    one = wire.request(DescribeAclsRequest(TOPIC, "desc", PREFIXED, ME, "*", READ, ALLOW))
    assert [(a.principal, a.host, a.operation, a.permission_type) for a in one.resources[0].acls] == [
        (ME, "*", READ, ALLOW)
    ]
    nonsense = wire.request(DescribeAclsRequest(99, None, 1, None, None, 1, 1))
    assert nonsense.error_code == ErrorCode.INVALID_REQUEST


# -- Without an authorizer -------------------------------------------------------------------------------------------


def test_without_an_authorizer_there_are_no_entries_to_speak_of(node: Node) -> None:
    with node.wire() as wire:
        for request in (
            DescribeAclsRequest(1, None, 1, None, None, 1, 1),
            CreateAclsRequest(creations=[acl(TOPIC, "x", READ)]),
            DeleteAclsRequest(filters=[DeleteAclsFilter(2, "x", 3, None, None, 1, 1)]),
        ):
            assert error_codes(wire.request(request)) == {ErrorCode.SECURITY_DISABLED}
        cluster = wire.request(DescribeClusterRequest(include_cluster_authorized_operations=True))
        assert cluster.cluster_authorized_operations == bit_field(SUPPORTED_OPERATIONS[CLUSTER])
