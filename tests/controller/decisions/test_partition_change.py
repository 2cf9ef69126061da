"""The leader changes when brokers come and go. Read with the theory at the top of controller/decisions/partition_change.py."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.decisions.brokers import register_broker
from ottla.protocol.features import supported_levels
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.shared_structs import Feature, Listener
from tests.controller.harness import CLUSTER_ID, DecisionHarness, directory
from tests.effort import examples


def come_back(cluster: DecisionHarness, broker_id: int, *, cleanly: bool) -> None:
    """Start the broker's process again, and unfence it."""
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=bytes((broker_id, cluster.offset % 251)) * 8,
        listeners=[Listener(name="PLAINTEXT", host="localhost", port=9000 + broker_id)],
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in supported_levels().items()
        ],
        log_dirs=[directory(broker_id)],
        previous_broker_epoch=cluster.epoch(broker_id) if cleanly else -1,
    )
    new_epoch = 1_000 + cluster.offset
    cluster.decide(register_broker(cluster.state, request, new_epoch, has_session=False))
    cluster.unfence(broker_id)


def test_the_next_in_sync_replica_leads_when_the_leader_is_fenced() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2)
    cluster.fence(1)
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 3 leader 2 epoch 1"


def test_a_fenced_follower_leaves_the_isr_without_a_new_leader_epoch() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2)
    cluster.fence(3)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 2 leader 1 epoch 0"


def test_before_metadata_version_12_a_shrinking_isr_needs_a_new_leader_epoch() -> None:
    cluster = DecisionHarness(elr=False, metadata_version=11)
    cluster.topic("orders", "1 2 3")
    cluster.fence(3)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 2 leader 1 epoch 1"


def test_below_the_minimum_those_who_leave_the_isr_stay_eligible() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2)
    cluster.fence(1, 2)
    assert cluster.show("orders") == "replicas 1 2 3 isr 3 elr 2 leader 3 epoch 2"
    cluster.fence(3)
    assert cluster.show("orders") == "replicas 1 2 3 isr - elr 2 3 last 3 no leader epoch 3"


def test_an_eligible_replica_leads_again_without_losing_anything() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2)
    cluster.fence(1, 2, 3)
    cluster.unfence(1)
    assert cluster.show("orders") == "replicas 1 2 3 isr - elr 2 3 last 3 no leader epoch 3", "1 left too early"
    cluster.unfence(2)
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 elr 3 leader 2 epoch 4"


def test_a_partition_that_lost_its_leader_before_the_elr_was_enabled_gets_one_again() -> None:
    """Its last replica in sync crashed: it is out of the ISR, never was in the ELR, and is not known as the last leader."""
    cluster = DecisionHarness(elr=False)
    cluster.topic("orders", "1 2", min_isr=2)
    cluster.fence(2, 1)
    assert cluster.show("orders") == "replicas 1 2 isr 1 no leader epoch 1"
    cluster.replay([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
    come_back(cluster, 1, cleanly=False)
    assert cluster.show("orders") == "replicas 1 2 isr 1 leader 1 epoch 2 recovering"


def test_an_eligible_replica_that_crashed_is_eligible_no_more() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2)
    cluster.fence(1, 2, 3)
    come_back(cluster, 2, cleanly=False)
    assert cluster.show("orders") == "replicas 1 2 3 isr - elr 3 last 3 no leader epoch 3"


def test_an_eligible_replica_that_stopped_cleanly_leads() -> None:
    cluster = DecisionHarness()
    cluster.topic("orders", "1 2 3", min_isr=2)
    cluster.fence(1, 2, 3)
    come_back(cluster, 2, cleanly=True)
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 elr 3 leader 2 epoch 4"


def test_when_no_replica_is_eligible_the_last_known_leader_recovers() -> None:
    cluster = DecisionHarness(brokers=1)
    cluster.topic("orders", "1")
    cluster.fence(1)
    come_back(cluster, 1, cleanly=False)
    assert cluster.show("orders") == "replicas 1 isr 1 leader 1 epoch 2 recovering"


def test_without_elr_the_last_in_sync_replica_stays_in_the_isr_and_is_waited_for() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("orders", "1 2 3")
    cluster.fence(3, 2, 1)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 no leader epoch 1"
    cluster.unfence(2)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 no leader epoch 1"
    cluster.unfence(1)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 leader 1 epoch 2"


def test_a_replica_out_of_sync_leads_only_where_the_topic_allows_it() -> None:
    cluster = DecisionHarness(elr=False)
    cluster.topic("careful", "1 2", isr="1")
    cluster.topic("careless", "1 2", isr="1", unclean_leader_election_enable=True)
    cluster.fence(1)
    assert cluster.show("careful") == "replicas 1 2 isr 1 no leader epoch 1"
    assert cluster.show("careless") == "replicas 1 2 isr 2 leader 2 epoch 1 recovering"


def test_a_replica_in_a_failed_directory_may_not_lead() -> None:
    from ottla.controller.decisions.brokers import offline_directories_records

    cluster = DecisionHarness(brokers=0)
    for broker_id in (1, 2):
        cluster.broker(broker_id, directories=2)
    cluster.topic("orders", "1 2")
    cluster.replay(offline_directories_records(cluster.state, 1, [directory(1, 1)]))
    assert cluster.show("orders") == "replicas 1 2 isr 2 leader 2 epoch 1"
    assert cluster.image.cluster.brokers[1].directories == (directory(1, 2),)
    assert offline_directories_records(cluster.state, 1, [directory(1, 1)]) == [], "known already"


EVENTS = st.lists(st.tuples(st.sampled_from(["fence", "unfence", "crash", "restart"]), st.integers(1, 4)), max_size=40)


@given(events=EVENTS, min_isr=st.integers(1, 3), unclean=st.booleans(), elr=st.booleans())
@settings(max_examples=examples(150))
def test_whatever_happens_epochs_grow_and_isr_and_elr_keep_apart(
    events: list[tuple[str, int]], min_isr: int, unclean: bool, elr: bool
) -> None:
    """Invariants 17 and 22 hold; and no replica leads that may have missed a committed record, unless the topic allows it."""
    cluster = DecisionHarness(brokers=4, elr=elr)
    cluster.topic("orders", "1 2 3", min_isr=min_isr, unclean_leader_election_enable=unclean)
    before = cluster.partition("orders")
    for event, broker_id in events:
        fenced = cluster.image.cluster.brokers[broker_id].fenced
        if event == "fence" and not fenced:
            cluster.fence(broker_id)
        elif event == "unfence" and fenced:
            cluster.unfence(broker_id)
        elif event in ("crash", "restart") and fenced:
            come_back(cluster, broker_id, cleanly=event == "restart")
        after = cluster.partition("orders")
        assert after.leader_epoch >= before.leader_epoch
        assert after.leader == before.leader or after.leader_epoch > before.leader_epoch
        assert after == before or after.partition_epoch > before.partition_epoch
        assert not set(after.isr) & set(after.elr)
        assert len(after.isr) < min_isr or not after.elr
        assert after.leader == -1 or cluster.image.cluster.is_active(after.leader)
        assert after.leader == -1 or after.leader in after.isr
        if after.leader not in (-1, before.leader) and not after.leader_recovery_state:
            assert after.leader in before.isr or after.leader in before.elr
        before = after
