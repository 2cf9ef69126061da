"""A broker and its controller over a real connection: coming, staying, leaving, and being refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.broker.cluster.broker_state import BrokerState
from ottla.broker.cluster.lifecycle import RegistrationRejected
from ottla.controller.metadata.features import FeaturesImage
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.shared_map import Map
from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MV_CORDONED
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.server.network.context import RequestContext
from ottla.server.principal import Principal
from tests.controller.node import SECONDS_MAX, Node, forwarded, running

DIRECTORY = bytes(range(16))


def fenced(node: Node, broker_id: int) -> bool | None:
    broker = node.metadata.loader.image.cluster.brokers.get(broker_id)
    return None if broker is None else broker.fenced


async def test_a_broker_waits_for_a_controller_that_is_not_there_yet(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.metadata.raft.start()
    node.lifecycle.ready_to_unfence()
    node.lifecycle.start()
    await asyncio.wait({node.lifecycle.unfenced}, timeout=0.05)
    assert node.lifecycle.state is BrokerState.STARTING, "nothing listens at the controller's port"
    await node.listener.bind()
    await node.listener.accept()
    async with asyncio.timeout(SECONDS_MAX):
        await node.lifecycle.unfenced
    await node.stop()


async def test_a_broker_stays_fenced_until_it_says_that_it_is_ready(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        broker = node.broker(2)
        broker.start()
        async with asyncio.timeout(SECONDS_MAX):
            await broker.caught_up
        assert (broker.state, fenced(node, 2)) == (BrokerState.RECOVERY, True)
        broker.ready_to_unfence()
        async with asyncio.timeout(SECONDS_MAX):
            await broker.unfenced
        assert (broker.state, fenced(node, 2)) == (BrokerState.RUNNING, False)
        broker.stop()


async def test_a_broker_that_leaves_in_order_is_fenced_and_keeps_its_place(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.channel.request(
            CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1)])
        )
        assert await node.lifecycle.controlled_shutdown(SECONDS_MAX * 1_000)
        assert node.lifecycle.state is BrokerState.SHUTTING_DOWN
        await node.wait(lambda: fenced(node, 1) is True)
        orders = node.metadata.loader.image.topics.by_name("orders")
        assert orders is not None and orders.partitions[0].elr == (1,), "what it had is not forgotten"
        epoch = node.lifecycle.broker_epoch

    again = Node(tmp_path, previous_broker_epoch=epoch)
    await again.start()
    orders = again.metadata.loader.image.topics.by_name("orders")
    assert orders is not None
    assert (orders.partitions[0].leader, orders.partitions[0].leader_recovery_state) == (1, 0), "elected cleanly"
    await again.stop()


async def test_a_broker_whose_connection_breaks_is_fenced_long_before_its_session_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        channel = node.new_channel()
        broker = node.broker(2, channel)
        broker.ready_to_unfence()
        broker.start()
        async with asyncio.timeout(SECONDS_MAX):
            await broker.unfenced
        broker.stop()
        channel.close()
        async with asyncio.timeout(6):  # the session ends after 7 s at the earliest
            await node.wait(lambda: fenced(node, 2) is True)


async def test_a_broker_whose_heartbeat_is_answered_late_is_not_fenced(tmp_path: Path) -> None:
    """Before the fix the broker gave up after one interval and closed its connection, for which the controller fenced it: a
    node with a twentieth of a core was fenced and unfenced for eight minutes.
    """
    async with running(tmp_path) as node:
        broker = node.broker(2, node.new_channel(), heartbeat_interval_ms=50, session_timeout_ms=20_000)
        broker.ready_to_unfence()
        broker.start()
        async with asyncio.timeout(SECONDS_MAX):
            await broker.unfenced
        answered: list[int] = []
        fast = broker._controller.request

        async def slow(request: object, timeout_ms: int) -> object:
            await asyncio.sleep(0.2)  # four heartbeat intervals
            response = await fast(request, timeout_ms - 200)
            answered.append(response.error_code)
            return response

        broker._controller.request = slow
        async with asyncio.timeout(SECONDS_MAX):
            await node.wait(lambda: len(answered) == 3)
        assert answered == [ErrorCode.NONE] * 3 and fenced(node, 2) is False
        broker.stop()


async def test_a_heartbeat_names_cordoned_directories_once_the_metadata_version_knows_them(tmp_path: Path) -> None:
    """A controller of Kafka before 4.3 cannot read a heartbeat with this field: the broker ended at its first heartbeat."""
    async with running(tmp_path) as node:
        broker = node.broker(2, node.new_channel(), heartbeat_interval_ms=20)
        node.metadata.loader.publishers.remove(broker)  # the broker gets the images of the test instead
        heartbeats: list[BrokerHeartbeatRequest] = []
        real = broker._controller.request

        async def request(request: object, timeout_ms: int) -> object:
            if isinstance(request, BrokerHeartbeatRequest):
                heartbeats.append(request)
            return await real(request, timeout_ms)

        broker._controller.request = request
        broker.cordon([DIRECTORY])
        broker.ready_to_unfence()
        broker.start()
        for level, named in ((MV_CORDONED - 1, None), (MV_CORDONED, [DIRECTORY]), (MV_CORDONED - 1, None)):
            image = MetadataImage(features=FeaturesImage(Map({"metadata.version": level})))
            broker.on_metadata_update(MetadataDelta(image), image)
            del heartbeats[:]
            async with asyncio.timeout(SECONDS_MAX):
                await node.wait(lambda: bool(heartbeats))
            assert heartbeats[-1].cordoned_log_dirs == named
            if named is None:
                encode(heartbeats[-1], 1)  # encoded in the version of Kafka 3.7 to 4.2
        broker.stop()


async def test_a_second_process_with_the_same_id_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        impostor = node.broker(1, node.new_channel(), registration_timeout_ms=1_000)
        impostor.ready_to_unfence()
        impostor.start()
        with pytest.raises(RegistrationRejected, match="another live broker has the same node id"):
            await impostor.unfenced
        assert impostor.state is BrokerState.SHUTTING_DOWN
        assert fenced(node, 1) is False, "the first one is not disturbed"


async def test_a_second_process_whose_last_request_is_not_answered_is_refused_with_that_reason(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        impostor = node.broker(1, node.new_channel(), registration_timeout_ms=500)
        answers = iter([ErrorCode.DUPLICATE_BROKER_REGISTRATION])

        async def request(request: object, timeout_ms: int) -> object:
            raise KafkaError(next(answers, ErrorCode.REQUEST_TIMED_OUT))

        impostor._controller.request = request
        impostor.start()
        with pytest.raises(RegistrationRejected, match="another live broker has the same node id"):
            await impostor.unfenced


async def test_a_broker_of_another_cluster_is_refused_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        foreign_broker = node.broker(2, cluster_id="AnotherClusterAltogether")
        foreign_broker.start()
        with pytest.raises(RegistrationRejected, match="different cluster"):
            await foreign_broker.caught_up
        assert fenced(node, 2) is None


@pytest.mark.parametrize(
    ("emulates", "advice"), [(None, "upgrade this node"), ("3.9", "Kafka 3.9 does not know, which this node emulates")]
)
async def test_a_broker_of_lower_levels_than_the_clusters_is_refused(
    tmp_path: Path, emulates: str | None, advice: str
) -> None:
    async with running(tmp_path) as node:
        older = node.broker(2, features={"metadata.version": (7, 8)}, emulates=emulates)
        older.start()
        with pytest.raises(RegistrationRejected, match=advice):
            await older.caught_up


async def test_a_copied_log_directory_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        copy = node.broker(2, directories=[bytes((1,)) * 16])
        copy.start()
        with pytest.raises(RegistrationRejected, match="directories of its own"):
            await copy.caught_up


async def test_a_broker_that_was_unregistered_while_alive_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        epoch = node.lifecycle.broker_epoch
        response = await node.channel.request(UnregisterBrokerRequest(broker_id=1))
        assert response.error_code == ErrorCode.NONE
        await node.wait(lambda: node.lifecycle.broker_epoch > epoch and fenced(node, 1) is False)


async def test_a_broker_whose_lifecycle_fails_unexpectedly_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller would fence a broker without heartbeats, which would answer clients for ever all the same."""
    async with running(tmp_path) as node:
        broker = node.broker(2, node.new_channel())
        ended: list[RegistrationRejected] = []
        broker.on_rejected = ended.append
        broker.ready_to_unfence()
        broker.start()
        async with asyncio.timeout(SECONDS_MAX):
            await broker.unfenced

        def fail() -> int:
            raise KeyError("by mistake")

        monkeypatch.setattr(broker, "_metadata_offset", fail)
        broker._wake.set()
        await node.wait(lambda: bool(ended))
        assert "KeyError" in str(ended[0])
        assert broker.state is BrokerState.SHUTTING_DOWN


