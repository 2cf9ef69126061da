"""The problems in a sample: what a page shows as wrong, with severity and remedy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.cluster import NoConnection
from ottla.client.errors import ClusterError
from ottla.client.failures import Failure
from ottla.client.partitions import NO_LEADER
from ottla.console.problems import ERROR, WARNING, findings, remedy_of
from ottla.console.sampler import Sampler
from ottla.console.server import MENU
from ottla.console.snapshot import Broker, ConsoleSnapshot, PartitionRow, QuorumRow, VoterRow
from ottla.protocol.errors import ErrorCode

ALL = (1, 2, 3)
BROKERS = {node: Broker(node, "h", 9092, None, fenced=False) for node in ALL}


def part(leader: int, isr: tuple[int, ...] = ALL, replicas: tuple[int, ...] = ALL, **more: Any) -> PartitionRow:
    return PartitionRow(leader, 1, replicas, isr, **more)


def voters(*silent_ms: int) -> QuorumRow:
    rows = tuple(VoterRow(number, True, 0, ms) for number, ms in enumerate(silent_ms, start=1))
    return QuorumRow(1, 5, 10, (*rows, VoterRow(9, False, 0, 60_000)))


HEALTHY = ConsoleSnapshot(1_000, "c", BROKERS, {"t": (part(1), part(2), part(3))}, quorum=voters(0, 500, 2_000))


def found(
    snapshot: ConsoleSnapshot | None, directories: dict[int, list[tuple[str, int, int, int]]] | None = None
) -> list[tuple[str, str]]:
    sampler = cast(Sampler, SimpleNamespace(snapshot=snapshot, directories=directories or {}))
    return [(each.level, each.text) for each in findings(sampler)]


def test_a_healthy_cluster_and_one_that_was_not_sampled_have_no_problems() -> None:
    assert found(HEALTHY, {1: [("/d", 0, 10**12, 9 * 10**11)]}) == found(None) == []


def test_a_fenced_broker_is_an_error() -> None:
    fenced = replace(HEALTHY, brokers={**BROKERS, 3: BROKERS[3]._replace(fenced=True)})
    ((level, text),) = found(fenced)
    assert level == ERROR and text.startswith("broker 3 is fenced")


@pytest.mark.parametrize(("leaders", "warns"), [((1,) * 12, True), ((1,) * 11, False), ((1, 2, 3) * 4, False)])
def test_a_broker_that_leads_far_more_than_its_share_is_a_warning_if_there_are_enough_to_share(
    leaders: tuple[int, ...], warns: bool
) -> None:
    snapshot = replace(HEALTHY, topics={"t": tuple(map(part, leaders))})
    wanted = [(WARNING, "broker 1 leads 12 partitions, and 4 would be its even share")] if warns else []
    assert found(snapshot) == wanted


def test_partitions_with_one_replica_do_not_count_as_leaders_to_share() -> None:
    alone = tuple(part(1, (1,), (1,)) for _ in range(20))
    assert found(replace(HEALTHY, topics={"t": alone})) == [(WARNING, "1 topic with one replica only: t")]
    one_broker = replace(HEALTHY, brokers={1: BROKERS[1]}, topics={"t": alone})
    assert found(one_broker) == [], "where there is one broker there can be one replica only"


def test_errors_come_before_warnings_and_long_lists_are_cut() -> None:
    topics = {"late": (part(1, (1, 2)),), "off": tuple(part(NO_LEADER, ()) for _ in range(7))}
    assert found(replace(HEALTHY, topics=topics)) == [
        (ERROR, "7 partitions without a leader: off-0, off-1, off-2, off-3, off-4 and 2 more"),
        (WARNING, "1 partition with missing replicas: late-0"),
    ]


def test_a_replica_that_a_move_is_adding_is_not_missing() -> None:
    moving = part(1, (1, 2), (1, 2, 3), adding=(3,))
    assert found(replace(HEALTHY, topics={"t": (moving,)})) == []


@pytest.mark.parametrize(
    ("quorum", "wanted"),
    [
        (None, []),
        (voters(0, 0, 0)._replace(leader=-1), ["the metadata quorum has no leader"]),
        (voters(0, 0, 10_001), ["controller 3 does not fetch"]),
        (voters(0, 0, 10_000), []),
    ],
    ids=["unknown", "no leader", "silent", "in time"],
)
def test_a_quorum_without_a_leader_or_with_a_silent_voter_is_an_error(
    quorum: QuorumRow | None, wanted: list[str]
) -> None:
    assert found(replace(HEALTHY, quorum=quorum)) == [(ERROR, text) for text in wanted]


@pytest.mark.parametrize(
    ("silent_ms", "left"),
    [((0, 0, 99_999), "No other one may fail"), ((0, 0, 0, 0, 99_999), "1 more may fail")],
)
def test_it_is_said_how_many_voters_may_fail_before_nothing_can_change(silent_ms: tuple[int, ...], left: str) -> None:
    sampler = cast(Sampler, SimpleNamespace(snapshot=replace(HEALTHY, quorum=voters(*silent_ms)), directories={}))
    (finding,) = findings(sampler)
    assert finding.remedy == f"Start it again. {left}, or nothing can change."


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (("/d", ErrorCode.KAFKA_STORAGE_ERROR, -1, -1), [(ERROR, "broker 2: log directory /d is offline")]),
        (("/d", 0, 10**12, 1000), [(ERROR, "broker 2: no space left in /d")]),
        (("/d", 0, 10**12, 99 * 10**9), [(WARNING, "broker 2: 9 % of the disk of /d is left")]),
        (("/d", 0, 10**12, 10**11), []),
        (("/d", 0, -1, -1), []),
    ],
    ids=["offline", "full", "nearly full", "a tenth", "not known"],
)
def test_a_disk_is_offline_full_or_nearly_full(row: tuple[str, int, int, int], wanted: list[tuple[str, str]]) -> None:
    assert found(HEALTHY, {2: [row]}) == wanted


def test_a_remedy_is_one_that_a_page_has() -> None:
    assert remedy_of(NoConnection("away")) == "this console asks again by itself"
    assert remedy_of(ClusterError("no", code=ErrorCode.TOPIC_ALREADY_EXISTS)) == "choose another name"
    assert remedy_of(ClusterError("no", "another", code=ErrorCode.TOPIC_ALREADY_EXISTS)) == "another"
    assert remedy_of(ClusterError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)) is remedy_of(Failure("no")) is None


def test_a_remedy_that_leads_to_a_page_names_one_of_the_menu() -> None:
    texts = [remedy_of(ClusterError("no", code=code)) or "" for code in ErrorCode]
    named = {text.partition("the page ")[2].split()[0] for text in texts if "the page " in text}
    assert named and named <= {title for _, title in MENU}
