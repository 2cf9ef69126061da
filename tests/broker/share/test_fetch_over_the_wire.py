"""ShareFetch and ShareAcknowledge of one node, request by request: sessions, acquiring, releasing, waiting, and bad input."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.request import urlopen

import pytest

from ottla.broker.api.share_acknowledge import MEMBER_ID_MAX
from ottla.broker.share.share_session import PARTITIONS_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.shared_structs import AcknowledgePartition, AcknowledgeTopic
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.records import batch
from tests.broker.share.member import ACCEPT, REJECT, RELEASE, RENEW, At, ShareMember, initialize, set_group
from tests.broker.test_client_quotas import alter, described
from tests.broker.wire import Wire
from tests.ports import free_ports

LOCK_MS = 1_000
#: The lock of records that a test acknowledges in time, even on a slow machine.
LONGER_LOCK_MS = 6_000
NONE = ErrorCode.NONE
UNKNOWN_TOPIC = b"\7" * 16


@pytest.fixture(scope="module")
def admin_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def node(admin_port: int) -> Iterator[Node]:
    started = start_node(
        group_share_min_record_lock_duration_ms=str(LOCK_MS), ottla_admin_listener=f"127.0.0.1:{admin_port}"
    )
    yield started
    stop_node(started)


class Share:
    """A topic of one partition with a share group of its own, which begins at the first record."""

    def __init__(self, node: Node, **configs: str) -> None:
        self.node = node
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.group = f"g-{self.topic}"
        node.create(self.topic)
        self.wires: list[Wire] = []
        self.wire = self.connect()
        set_group(self.wire, self.group, **({"share_auto_offset_reset": "earliest"} | configs))
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        self.at: At = (self.wire.request(request, 12).topics[0].topic_id, 0)
        initialize(self.wire, self.group, self.at)

    def connect(self) -> Wire:
        wire = self.node.wire()
        self.wires.append(wire)
        return wire

    def member(self) -> ShareMember:
        return ShareMember(self.connect(), self.group, [self.at])

    def produce(self, *values: bytes) -> None:
        request = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(self.topic, partition_data=[PartitionProduceData(0, batch(values))])],
        )
        answer = self.wire.request(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def close(self) -> None:
        for wire in self.wires:
            wire.__exit__()


@pytest.fixture
def share(node: Node) -> Iterator[Share]:
    made = Share(node)
    yield made
    made.close()


def until(fetch: Callable[[], dict[int, bytes | None]]) -> dict[int, bytes | None]:
    """Fetch until there are records; return them."""
    deadline = time.monotonic() + 30
    while not (records := fetch()):
        assert time.monotonic() < deadline, "no records came"
    return records


def records_of(
    member: ShareMember, at: At, acknowledged: list[tuple[int, int, list[int]]] | None = None
) -> dict[int, bytes | None]:
    found = member.fetch({at: acknowledged} if acknowledged else None).get(at)
    return found.records if found else {}


def test_records_are_delivered_once_and_accepted_with_the_next_fetch(share: Share) -> None:
    share.produce(b"a", b"b")
    member = share.member()
    first = until(lambda: records_of(member, share.at))
    assert first == {0: b"a", 1: b"b"}
    share.produce(b"c")
    answer = member.fetch({share.at: [(0, 1, [ACCEPT])]})[share.at]
    assert (answer.acknowledge_error, answer.records, answer.counts) == (NONE, {2: b"c"}, {2: 1})
    assert member.acknowledge(share.at, (2, 2, [ACCEPT])) == NONE
    assert records_of(share.member(), share.at) == {}


def test_a_waiting_fetch_is_woken_by_a_record_and_by_a_release(share: Share) -> None:
    share.produce(b"a")
    holder, waiting = share.member(), share.member()
    until(lambda: records_of(holder, share.at))
    waiting.fetch(max_wait_ms=0)
    started = time.monotonic()
    waiting.wire.send(waiting.fetch_request(max_wait_ms=9_000))
    assert holder.acknowledge(share.at, (0, 0, [RELEASE])) == NONE
    [topic] = waiting.fetched().responses
    assert [tuple(vars_of(a)) for a in topic.partitions[0].acquired_records] == [(0, 0, 2)]
    waiting.wire.send(waiting.fetch_request(max_wait_ms=9_000))
    share.produce(b"b")
    [topic] = waiting.fetched().responses
    assert [tuple(vars_of(a)) for a in topic.partitions[0].acquired_records] == [(1, 1, 1)]
    assert time.monotonic() - started < 9


def vars_of(acquired: object) -> list[object]:
    return [getattr(acquired, name) for name in ("first_offset", "last_offset", "delivery_count")]


def test_a_lock_that_times_out_gives_its_records_to_the_next_member(node: Node) -> None:
    share = Share(node, share_record_lock_duration_ms=str(LOCK_MS))
    share.produce(b"a")
    until(partial(records_of, share.member(), share.at))
    other = share.member()
    assert until(partial(records_of, other, share.at)) == {0: b"a"}
    share.close()


def test_what_becomes_of_records_is_in_the_metrics_under_kafkas_names(node: Node, admin_port: int) -> None:
    share = Share(node, share_record_lock_duration_ms=str(LONGER_LOCK_MS))
    share.produce(b"a", b"b", b"c", b"d")
    of = f'{{group="{share.group}",partition="0",topic="{share.topic}"}}'
    before = metrics(admin_port)
    member = share.member()
    assert len(until(lambda: records_of(member, share.at))) == 4
    assert member.acknowledge(share.at, (0, 1, [ACCEPT, REJECT])) == NONE
    assert member.acknowledge(share.at, (2, 2, [RELEASE])) == NONE

    def now(name: str) -> float:
        return metrics(admin_port)[name] - before.get(name, 0)

    assert now(f"kafka_server_sharepartitionmetrics_inflightmessagecount{of}") == 2
    assert now(f"kafka_server_sharepartitionmetrics_inflightbatchmessagecount_sum{of}") == 4
    ratio = f'kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio_sum{{group="{share.group}"}}'
    assert now(ratio) == 100, "one fetch has got records of its only partition"
    assert now(ratio.replace("requesttopicpartitionsfetchratio_sum", "topicpartitionsacquiretimems_count")) >= 1
    acknowledged = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    counts = {kind: now(f'{acknowledged}{{ackType="{kind}"}}') for kind in ("Accept", "Release", "Reject", "Renew")}
    assert counts == {"Accept": 1, "Release": 1, "Reject": 1, "Renew": 0}
    timeouts = f"kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total{of}"
    eventually(lambda: now(timeouts) == 1, "the lock of the fourth record to time out")
    assert now("kafka_server_sharesessioncache_numsharesessions") == 1
    assert now("kafka_server_sharecoordinatormetrics_write_total") >= 3
    assert metrics(admin_port)['kafka_server_sharecoordinatormetrics_num_partitions{state="active"}'] > 0
    share.close()


def metrics(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_lock_is_renewed_and_the_record_is_still_to_be_acknowledged(share: Share) -> None:
    share.produce(b"a")
    member = share.member()
    until(partial(records_of, member, share.at))
    response = member.acknowledge_response({share.at: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert response.responses[0].partitions[0].error_code == NONE
    assert response.acquisition_lock_timeout_ms == 30_000
    answer = member.fetch(
        {share.at: [(0, 0, [RENEW])]}, is_renew_ack=True, max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0
    )
    assert answer[share.at].acknowledge_error == NONE
    assert member.acknowledge(share.at, (0, 0, [REJECT])) == NONE


def test_records_of_a_member_that_leaves_or_whose_connection_breaks_are_given_back(share: Share) -> None:
    share.produce(b"a")
    for ends in (ShareMember.leave, lambda member: member.wire.__exit__()):
        member = share.member()
        assert until(partial(records_of, member, share.at)) == {0: b"a"}
        ends(member)
    assert until(lambda: records_of(share.member(), share.at)) == {0: b"a"}


def test_a_strict_limit_is_not_exceeded_for_a_batch(share: Share) -> None:
    share.produce(b"a", b"b", b"c")
    member = share.member()
    assert member.fetch(max_records=2, share_acquire_mode=1, max_wait_ms=9_000)[share.at].acquired == [(0, 1, 1)]
    assert member.fetch(max_records=2)[share.at].acquired == [(2, 2, 1)]


def test_a_session_goes_through_its_epochs(share: Share) -> None:
    member = share.member()
    member.epoch = 1
    assert member.fetch_response().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acknowledged_at(member, 0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert acknowledged_at(member, 3) == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    answer = member.fetch_response({share.at: [(0, 0, [ACCEPT])]})
    assert answer.error_code == ErrorCode.INVALID_REQUEST, "acknowledgements with the first request"
    member.fetch(max_wait_ms=0)
    member.epoch = 5
    assert member.fetch_response().error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 1
    assert member.fetch(max_wait_ms=0) == {}, "nothing was changed by it"
    member.leave()
    member.epoch = 3
    assert member.fetch_response().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def acknowledged_at(member: ShareMember, epoch: int) -> int:
    request = ShareAcknowledgeRequest(group_id=member.group, member_id=member.member_id, share_session_epoch=epoch)
    return int(member.wire.request(request).error_code)


def test_a_session_too_many_is_refused_after_the_wait_of_its_fetch() -> None:
    node = start_node(group_share_max_share_sessions="1")
    try:
        with node.wire() as first, node.wire() as second:
            first.request(ShareFetchRequest(group_id="g", member_id="a", max_wait_ms=10))
            started = time.monotonic()
            answer = second.request(ShareFetchRequest(group_id="g", member_id="b", max_wait_ms=100))
            assert answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
            assert time.monotonic() - started >= 0.1
    finally:
        stop_node(node)


def test_a_member_above_its_quota_acquires_nothing_until_its_throttle_time_is_over(node: Node, share: Share) -> None:
    assert alter(node, {"consumer_byte_rate": 1_000.0}, client_id="slow")[0] == NONE
    eventually(lambda: described(node, client_id="slow"), "the quota to be published")
    with node.wire("slow") as wire:
        member = ShareMember(wire, share.group, [share.at])
        share.produce(b"x" * 30_000)
        assert set(until(lambda: records_of(member, share.at))) == {0}
        share.produce(b"y")
        answer = member.fetch_response()
        assert answer.throttle_time_ms > 0 and not answer.responses
        assert set(until(lambda: records_of(share.member(), share.at))) == {1}, "another client gets the record"


def test_a_forgotten_partition_is_fetched_no_more(share: Share) -> None:
    member = share.member()
    member.fetch(max_wait_ms=0)
    share.produce(b"a")
    assert member.fetch(forget=[share.at], max_wait_ms=0) == {}


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, [ACCEPT])],
        [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 2, [ACCEPT]), (1, 2, [ACCEPT])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 2, [])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
        [(0, 99, [ACCEPT])],
        [(2**62, 2**63 - 1, [ACCEPT])],
    ],
)
def test_acknowledgements_that_make_no_sense_are_invalid_and_change_nothing(
    node: Node, batches: list[tuple[int, int, list[int]]], shared: Share, holder: ShareMember
) -> None:
    assert holder.acknowledge(shared.at, *batches) == ErrorCode.INVALID_REQUEST
    assert holder.acknowledge(shared.at, (0, 2, [RENEW]), is_renew_ack=True) == NONE, "it holds them all as before"


@pytest.fixture(scope="module")
def shared(node: Node) -> Iterator[Share]:
    made = Share(node, share_isolation_level="read_committed")
    made.produce(b"a", b"b", b"c")
    yield made
    made.close()


@pytest.fixture(scope="module")
def holder(shared: Share) -> ShareMember:
    member = shared.member()
    until(lambda: records_of(member, shared.at))
    return member


def test_records_of_another_member_and_unknown_partitions_are_refused(shared: Share, holder: ShareMember) -> None:
    other = shared.member()
    other.fetch(max_wait_ms=0)
    assert other.acknowledge(shared.at, (0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert other.acknowledge((UNKNOWN_TOPIC, 0), (0, 0, [ACCEPT])) == ErrorCode.UNKNOWN_TOPIC_ID
    assert other.acknowledge((shared.at[0], 7), (0, 0, [ACCEPT])) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    restarted = ShareMember(shared.connect(), "of a leader that has restarted", [])
    restarted.fetch(max_wait_ms=0)
    assert restarted.acknowledge(shared.at, (0, 0, [ACCEPT])) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    stray = ShareMember(shared.connect(), shared.group, [(UNKNOWN_TOPIC, 0), (shared.at[0], 7)])
    answers = stray.fetch(max_wait_ms=0)
    assert [one.error for one in answers.values()] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("fields", [{"member_id": ""}, {"member_id": "m" * (MEMBER_ID_MAX + 1)}, {"group_id": None}])
def test_a_request_without_a_valid_group_and_member_is_invalid(node: Node, fields: dict[str, Any]) -> None:
    with node.wire() as wire:
        request = ShareFetchRequest(**({"group_id": "g", "member_id": "m"} | fields))
        assert wire.request(request).error_code == ErrorCode.INVALID_REQUEST


def test_more_partitions_than_a_session_may_have_are_refused_before_any_is_looked_at(share: Share) -> None:
    share.produce(b"a")
    member = share.member()
    assert until(lambda: records_of(member, share.at)) == {0: b"a"}
    topics = [AcknowledgeTopic(share.at[0], [AcknowledgePartition(index) for index in range(PARTITIONS_MAX + 1)])]
    fields = {"group_id": share.group, "member_id": member.member_id, "share_session_epoch": member.epoch}
    assert member.wire.request(ShareFetchRequest(**fields, topics=topics)).error_code == ErrorCode.INVALID_REQUEST
    acknowledged = [AcknowledgeTopic(share.at[0], [AcknowledgePartition(index) for index in range(PARTITIONS_MAX + 1)])]
    answer = member.wire.request(ShareAcknowledgeRequest(**fields, topics=acknowledged))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert member.acknowledge(share.at, (0, 0, [ACCEPT])) == NONE, "the session goes on"


def test_a_renewal_has_no_limits_for_records(share: Share) -> None:
    member = share.member()
    member.fetch(max_wait_ms=0)
    assert member.fetch_response(is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest", {1: b"b"}),
        ("earliest", {0: b"a", 1: b"b"}),
        ("by_duration:PT1H", {1: b"b"}),
        ("by_duration:P36500D", {0: b"a", 1: b"b"}),
    ],
)
def test_a_group_begins_where_its_setting_says(node: Node, policy: str, expected: dict[int, bytes]) -> None:
    share = Share(node, share_auto_offset_reset=policy)
    member = share.member()
    share.produce(b"a")  # in 2023, by its timestamp
    got = records_of(member, share.at)
    until_loaded(member)
    share.produce(b"b")
    while 1 not in got:
        got |= until(lambda: records_of(member, share.at))
    assert got == expected
    share.close()


def test_records_that_come_while_no_member_is_there_are_delivered_before_the_first_acknowledgement(node: Node) -> None:
    share = Share(node, share_auto_offset_reset="latest")
    first = share.member()
    records_of(first, share.at)
    until_loaded(first)
    first.leave()
    share.produce(b"a")
    assert until(lambda: records_of(share.member(), share.at)) == {0: b"a"}
    share.close()


def until_loaded(member: ShareMember) -> None:
    """An acknowledgement of what was never acquired is refused otherwise while the state is being loaded."""
    [at] = member.partitions
    deadline = time.monotonic() + 30
    loaded = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
    while member.acknowledge(at, (99, 99, [ACCEPT])) not in loaded:
        assert time.monotonic() < deadline, "the share partition was not loaded"
        time.sleep(0.01)