async def test_a_request_without_any_controller_fails_in_time(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.metadata.raft.start()  # the node leads the quorum, but nothing listens at its port
    with pytest.raises(KafkaError) as refused:
        await node.channel.request(UnregisterBrokerRequest(broker_id=1), timeout_ms=100)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    await node.stop_metadata()


class Client:
    """The connection of a broker's client, with the fields that forwarding uses."""

    id = "client"
    listener_name = "PLAINTEXT"
    principal = Principal("User", "alice")
    peer_host = "10.1.2.3"

    def close(self, reason: str) -> None:
        raise AssertionError(f"closed: {reason}")


def context(api_key: int, version: int) -> RequestContext:
    return RequestContext(api_key, version, "a-client", Client())


async def test_a_clients_request_is_forwarded_and_its_answer_comes_back_in_its_own_version(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        topics = [CreatableTopic(name="orders", num_partitions=2, replication_factor=1), CreatableTopic(name="no good")]
        response = await forwarded(node.channel, context(19, 7), CreateTopicsRequest(topics=topics))
        assert [topic.error_code for topic in response.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
        orders = node.metadata.loader.image.topics.by_name("orders")
        assert orders is not None and response.topics[0].topic_id == orders.id
        old = await forwarded(node.channel, context(19, 2), CreateTopicsRequest(topics=topics[:1]))
        assert old.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_refused_forwarded_request_is_refused_in_the_form_of_its_own_api(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        update = FeatureUpdateKey(feature="no.such", max_version_level=1)
        response = await forwarded(node.channel, context(57, 1), UpdateFeaturesRequest(feature_updates=[update]))
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION


async def test_what_is_not_a_clients_business_is_not_forwarded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

    async with running(tmp_path) as node:
        with pytest.raises(KafkaError) as refused:
            await forwarded(node.channel, context(63, 1), BrokerHeartbeatRequest(broker_id=1))
        assert "API 63: INVALID_REQUEST" in caplog.text
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR, "the client's request was not wrong"
