"""The faults inside nodes, as stock clients meet them, and what keeps them out of production."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from ottla.testing.errors import InvalidFault, MadeOtherwise, NoSuchNode, NotRunning, WrongUse
from ottla.testing.spoiled import FAULT_SECONDS_MAX, PASSED_DAYS_MAX, STRIKES_MAX, Spoiled
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.ottla.conftest import ROOT

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(1, log_segment_delete_delay_ms="0") as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    yield running
    running.heal()


def create(cluster: Cluster, topic: str, **configs: str) -> None:
    named = {name.replace("_", "."): text for name, text in configs.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=named)])[topic].result(30)


@pytest.mark.parametrize("node_ids", [[1], [1, 2]])
def test_a_verb_needs_a_node_id_only_where_there_are_several(node_ids: list[int]) -> None:
    faults = Spoiled("nowhere", node_ids)
    assert faults._named(1) == 1
    with pytest.raises(NoSuchNode, match="there is no node 7"):
        faults._named(7)
    if len(node_ids) == 1:
        assert faults._named(None) == 1
    else:
        with pytest.raises(NoSuchNode, match="name one of 1, 2"):
            faults._named(None)


def test_the_only_node_is_paused_killed_and_started_without_its_id(cluster: Cluster) -> None:
    cluster.pause()
    assert cluster.is_paused() and cluster.pid() == cluster.pid(1)
    cluster.resume()
    cluster.kill()
    assert not cluster.is_running()
    cluster.start()
    assert cluster.is_running() and cluster.log() == cluster.log(1)


def produce(cluster: Cluster, topic: str, values: list[bytes], **settings: object) -> list[KafkaError | None]:
    """Return the error of each record, or None for those that were acknowledged."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})
    errors: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(60) == 0
    return errors


def ends(cluster: Cluster, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
        return int(low), int(high)
    finally:
        consumer.close()


# -- Time ----------------------------------------------------------------------------------------------------------------


def test_after_ten_days_retention_has_removed_what_a_week_keeps(cluster: Cluster) -> None:
    create(cluster, "kept-a-week")
    assert produce(cluster, "kept-a-week", [b"x"] * 10) == [None] * 10
    cluster.advance(days=10)
    eventually(lambda: ends(cluster, "kept-a-week") == (10, 10), "retention", seconds=30)


def test_a_wall_clock_that_jumps_ten_days_ahead_deletes_nothing_by_age_for_an_hour(cluster: Cluster) -> None:
    create(cluster, "kept-a-day", retention_ms=str(86_400_000), segment_ms="1000")
    create(cluster, "kept-small", retention_bytes="1", segment_bytes="1048576")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(10):
        producer.produce("kept-a-day", b"x", timestamp=cluster.time_ms)
    assert producer.flush(30) == 0
    cluster.skew_clock(1, 10 * 86_400)
    # Its size shows that retention has checked all topics since then.
    assert produce(cluster, "kept-small", [b"x" * 500_000] * 5) == [None] * 5
    cluster.advance(minutes=6)
    eventually(lambda: ends(cluster, "kept-small")[0] > 0, "retention by size", seconds=30)
    assert ends(cluster, "kept-a-day") == (0, 10)
    # A thread writes the log, so the line may come after the responses to later requests.
    eventually(lambda: "The wall clock jumped by +864000 s" in cluster.log(1), "the line in the log", seconds=30)
    cluster.advance(hours=1)

    def is_deleted_after_a_look() -> bool:
        cluster.advance(minutes=6)
        return ends(cluster, "kept-a-day") == (10, 10)

    eventually(is_deleted_after_a_look, "retention by age", seconds=30)


def test_after_a_day_a_compacted_topic_has_one_record_of_a_key(cluster: Cluster) -> None:
    create(cluster, "compacted", cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(20):
        producer.produce("compacted", b"%d" % number, b"same")
    producer.flush(30)
    cluster.advance(days=1)
    producer.produce("compacted", b"last", b"other", timestamp=cluster.time_ms)
    producer.flush(30)
    cluster.advance(minutes=5)

    def values() -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "c", "enable.partition.eof": True})
        consumer.assign([TopicPartition("compacted", 0, 0)])
        read = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            read.append(message.value())
        consumer.close()
        return read

    eventually(lambda: values() == [b"19", b"last"], "compaction", seconds=60)


