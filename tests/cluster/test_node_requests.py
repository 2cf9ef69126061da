"""Requests between nodes that come from a client: they are rejected and change nothing.

Without authentication every principal is User:ANONYMOUS; here the address distinguishes nodes from clients.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    add_raft_voter,
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    describe_quorum,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    unregister_broker,
    update_raft_voter,
    vote,
    write_txn_markers,
)
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from tests.broker.conftest import eventually
from tests.broker.wire import TIMEOUT_S, Wire
from tests.cluster.roles import CLUSTER_ID, HOST, Roles, separate_roles

pytestmark = pytest.mark.timeout(120)

ELSEWHERE = "127.0.0.2"
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """Yield a cluster in which ClusterAction is allowed from 127.0.0.1 only. The ACL is made at run time, when the nodes have
    found each other.
    """
    authorizer = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow_everyone_if_no_acl_found": "true",
    }
    with separate_roles(tmp_path_factory.mktemp("node_requests"), controllers=1, brokers=1, **authorizer) as planned:
        planned.start(*planned.all)
        admin = AdminClient({"bootstrap.servers": planned.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        allowed = AclBinding(
            ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:ANONYMOUS", HOST,
            AclOperation.CLUSTER_ACTION, AclPermissionType.ALLOW,
        )  # fmt: skip
        admin.create_acls([allowed])[allowed].result(20)
        yield planned


class ClientElsewhere(Wire):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.sock.close()
        self.sock = socket.create_connection((HOST, port), TIMEOUT_S, source_address=(ELSEWHERE, 0))


OF_CONTROLLERS = [
    vote.VoteRequest(CLUSTER_ID),
    begin_quorum_epoch.BeginQuorumEpochRequest(CLUSTER_ID),
    end_quorum_epoch.EndQuorumEpochRequest(CLUSTER_ID),
    fetch.FetchRequest(),
    fetch_snapshot.FetchSnapshotRequest(),
    update_raft_voter.UpdateRaftVoterRequest(CLUSTER_ID),
    add_raft_voter.AddRaftVoterRequest(CLUSTER_ID, voter_id=9),
    remove_raft_voter.RemoveRaftVoterRequest(CLUSTER_ID, voter_id=1),
    describe_quorum.DescribeQuorumRequest(),
    broker_registration.BrokerRegistrationRequest(broker_id=99, cluster_id=CLUSTER_ID),
    broker_heartbeat.BrokerHeartbeatRequest(broker_id=11, want_fence=True),
    alter_partition.AlterPartitionRequest(broker_id=11),
    allocate_producer_ids.AllocateProducerIdsRequest(broker_id=11),
    assign_replicas_to_dirs.AssignReplicasToDirsRequest(broker_id=11),
    controller_registration.ControllerRegistrationRequest(controller_id=1),
    unregister_broker.UnregisterBrokerRequest(broker_id=11),
    envelope.EnvelopeRequest(request_data=b"x", request_principal=b"x", client_host_address=b"\x7f\0\0\1"),
]


@pytest.mark.parametrize("request_", OF_CONTROLLERS, ids=lambda each: type(each).__name__.removesuffix("Request"))
def test_a_controller_rejects_requests_for_nodes_from_another_address(roles: Roles, request_: Any) -> None:
    with ClientElsewhere(roles.controllers[1].port) as wire:
        answer = wire.request(request_)
    assert ErrorCode(answer.error_code) == REFUSED


@pytest.mark.parametrize("request_", OF_CONTROLLERS, ids=lambda each: type(each).__name__.removesuffix("Request"))
def test_a_broker_rejects_requests_for_nodes_from_another_address(roles: Roles, request_: Any) -> None:
    if isinstance(request_, fetch.FetchRequest):
        topic = fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1000)])
        request_ = fetch.FetchRequest(replica_id=12, topics=[topic])
    with ClientElsewhere(roles.a_broker.port) as wire:
        answer = wire.request(request_, 12 if isinstance(request_, fetch.FetchRequest) else None)
    codes = {answer.error_code} if not isinstance(answer, fetch.FetchResponse) else {
        part.error_code for each in answer.responses for part in each.partitions
    }  # fmt: skip
    # A broker does not know requests that only controllers serve. It may forward other requests of the client, which the
    # controller rejects.
    assert {ErrorCode(code) for code in codes} <= {
        ErrorCode.UNSUPPORTED_VERSION, REFUSED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }, answer  # fmt: skip


def test_a_client_that_is_no_node_ends_no_transaction(roles: Roles) -> None:
    topic = TopicPartitionIndexes(name="t", partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(producer_id=1, producer_epoch=0, topics=[topic])
    with ClientElsewhere(roles.a_broker.port) as wire:
        answer = wire.request(write_txn_markers.WriteTxnMarkersRequest([marker]))
    codes = {part.error_code for each in answer.markers for t in each.topics for part in t.partitions}
    assert codes == {REFUSED}


def test_nodes_go_on_after_all_that(roles: Roles) -> None:
    admin = AdminClient({"bootstrap.servers": roles.bootstrap})

    def leader() -> int:
        return int(admin.list_topics("t", timeout=20).topics["t"].partitions[0].leader)

    eventually(lambda: leader() == 11, "the broker to be there")
    with Wire(roles.controllers[1].port) as wire:
        known = wire.request(broker_heartbeat.BrokerHeartbeatRequest(broker_id=99))
    assert ErrorCode(known.error_code) not in (ErrorCode.NONE, REFUSED), "no broker has registered as 99"
