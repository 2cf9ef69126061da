"""Registration: which brokers are accepted, and what follows from the way in which a broker stopped."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.decisions.brokers import (
    MV_UNREGISTER_CONTROLLER,
    register_broker,
    register_controller,
    unregister_broker,
    unregister_controller,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import supported_levels
from ottla.protocol.internal_topics.metadata_records import RegisterBrokerRecord
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.shared_structs import Feature, Listener
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.harness import CLUSTER_ID, DecisionHarness, directory


def registration(broker_id: int = 1, **fields: Any) -> BrokerRegistrationRequest:
    given: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": b"new incarnation!",
        "listeners": [Listener(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)],
        "features": [
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in supported_levels().items()
        ],
        "rack": "north",
        "log_dirs": [directory(broker_id)],
    }
    return BrokerRegistrationRequest(**given | fields)


def register(cluster: DecisionHarness, request: BrokerRegistrationRequest, *, has_session: bool = False) -> int:
    epoch: int = cluster.decide(register_broker(cluster.state, request, 5_000, has_session=has_session))
    return epoch


def test_a_new_broker_is_registered_fenced_with_the_offset_as_its_epoch() -> None:
    cluster = DecisionHarness(brokers=0)
    assert register(cluster, registration()) == 5_000
    broker = cluster.image.cluster.brokers[1]
    assert (broker.fenced, broker.epoch, broker.rack, broker.directories) == (True, 5_000, "north", (directory(1),))
    endpoint = broker.endpoint("PLAINTEXT")
    assert endpoint is not None and (endpoint.host, endpoint.port) == ("localhost", 9092)


def test_the_same_incarnation_keeps_its_epoch_and_stays_unfenced() -> None:
    cluster = DecisionHarness(brokers=1)
    epoch = register(cluster, registration(incarnation_id=bytes((1,)) * 16, rack="south"), has_session=True)
    broker = cluster.image.cluster.brokers[1]
    assert (epoch, broker.fenced, broker.rack) == (101, False, "south")


def test_a_new_incarnation_is_fenced_and_out_of_the_isr_before_it_is_let_in() -> None:
    """The registration keeps invariant 23, with and without the mark of a clean shutdown."""
    for previous_epoch, elr in ((101, "elr 1 "), (-1, ""), (100, "")):
        cluster = DecisionHarness()
        cluster.topic("orders", "1 2", min_isr=2)
        register(cluster, registration(previous_broker_epoch=previous_epoch))
        assert cluster.image.cluster.brokers[1].fenced
        assert cluster.show("orders") == f"replicas 1 2 isr 2 {elr}leader 2 epoch 1"


def test_the_epoch_is_the_offset_of_the_registration_not_of_the_decisions_first_record() -> None:
    """Above 10,000 records the decision takes several batches. A broker that has read only the first has not caught up."""
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2", min_isr=2, partitions=3)
    records, epoch = register_broker(cluster.state, registration(), 5_000, has_session=False)
    assert isinstance(records[-1], RegisterBrokerRecord)
    assert len(records) == 4
    assert epoch == records[-1].broker_epoch == 5_003


@pytest.mark.parametrize("elr", [True, False])
def test_a_replica_in_a_directory_that_the_broker_no_longer_has_is_not_eligible(elr: bool) -> None:
    """The mark of a clean stop is not valid for a directory that was taken out of log.dirs."""
    cluster = DecisionHarness(elr=elr)
    cluster.topic("orders", "1 2", min_isr=2)
    cluster.fence(1)
    register(cluster, registration(previous_broker_epoch=101, log_dirs=[directory(1, 2)]))
    assert cluster.show("orders") == "replicas 1 2 isr 2 leader 2 epoch 1"
    cluster = DecisionHarness(elr=elr)
    cluster.topic("orders", "1 2", min_isr=2)
    cluster.fence(1)
    register(cluster, registration(previous_broker_epoch=101, log_dirs=[directory(1, 1), directory(1, 2)]))
    assert cluster.show("orders") == f"replicas 1 2 isr 2 {'elr 1 ' if elr else ''}leader 2 epoch 1"


REFUSED: list[tuple[dict[str, Any], ErrorCode, str]] = [
    (
        {"cluster_id": "another"},
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        f"Expected cluster ID {CLUSTER_ID}, but got cluster ID another",
    ),
    ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION, "No directories specified in request"),
    ({"log_dirs": [bytes(16)]}, ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request"),
    ({"log_dirs": [directory(1)] * 2}, ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request"),
    (
        {"log_dirs": [directory(2)]},
        ErrorCode.INVALID_REGISTRATION,
        "Broker 2 is already registered with directory AgECAQIBAgECAQIBAgECAQ",
    ),
    ({"listeners": []}, ErrorCode.INVALID_REGISTRATION, "No listeners specified in request"),
    (
        {"is_migrating_zk_broker": True},
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Controller does not support registering ZK brokers.",
    ),
    (
        {"features": [Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)]},
        ErrorCode.UNSUPPORTED_VERSION,
        "Unable to register because the broker does not support finalized version 1 of"
        " eligible.leader.replicas.version. The broker wants a version between 0 and 0, inclusive.",
    ),
]


@pytest.mark.parametrize(("fields", "code", "message"), REFUSED, ids=lambda value: None)
def test_a_broker_that_does_not_belong_here_is_refused(fields: dict[str, Any], code: ErrorCode, message: str) -> None:
    cluster = DecisionHarness(brokers=2)
    with pytest.raises(KafkaError) as refused:
        register(cluster, registration(**fields))
    assert (refused.value.code, refused.value.message) == (code, message)


def test_a_second_process_with_the_id_of_a_live_broker_is_refused() -> None:
    cluster = DecisionHarness(brokers=1)
    with pytest.raises(KafkaError) as refused:
        register(cluster, registration(), has_session=True)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert register(cluster, registration(), has_session=False) == 5_000


def test_an_unregistered_broker_is_gone_from_every_isr() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=3)
    cluster.decide(unregister_broker(cluster.state, UnregisterBrokerRequest(broker_id=1)))
    assert 1 not in cluster.image.cluster.brokers
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 3 leader 2 epoch 1", "not eligible either"
    with pytest.raises(KafkaError, match="Broker ID 1 is not currently registered"):
        unregister_broker(cluster.state, UnregisterBrokerRequest(broker_id=1))


def test_a_controller_registers_and_can_be_forgotten_once_it_votes_no_more() -> None:
    cluster = DecisionHarness()
    cluster.decide(register_controller(cluster.state, ControllerRegistrationRequest(controller_id=9)))
    assert 9 in cluster.image.cluster.controllers
    with pytest.raises(KafkaError, match="too old"):
        unregister_controller(cluster.state, 9, frozenset())
    newer = DecisionHarness(metadata_version=MV_UNREGISTER_CONTROLLER)
    with pytest.raises(KafkaError) as refused:
        unregister_controller(newer.state, 9, frozenset())
    assert refused.value.code == ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    old = DecisionHarness(metadata_version=14, elr=False)
    with pytest.raises(KafkaError, match="too old"):
        register_controller(old.state, ControllerRegistrationRequest(controller_id=9))