def test_a_transaction_is_aborted_when_its_time_has_passed(cluster: Cluster) -> None:
    create(cluster, "transacted")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("transacted", b"never committed")
    assert producer.flush(30) == 0
    cluster.advance(minutes=11)
    with pytest.raises(KafkaException) as refused:
        eventually(lambda: ends(cluster, "transacted")[1] == 2, "the abort marker", seconds=30)
        producer.commit_transaction(30)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def test_a_member_of_a_group_is_out_after_its_session_and_no_broker_is(cluster: Cluster) -> None:
    create(cluster, "grouped")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "silent",
            "session.timeout.ms": 300_000,
            "heartbeat.interval.ms": 100_000,
        }
    )
    consumer.subscribe(["grouped"])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def members() -> int:
        return len(admin.describe_consumer_groups(["silent"])["silent"].result(30).members)

    eventually(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 1, "the assignment")
    assert members() == 1
    unfenced = cluster.log(1).count("has been unfenced")
    cluster.advance(minutes=6)
    eventually(lambda: members() == 0, "the end of the session")
    assert cluster.log(1).count("has been unfenced") == unfenced
    consumer.close()


# -- Disk ----------------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_records_and_takes_them_again_when_it_has_room(cluster: Cluster) -> None:
    create(cluster, "filled")
    assert produce(cluster, "filled", [b"x"]) == [None]
    cluster.disk_full()
    large = b"x" * 100_000
    (error,) = produce(cluster, "filled", [large], **{"message.timeout.ms": 2000})
    assert error is not None
    eventually(lambda: "no space left" in cluster.log(1), "the line in the log", seconds=30)
    cluster.disk_full(full=False)
    assert produce(cluster, "filled", [large]) == [None]


def test_a_slow_disk_delays_records_that_are_flushed_before_their_acknowledgement(cluster: Cluster) -> None:
    create(cluster, "flushed", flush_messages="1")
    produce(cluster, "flushed", [b"x"])
    cluster.slow_disk(700)
    began = time.monotonic()
    assert produce(cluster, "flushed", [b"x"]) == [None]
    assert time.monotonic() - began > 0.7


# -- Answers -------------------------------------------------------------------------------------------------------------


def test_the_next_produces_fail_and_the_client_tries_again(cluster: Cluster) -> None:
    create(cluster, "struck")
    strikes = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", 2)
    assert strikes.left == 2
    assert produce(cluster, "struck", [b"x"], **{"enable.idempotence": True}) == [None]
    assert strikes.left == 0 and ends(cluster, "struck") == (0, 1)


def test_an_error_that_no_client_retries_reaches_the_program(cluster: Cluster) -> None:
    create(cluster, "refused")
    cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED")
    (error,) = produce(cluster, "refused", [b"x"])
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_record_whose_acknowledgement_is_lost_is_there_once_with_idempotence_and_twice_without(
    cluster: Cluster,
) -> None:
    for topic, idempotent, count in (("once", True, 1), ("twice", False, 2)):
        create(cluster, topic)
        cluster.fail_next("Produce", "REQUEST_TIMED_OUT", served=True)
        assert produce(cluster, topic, [b"x"], **{"enable.idempotence": idempotent}) == [None]
        assert ends(cluster, topic) == (0, count)


def test_a_forwarded_api_fails_too(cluster: Cluster) -> None:
    cluster.fail_next("CreateTopics", "POLICY_VIOLATION")
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        create(cluster, "forbidden")
    create(cluster, "forbidden")


def test_a_delayed_response_comes_later_and_after_heal_at_once(cluster: Cluster) -> None:
    create(cluster, "delayed")
    produce(cluster, "delayed", [b"x"])
    cluster.delay("Produce", 0.8)
    began = time.monotonic()
    assert produce(cluster, "delayed", [b"x"]) == [None]
    assert time.monotonic() - began >= 0.8


def test_clients_are_offered_the_versions_of_an_older_broker(cluster: Cluster) -> None:
    from ottla.protocol.messages.api_versions import ApiVersionsRequest

    cluster.versions("Produce", highest=7)
    with Wire(cluster.nodes[1].port) as wire:
        offered = wire.request(ApiVersionsRequest("x", "1"), 3).api_keys
    assert [(row.min_version, row.max_version) for row in offered if row.api_key == 0] == [(0, 7)]
    create(cluster, "old")
    assert produce(cluster, "old", [b"x"]) == [None]


