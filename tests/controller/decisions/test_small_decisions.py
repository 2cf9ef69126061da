"""Producer ids, directories, client quotas and SCRAM credentials (invariants 29 and 52)."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from ottla.controller.decisions.brokers import allocate_producer_ids, unregister_broker
from ottla.controller.decisions.client_quotas import alter_client_quotas
from ottla.controller.decisions.directories import assign_replicas_to_directories
from ottla.controller.decisions.elections import UNCLEAN, elect_leaders
from ottla.controller.decisions.scram import ITERATIONS_MAX, alter_user_scram_credentials
from ottla.controller.metadata.client_quotas import quota_entity
from ottla.controller.metadata.topics import LOST_DIR, NO_LEADER
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import RegisterBrokerRecord
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntryDataRequest,
    OpData,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryDataRequest,
    TopicDataRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.shared_structs import EntityData, PartitionIndex, TopicNamePartitions
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.harness import DecisionHarness, directory, topic_id


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    cluster = DecisionHarness()
    blocks = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=cluster.epoch(broker_id))
        response = cluster.decide(allocate_producer_ids(cluster.state, request))
        blocks.append((response.producer_id_start, response.producer_id_len))
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(KafkaError) as refused:
        allocate_producer_ids(cluster.state, AllocateProducerIdsRequest(broker_id=1, broker_epoch=3))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def assign(cluster: DecisionHarness, broker_id: int, where: bytes, name: str = "orders", index: int = 0) -> str:
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=cluster.epoch(broker_id),
        directories=[
            DirectoryDataRequest(
                id=where,
                topics=[TopicDataRequest(topic_id=topic_id(name), partitions=[PartitionIndex(partition_index=index)])],
            )
        ],
    )
    response = cluster.decide(assign_replicas_to_directories(cluster.state, request))
    return ErrorCode(response.directories[0].topics[0].partitions[0].error_code).name


def test_a_replica_moves_to_another_directory() -> None:
    cluster = DecisionHarness(brokers=1)
    cluster.broker(2, directories=2)
    cluster.topic("orders", "1 2")
    assert assign(cluster, 2, directory(2, 2)) == "NONE"
    assert cluster.partition("orders").directory(2) == directory(2, 2)
    assert cluster.show("orders") == "replicas 1 2 isr 1 2 leader 1 epoch 0"
    assert assign(cluster, 2, directory(2, 2), "ghost") == "UNKNOWN_TOPIC_ID"
    assert assign(cluster, 2, directory(2, 2), index=5) == "UNKNOWN_TOPIC_OR_PARTITION"
    cluster.topic("elsewhere", "1")
    assert assign(cluster, 2, directory(2, 2), "elsewhere") == "NOT_LEADER_OR_FOLLOWER"


def test_a_replica_in_a_directory_that_is_offline_loses_its_leadership() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2")
    assert assign(cluster, 1, directory(1, 9)) == "NONE"
    assert cluster.show("orders") == "replicas 1 2 isr 2 leader 2 epoch 1"


def test_a_replica_in_a_directory_that_is_offline_is_not_eligible_either() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2", min_isr=2)
    assert assign(cluster, 1, directory(1, 9)) == "NONE"
    assert cluster.show("orders") == "replicas 1 2 isr 2 leader 2 epoch 1"


def test_a_damaged_replica_is_lost_until_it_has_a_directory_again() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2")
    assert assign(cluster, 1, LOST_DIR) == "NONE"
    assert cluster.show("orders") == "replicas 1 2 isr 2 leader 2 epoch 1"
    cluster.topic("single", "1")
    assert assign(cluster, 1, LOST_DIR, "single") == "NONE"
    assert cluster.partition("single").leader == NO_LEADER
    assert assign(cluster, 1, directory(1), "single") == "NONE"
    assert cluster.partition("single").leader == 1


def all_crash_and_1_comes_back_on_an_empty_disk(replicas: str, **configs: object) -> DecisionHarness:
    """Return a cluster in which broker 1 was the last leader, and is known as such; it no longer has the directory of its
    replica.
    """
    cluster = DecisionHarness()
    cluster.topic("orders", replicas, min_isr=2, **configs)
    cluster.fence(2, 3)
    for broker_id in (2, 3, 1):
        held = [(topic_id("orders"), 0)]
        cluster.replay(cluster.state.leader_and_isr_changes(held, unclean_shutdown=broker_id))
    registered = RegisterBrokerRecord(broker_id=1, broker_epoch=202, fenced=True, log_dirs=[directory(1, 2)])
    cluster.replay([registered])
    cluster.unfence(1)
    return cluster


def test_the_last_known_leader_does_not_lead_from_a_new_directory_while_others_may_have_copies() -> None:
    """KIP-966 would elect it, and the others would truncate their logs to its empty one."""
    cluster = all_crash_and_1_comes_back_on_an_empty_disk("1 2 3")
    waiting = "replicas 1 2 3 isr - last 1 no leader epoch 1"
    assert cluster.show("orders") == waiting
    for _ in range(2):
        assert assign(cluster, 1, directory(1, 2)) == "ELIGIBLE_LEADERS_NOT_AVAILABLE"
        cluster.unfence(2)
        assert cluster.show("orders") == waiting, "2 may have lost its tail"
    elect = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None)
    cluster.decide(elect_leaders(cluster.state, elect))
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 leader 2 epoch 2 recovering"
    assert assign(cluster, 1, directory(1, 2)) == "NONE", "there is a leader to copy from"
    assert cluster.partition("orders").directory(1) == directory(1, 2)


def test_the_last_known_leader_leads_once_its_own_directory_is_back() -> None:
    cluster = all_crash_and_1_comes_back_on_an_empty_disk("1 2 3")
    assert assign(cluster, 1, directory(1, 2)) == "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    cluster.broker(1, fenced=True, epoch=203)
    cluster.unfence(1)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 leader 1 epoch 2 recovering"


def test_an_unclean_election_takes_no_replica_whose_directory_is_lost() -> None:
    cluster = all_crash_and_1_comes_back_on_an_empty_disk("1 2 3")
    elect = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=[TopicNamePartitions("orders", [0])])
    (topic,) = cluster.decide(elect_leaders(cluster.state, elect)).replica_election_results
    assert topic.partition_result[0].error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert cluster.partition("orders").leader == NO_LEADER


def test_an_empty_replica_leads_once_the_brokers_of_the_others_are_unregistered() -> None:
    """An operator who unregisters brokers declares that they are lost for good."""
    cluster = all_crash_and_1_comes_back_on_an_empty_disk("1 2 3")
    for broker_id in (2, 3):
        assert assign(cluster, 1, directory(1, 2)) == "ELIGIBLE_LEADERS_NOT_AVAILABLE"
        cluster.decide(unregister_broker(cluster.state, UnregisterBrokerRequest(broker_id=broker_id)))
    assert assign(cluster, 1, directory(1, 2)) == "NONE"
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 leader 1 epoch 2 recovering"


@pytest.mark.parametrize(
    ("replicas", "configs"), [("1", {}), ("1 2 3", {"unclean_leader_election_enable": True})], ids=["alone", "careless"]
)
def test_an_empty_replica_leads_where_it_is_the_only_one_or_unclean_elections_are_allowed(
    replicas: str, configs: dict[str, object]
) -> None:
    cluster = all_crash_and_1_comes_back_on_an_empty_disk(replicas, **configs)
    assert assign(cluster, 1, directory(1, 2)) == "NONE"
    assert cluster.show("orders") == f"replicas {replicas} isr 1 leader 1 epoch 2 recovering"


def test_a_leaderless_replica_moves_between_two_directories_that_are_there() -> None:
    """A move loses no records (KIP-113), so the last known leader stays the same."""
    cluster = DecisionHarness(brokers=2)
    cluster.broker(1, directories=2)
    cluster.topic("orders", "1 2", min_isr=2)
    cluster.fence(2, 1)
    assert assign(cluster, 1, directory(1, 2)) == "NONE"
    assert cluster.partition("orders").directory(1) == directory(1, 2)


def test_a_broker_registered_without_directories_has_them_all_online() -> None:
    """The broker was registered by a metadata.version below 17, which has been raised since (KAFKA-16162)."""
    cluster = DecisionHarness(brokers=1)
    cluster.broker(2, directories=0)
    cluster.topic("orders", "2 1")
    assert assign(cluster, 2, directory(2)) == "NONE"
    assert cluster.partition("orders").directory(2) == directory(2)
    assert cluster.show("orders") == "replicas 2 1 isr 2 1 leader 2 epoch 0"


def quota(cluster: DecisionHarness, entity: dict[str, str | None], **ops: float | None) -> tuple[int, str | None]:
    entry = EntryDataRequest(
        entity=[EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )
    (result,) = cluster.decide(alter_client_quotas(cluster.state, AlterClientQuotasRequest(entries=[entry]))).entries
    return result.error_code, result.error_message


def test_quotas_are_set_changed_and_removed() -> None:
    cluster = DecisionHarness()
    entity: dict[str, str | None] = {"user": "alice", "client_id": None}
    assert quota(cluster, entity, producer_byte_rate=1000.0) == (0, None)
    key = quota_entity({"user": "alice", "client-id": None})
    assert dict(cluster.image.client_quotas.quotas(key)) == {"producer_byte_rate": 1000.0}
    before = cluster.offset
    quota(cluster, entity, producer_byte_rate=1000.0, consumer_byte_rate=None)
    assert cluster.offset == before, "nothing changed, nothing written"
    quota(cluster, entity, producer_byte_rate=None)
    assert not cluster.image.client_quotas.entities


@pytest.mark.parametrize(
    ("entity", "ops", "message"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"robot": "x"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: robot"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"user": "x"}, {"speed": 1.0}, "Invalid configuration key speed"),
        ({"user": "x"}, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "x"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            {"ip": "1.2.3.4"},
            {"connection_creation_rate": 1e10},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        ({"ip": "not an ip"}, {"connection_creation_rate": 1.0}, "not an ip is not a valid IP or resolvable host."),
        (
            {"ip": "1.2.3.4", "user": "x"},
            {"connection_creation_rate": 1.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
    ],
)
def test_a_quota_that_cannot_be_is_refused(entity: dict[str, str | None], ops: dict[str, float], message: str) -> None:
    assert quota(DecisionHarness(), entity, **ops) == (ErrorCode.INVALID_REQUEST, message)


def test_a_share_of_the_processor_may_be_a_fraction() -> None:
    assert quota(DecisionHarness(), {"user": "x"}, request_percentage=12.5) == (0, None)


def test_what_is_named_twice_in_a_request_for_quotas_is_refused() -> None:
    alice, rate = EntityData(entity_type="user", entity_name="alice"), OpData(key="producer_byte_rate", value=1000.0)
    entries = [
        EntryDataRequest(entity=[alice], ops=[rate]),
        EntryDataRequest(entity=[alice], ops=[rate]),
        EntryDataRequest(entity=[alice, alice], ops=[rate]),
        EntryDataRequest(entity=[EntityData(entity_type="user", entity_name=None)], ops=[rate, rate]),
    ]
    cluster = DecisionHarness()
    response = cluster.decide(alter_client_quotas(cluster.state, AlterClientQuotasRequest(entries=entries)))
    assert [result.error_message for result in response.entries] == [
        None,
        "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})",
        "Invalid client quota entity, duplicate entity entry user",
        "Ignoring duplicate entity ClientQuotaEntity(entries={user=null})",
    ]
    assert [dict(each) for each in cluster.image.client_quotas.entities.values()] == [{"producer_byte_rate": 1000.0}]


def upsert(name: str = "alice", mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )


def scram(
    cluster: DecisionHarness, *changes: ScramCredentialDeletion | ScramCredentialUpsertion
) -> list[tuple[str, str]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    response = cluster.decide(alter_user_scram_credentials(cluster.state, request))
    return [(result.user, ErrorCode(result.error_code).name) for result in response.results]


def test_the_log_keeps_the_keys_and_never_the_password() -> None:
    cluster = DecisionHarness()
    assert scram(cluster, upsert(iterations=ITERATIONS_MAX)) == [("alice", "NONE")]
    credential = cluster.image.scram.credential(1, "alice")
    assert credential is not None
    assert credential.stored_key == hashlib.sha256(hmac.digest(b"salted", b"Client Key", "sha256")).digest()
    assert "salted" not in repr(credential) and "b'salt'" not in repr(credential)
    assert scram(cluster, ScramCredentialDeletion(name="alice", mechanism=1)) == [("alice", "NONE")]
    assert not cluster.image.scram.credentials


def test_credentials_that_cannot_be_are_refused() -> None:
    cluster = DecisionHarness()
    assert scram(cluster, upsert(""), upsert("b", 9), upsert("c", 1, 1), upsert("d", 2, ITERATIONS_MAX + 1)) == [
        ("", "UNACCEPTABLE_CREDENTIAL"),
        ("b", "UNSUPPORTED_SASL_MECHANISM"),
        ("c", "UNACCEPTABLE_CREDENTIAL"),
        ("d", "UNACCEPTABLE_CREDENTIAL"),
    ]
    assert scram(cluster, ScramCredentialDeletion(name="unknown", mechanism=1)) == [("unknown", "RESOURCE_NOT_FOUND")]
    assert scram(cluster, upsert("twice"), upsert("twice", 2)) == [("twice", "DUPLICATE_RESOURCE")]
    assert not cluster.image.scram.credentials
