"""Controllers and brokers as nodes of their own (process.roles), with real clients: static and dynamic quorums."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.quorum_structs import Listener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.server.config.dynamic import ConfigSource
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.cluster.roles import CLUSTER_ID, HOST, Process, Roles, separate_roles
from tests.cluster.shared import make_topics

pytestmark = pytest.mark.timeout(120)

CONTROLLERS = 2  # the endpoint type of controllers in DescribeCluster


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """Yield three controllers and two brokers for all tests that leave every node running."""
    with separate_roles(tmp_path_factory.mktemp("roles")) as planned:
        planned.start(*planned.all)
        yield planned


def create(roles: Roles, topic: str, replicas: int = 2, seconds: float = 30) -> None:
    admin = AdminClient({"bootstrap.servers": roles.bootstrap})
    make_topics(admin, NewTopic(topic, 1, replicas), seconds=seconds)


def write(roles: Roles, topic: str, count: int) -> None:
    failures = []
    producer = Producer({"bootstrap.servers": roles.bootstrap, "acks": "all", "enable.idempotence": True})
    for i in range(count):
        producer.produce(topic, str(i), on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0 and not failures, failures


def read(roles: Roles, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": roles.bootstrap, "group.id": "judge"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[int] = []
    eventually(
        lambda: (
            values.extend(int(m.value()) for m in consumer.consume(count, 0.2) if m.error() is None)
            or len(values) >= count
        ),
        "all",
    )
    consumer.close()
    return values


def test_clients_see_the_brokers_and_the_quorum_has_the_controllers(roles: Roles) -> None:
    admin = AdminClient({"bootstrap.servers": roles.bootstrap})
    # A broker is ready when the metadata has itself. The other broker reads of it a moment later.
    eventually(lambda: sorted(admin.list_topics(timeout=20).brokers) == [11, 12], "both brokers")
    assert admin.list_topics(timeout=20).controller_id in (11, 12), (
        "clients send what the controller decides to a broker (KIP-590)"
    )
    create(roles, "one")
    write(roles, "one", 100)
    assert read(roles, "one", 100) == list(range(100))
    for (
        node_id
    ) in roles.brokers:  # retried, because a controller that has just been elected does not know the brokers yet
        roles.wait_observer(node_id)
    quorum = roles.quorum()
    assert sorted(each.replica_id for each in quorum.current_voters) == [1, 2, 3]
    assert sorted(each.replica_id for each in quorum.observers) == [11, 12]
    assert quorum.leader_id in (1, 2, 3)


def test_every_controller_is_registered_and_returned_to_clients_that_bootstrap_from_one(roles: Roles) -> None:
    addresses = {node_id: (HOST, node.port) for node_id, node in roles.controllers.items()}
    for node in roles.controllers.values():

        def known_controllers(port: int = node.port) -> dict[int, tuple[str, int]]:
            with Wire(port) as wire:
                answer = wire.request(DescribeClusterRequest(endpoint_type=CONTROLLERS))
            assert (answer.error_code, answer.cluster_id) == (0, CLUSTER_ID)
            return {each.broker_id: (each.host, each.port) for each in answer.brokers}

        eventually(
            lambda known_controllers=known_controllers: known_controllers() == addresses,
            f"controller {node.id} to know all controllers",
        )
        with Wire(node.port) as wire:
            answer = wire.request(DescribeClusterRequest())
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_controller_describes_configs_credentials_and_acls_to_clients_that_bootstrap_from_it(roles: Roles) -> None:
    create(roles, "described")
    for node in roles.controllers.values():
        resources = [
            DescribeConfigsResource(ResourceType.BROKER, str(node.id), None),
            DescribeConfigsResource(ResourceType.BROKER, "11", None),
            DescribeConfigsResource(ResourceType.TOPIC, "described", ["retention.ms"]),
            DescribeConfigsResource(ResourceType.TOPIC, "missing", None),
        ]

        def described(port: int = node.port, asked: list[DescribeConfigsResource] = resources) -> list[int]:
            with Wire(port) as wire:
                own, other, topic, missing = wire.request(DescribeConfigsRequest(resources=asked)).results
            values = {row.name: (row.value, row.config_source) for row in own.configs}
            assert values["process.roles"] == ("controller", ConfigSource.STATIC_BROKER)
            assert values["log.retention.hours"] == ("168", ConfigSource.DEFAULT)
            assert other.error_code == ErrorCode.INVALID_REQUEST
            assert [row.name for row in topic.configs] == (["retention.ms"] if topic.error_code == 0 else [])
            assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return [topic.error_code]

        eventually(lambda described=described: described() == [0], f"controller {node.id} to know the topic")
        with Wire(node.port) as wire:
            users = wire.request(DescribeUserScramCredentialsRequest(users=[UserName("unknown")]))
            assert [each.error_code for each in users.results] == [ErrorCode.RESOURCE_NOT_FOUND]
            assert wire.request(DescribeAclsRequest(resource_type_filter=1)).error_code == ErrorCode.SECURITY_DISABLED


def test_without_its_active_controller_the_cluster_decides_on_and_the_controller_comes_back(roles: Roles) -> None:
    create(roles, "before")
    active = roles.controllers[roles.quorum().leader_id]
    active.kill()
    write(roles, "before", 50)
    create(roles, "after")
    write(roles, "after", 50)
    assert roles.quorum().leader_id != active.id
    roles.start(active)
    end = roles.quorum().high_watermark

    def progress() -> dict[int, int]:
        return {each.replica_id: each.log_end_offset for each in roles.quorum().current_voters}

    eventually(lambda: progress()[active.id] >= end, "the controller to have caught up")
    assert read(roles, "before", 50) == read(roles, "after", 50) == list(range(50))


def test_a_killed_broker_is_fenced_and_serves_again_when_it_is_back(roles: Roles) -> None:
    create(roles, "kept")
    write(roles, "kept", 100)
    admin = AdminClient({"bootstrap.servers": roles.bootstrap})
    leader = admin.list_topics("kept", timeout=20).topics["kept"].partitions[0].leader
    roles.brokers[leader].kill()
    other = next(node_id for node_id in roles.brokers if node_id != leader)
    alone = AdminClient({"bootstrap.servers": f"{HOST}:{roles.brokers[other].port}"})
    eventually(
        lambda: alone.list_topics("kept", timeout=20).topics["kept"].partitions[0].leader == other, "a new leader"
    )
    assert read(roles, "kept", 100) == list(range(100))
    roles.start(roles.brokers[leader])
    eventually(
        lambda: sorted(alone.list_topics("kept", timeout=20).topics["kept"].partitions[0].isrs) == [11, 12], "the ISR"
    )


def test_a_broker_waits_for_controllers_that_start_later(tmp_path: Path) -> None:
    with separate_roles(tmp_path, controllers=1, brokers=1) as roles:
        broker, controller = roles.brokers[11], roles.controllers[1]
        broker.start()
        eventually(lambda: (broker.data / "meta.properties").exists(), "the broker to begin")
        assert not broker.is_ready
        roles.start(controller)
        broker.wait()
        create(roles, "late", replicas=1)
        write(roles, "late", 10)
        assert read(roles, "late", 10) == list(range(10))


def test_a_controller_does_not_serve_what_clients_ask_of_brokers(roles: Roles) -> None:
    port = roles.controllers[1].port
    with Wire(port) as wire:
        served = {each.api_key for each in wire.request(ApiVersionsRequest("test", "1")).api_keys}
    assert not served & {0, 2, 3, 8, 9, 10, 11, 12, 22, 24, 25, 26}
    with Wire(port) as wire:
        assert wire.request(MetadataRequest(topics=None)).error_code == ErrorCode.UNSUPPORTED_VERSION
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"")])
    with Wire(port) as wire:
        refused = wire.request(ProduceRequest(acks=1, topic_data=[topic]), 9).responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    with Wire(port) as wire:
        assert wire.request(FetchRequest()).error_code == ErrorCode.INVALID_REQUEST, "only the metadata log is here"


# -- Dynamic quorums (KIP-853) -------------------------------------------------------------------------------------------


def add_voter(roles: Roles, node: Process) -> None:
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=5000,
        voter_id=node.id,
        voter_directory_id=node.directory_id,
        listeners=[Listener(name="CONTROLLER", host=HOST, port=node.port)],
    )

    timed_out = False

    def added() -> bool:
        nonlocal timed_out
        with Wire(roles.a_broker.port) as wire:
            answer = wire.request(request)
        if answer.error_code == ErrorCode.DUPLICATE_VOTER:  # the request that timed out was decided all the same
            return timed_out
        assert answer.error_code in (0, ErrorCode.REQUEST_TIMED_OUT), answer
        timed_out |= answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        return bool(answer.error_code == 0)

    eventually(added, f"controller {node.id} to have caught up and to be added")


def test_a_quorum_formatted_with_its_first_controllers_serves_and_loses_one(tmp_path: Path) -> None:
    with separate_roles(tmp_path, dynamic=True) as roles:
        ids = {1: "JEXY6aqzQY-32P5TStzaFg", 2: "J1CIaj2qeYvUf_RBjfxxGQ", 3: "hbKZyKa4TpGLq9iGRpSDHg"}
        first = ",".join(f"{n}@{HOST}:{node.port}:{ids[n]}" for n, node in roles.controllers.items())
        for node in roles.controllers.values():
            node.format("--initial-controllers", first)
        roles.start(*roles.all)
        assert roles.voters() == [1, 2, 3]
        create(roles, "dynamic")
        with Wire(roles.a_broker.port) as wire:
            features = wire.request(ApiVersionsRequest("test", "1")).finalized_features
        assert {f.name: f.max_version_level for f in features}["kraft.version"] == 1
        roles.controllers[roles.quorum().leader_id].kill()
        create(roles, "without-one")
        write(roles, "without-one", 10)
        assert read(roles, "without-one", 10) == list(range(10))


@pytest.mark.chaos
def test_a_controller_that_stands_alone_is_joined_by_others_and_leaves_them(tmp_path: Path) -> None:
    with separate_roles(tmp_path, brokers=1, dynamic=True) as roles:
        one, *others = roles.controllers.values()
        one.format("--standalone")
        for node in others:
            node.format("--no-initial-controllers")
        roles.start(one, *roles.brokers.values())
        assert roles.voters() == [1]
        create(roles, "alone", replicas=1)
        for node in others:
            node.start()
            roles.wait_observer(node.id)
            add_voter(roles, node)
        assert roles.voters() == [1, 2, 3]
        with Wire(roles.a_broker.port) as wire:
            answer = wire.request(RemoveRaftVoterRequest(CLUSTER_ID, one.id, one.directory_id))
        assert answer.error_code == 0, answer
        eventually(lambda: roles.voters() == [2, 3] and roles.quorum().leader_id in (2, 3), "the others to lead")
        one.kill()
        create(roles, "without-it", replicas=1)
        write(roles, "without-it", 10)
        # The nodes know each other from the log, so that it survives when all of them stop.
        for node in [*roles.brokers.values(), *others]:
            node.stop()
        roles.start(*others, *roles.brokers.values())
        assert roles.voters() == [2, 3]
        assert read(roles, "without-it", 10) == list(range(10))


@pytest.mark.chaos
def test_a_quorum_of_configured_voters_becomes_a_dynamic_one_and_loses_a_voter(tmp_path: Path) -> None:
    with separate_roles(tmp_path, brokers=1) as roles:
        roles.start(*roles.all)
        up = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("kraft.version", 1, upgrade_type=1)])
        with Wire(roles.a_broker.port) as wire:
            eventually(lambda: wire.request(up).error_code == 0, "all voters to have fetched")
        directories = {each.replica_id: each.replica_directory_id for each in roles.quorum().current_voters}
        assert directories == {node_id: node.directory_id for node_id, node in roles.controllers.items()}
        leader = roles.quorum().leader_id
        leaving = next(node for node_id, node in roles.controllers.items() if node_id != leader)
        with Wire(roles.a_broker.port) as wire:
            answer = wire.request(RemoveRaftVoterRequest(CLUSTER_ID, leaving.id, leaving.directory_id))
        assert answer.error_code == 0, answer
        leaving.stop()
        staying = [node for node in roles.controllers.values() if node is not leaving]
        # The list in their configuration does not count any more.
        for node in staying:
            node.stop()
        roles.start(*staying)
        assert roles.voters() == [node.id for node in staying]
        create(roles, "afterwards", replicas=1)
        write(roles, "afterwards", 10)
        assert read(roles, "afterwards", 10) == list(range(10))


@pytest.mark.chaos
def test_what_a_slow_controller_has_taken_is_not_asked_again_when_heartbeats_are_late(tmp_path: Path) -> None:
    # A heartbeat is given up after half a session. The session must not end before the controller goes on.
    with separate_roles(tmp_path, controllers=1, brokers=1, broker_session_timeout_ms="18000") as roles:
        roles.start(*roles.all)
        controller = roles.controllers[1].process
        assert controller is not None
        topic = CreatableTopic(name="once", num_partitions=1, replication_factor=1)
        with Wire(roles.a_broker.port) as wire:
            controller.send_signal(signal.SIGSTOP)
            sent = wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=20_000))
            eventually(lambda: "could not send a heartbeat" in roles.a_broker.log, "a heartbeat to be given up")
            controller.send_signal(signal.SIGCONT)
            answer = wire.receive(*sent)
        assert ErrorCode(answer.topics[0].error_code) == ErrorCode.NONE


@pytest.mark.chaos
def test_controllers_join_by_themselves_and_again_with_another_disk(tmp_path: Path) -> None:
    with separate_roles(tmp_path, brokers=1, dynamic=True) as roles:
        one, *others = roles.controllers.values()
        one.format("--standalone")
        for node in others:
            node.properties["controller.quorum.auto.join.enable"] = "true"
            node.format("--no-initial-controllers")
        roles.start(*roles.all)

        def directories() -> dict[int, bytes]:
            return {each.replica_id: each.replica_directory_id for each in roles.quorum().current_voters}

        def everybody() -> bool:
            return directories() == {node_id: node.directory_id for node_id, node in roles.controllers.items()}

        eventually(everybody, "all controllers to be voters", seconds=60)
        last = others[-1]
        before = last.directory_id
        last.kill()
        shutil.rmtree(last.data)
        last.format("--no-initial-controllers")
        assert last.directory_id != before
        roles.start(last)
        eventually(everybody, "the controller to vote with its new disk", seconds=60)
        create(roles, "joined", replicas=1)
        write(roles, "joined", 10)
        assert read(roles, "joined", 10) == list(range(10))
