"""Authorized operations in answers; the ACL entries themselves; and a node without an authorizer."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.authorization.operations import (
    ALLOW,
    ALTER_CONFIGS,
    CLUSTER,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    SUPPORTED_OPERATIONS,
    TOPIC,
    WRITE,
    bit_field,
)
from tests.broker.authorization.entries import (
    ME,
    acl,
    create,
    delete,
    denied,
    error_codes,
)
from tests.broker.conftest import Node
from tests.broker.wire import Wire


def test_authorized_operations_are_the_callers(wire: Wire) -> None:
    reads = acl(TOPIC, "hidden", READ)
    create(wire, reads, acl(GROUP, "secret-ops", READ))
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=n) for n in ("hidden", "open")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = wire.request(asked, 9)
    described = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
    assert described == {"hidden": bit_field([READ, DESCRIBE]), "open": bit_field(SUPPORTED_OPERATIONS[TOPIC])}
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