#: A wrong request of a test, its kind of error, and a part of the text.
WRONG: list[tuple[Callable[[Cluster], object], type[WrongUse], str]] = [
    (lambda it: it.kill(7), NoSuchNode, "there is no node 7: the nodes of this cluster are 1"),
    (lambda it: it.start(1, 2), NoSuchNode, "there is no node 2"),
    (lambda it: it.log(0), NoSuchNode, "there is no node 0"),
    (lambda it: it.disk_full(2), NoSuchNode, "there is no node 2"),
    (lambda it: it.fail_next("Produce", "NONE", nodes=[2]), NoSuchNode, "there is no node 2"),
    (lambda it: it.skew_clock([1], 1), NoSuchNode, "there is no node"),
    (lambda it: it.isolate(1), MadeOtherwise, "cannot be cut or slowed: make it with cuttable=True"),
    (lambda it: it.add_user("alice"), MadeOtherwise, "has no users: make it with secure=True"),
    (lambda it: it.client_file, MadeOtherwise, "make it with secure=True"),
    (lambda it: it.fail_next("Produse", "NONE"), InvalidFault, "no API 'Produse' for clients: is Produce meant"),
    (lambda it: it.delay("Vote", 1), InvalidFault, "no API 'Vote' for clients"),  # an API between controllers
    (
        lambda it: it.fail_next("Produce", "NOT_LEADER"),
        InvalidFault,
        "no error 'NOT_LEADER': is NOT_LEADER_OR_FOLLOWER",
    ),
    (lambda it: it.fail_next("Produce", 999), InvalidFault, "Kafka has no error 999"),
    (lambda it: it.fail_next("Produce", "NONE", 0), InvalidFault, f"n=0 is out of range: .* 1 to {STRIKES_MAX}"),
    (lambda it: it.fail_next("Produce", "NONE", STRIKES_MAX + 1), InvalidFault, "out of range"),
    (lambda it: it.delay("Fetch", FAULT_SECONDS_MAX + 1), InvalidFault, "seconds=3601 is out of range"),
    (lambda it: it.delay("Fetch", float("nan")), InvalidFault, "seconds=nan is no number"),
    (lambda it: it.slow_disk("1"), InvalidFault, "ms='1' is no number"),
    (lambda it: it.advance(days=PASSED_DAYS_MAX + 1), InvalidFault, "days in all=.* is out of range"),
    (lambda it: it.advance(days=-1), InvalidFault, "time does not go back: skew_clock"),
    (
        lambda it: it.versions("Produce", highest=99),
        InvalidFault,
        "Produce cannot have the versions 0 to 99: there are 0 to",
    ),
]


@pytest.mark.parametrize("ask, error, said", WRONG, ids=[said for _, _, said in WRONG])
def test_what_a_cluster_cannot_do_is_an_error_of_its_kind_that_says_what_to_do(
    cluster: Cluster, ask: Callable[[Cluster], object], error: type[WrongUse], said: str
) -> None:
    before = cluster.condition()
    with pytest.raises(error, match=said):
        ask(cluster)
    assert cluster.condition() == before


def test_a_node_that_does_not_run_gets_no_signal(cluster: Cluster) -> None:
    cluster.kill(1)
    for ask in (cluster.kill, cluster.pause, cluster.resume, cluster.stop):
        with pytest.raises(NotRunning, match=r"node 1 does not run: start\(1\)"):
            ask(1)
    cluster.restore()
    assert cluster.is_running(1)


def test_a_cluster_is_again_as_it_was_with_the_faults_that_it_had(cluster: Cluster) -> None:
    create(cluster, "restored")
    cluster.slow_disk(1)
    before = cluster.condition()
    cluster.advance(days=30)
    cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", 50)
    cluster.disk_full()
    cluster.pause(1)
    after = cluster.condition()
    assert after.lasting_since(before) == ["node 1 is paused", "its time is 30 days ahead"]
    cluster.restore(before)
    assert cluster.condition() == before != after
    assert abs(cluster.time_ms / 1000 - time.time()) < 60
    assert produce(cluster, "restored", [b"x"]) == [None]


def test_a_node_has_its_faults_again_after_a_kill_and_gets_those_that_it_slept_through(cluster: Cluster) -> None:
    create(cluster, "remembered")
    cluster.pause(1)
    strikes = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", 2)
    cluster.resume(1)
    assert produce(cluster, "remembered", [b"x"]) == [None]
    assert strikes.left == 0
    strikes = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", 1)
    cluster.kill(1)
    cluster.start(1)
    assert produce(cluster, "remembered", [b"x"]) == [None]
    assert strikes.left == 0


# -- Production ----------------------------------------------------------------------------------------------------------


def test_nothing_that_a_production_node_imports_knows_of_faults() -> None:
    code = (
        "import sys, ottla.processes.start, ottla.node.process, ottla.cli.commands.dev;"
        "sys.exit(any(name.startswith('ottla.testing') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
