"""Requests that name many things, or one thing many times: what is looked at, and what other clients wait meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.broker.many_names import RESOURCES_AT_ONCE
from ottla.broker.routes import ROUTES, Answered
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.list_groups import ListGroupsRequest
from tests.broker.counted_node import CountedNode
from tests.broker.test_files_off_the_loop import create

TOPIC, BROKER = 2, 4
#: On average of the turns that one request takes.
TURN_CPU_SECONDS_MAX = 0.05


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedNode]:
    with pytest.MonkeyPatch.context() as patch:
        started = CountedNode(Path(tmp_path_factory.mktemp("node")), patch)
        with started.wire() as wire:
            create(wire, "t")
            deadline = time.monotonic() + 20
            while any(each.error_code for each in wire.request(asked("FIND_COORDINATOR", ["g"])).coordinators):
                assert time.monotonic() < deadline
            while wire.request(ListGroupsRequest()).error_code:  # the shards are loading
                assert time.monotonic() < deadline
        yield started
        started.stop()


ROWS = {row.api_key.name: row.names for row in ROUTES if isinstance(row, Answered) and row.names is not None}


def asked(kind: str, names: list[str]) -> Any:
    request = APIS[ApiKey[kind]].request()
    resources = [DescribeConfigsResource(TOPIC, name) for name in names]
    setattr(request, ROWS[kind].field, resources if kind == "DESCRIBE_CONFIGS" else names)
    return request


def name_of(row: Any) -> str:
    for field in ("group_id", "transactional_id", "resource_name", "key"):
        if hasattr(row, field):
            return str(getattr(row, field))
    raise AssertionError(row)


@pytest.mark.parametrize("kind", ROWS)
def test_each_of_many_names_is_answered_in_order_and_a_repeated_one_once(node: CountedNode, kind: str) -> None:
    many = ROWS[kind]
    count = 3 * many.at_once + 2
    names = [f"n{number}" for number in range(count)]
    with node.wire() as wire:
        whole = wire.request(asked(kind, ["n0", *names, "n1", "n0"]))
        rows = getattr(whole, many.answers)
        if kind in ("DESCRIBE_TRANSACTIONS", "FIND_COORDINATOR", "DESCRIBE_CONFIGS"):
            assert [name_of(row) for row in rows] == names
        else:  # of each shard of the coordinator after the other
            assert sorted(map(name_of, rows)) == sorted(names)
        few = wire.request(asked(kind, ["n0", "n1", "n0"]))
        assert sorted(map(name_of, getattr(few, many.answers))) == ["n0", "n1"]
        assert repr(sorted(getattr(few, many.answers), key=name_of)) == repr(
            sorted((row for row in rows if name_of(row) in ("n0", "n1")), key=name_of)
        )


class Cost(NamedTuple):
    """What a request took of the node's event loop."""

    turns: int
    cpu_seconds: float


def cost_of(node: CountedNode, request: Any) -> Cost:
    clock = time.pthread_getcpuclockid(node.loop_thread)
    with node.wire() as wire:
        turns, seconds = node.loop.turn, time.clock_gettime(clock)
        wire.request(request)
        return Cost(node.loop.turn - turns, time.clock_gettime(clock) - seconds)


@pytest.mark.parametrize("kind", ROWS)
def test_many_names_take_many_turns_of_the_loop(node: CountedNode, kind: str) -> None:
    count = 2_000 if kind == "DESCRIBE_CONFIGS" else 20_000
    cost = cost_of(node, asked(kind, [f"n{number}" for number in range(count)]))
    assert cost.turns >= count // ROWS[kind].at_once
    assert cost.cpu_seconds / cost.turns < TURN_CPU_SECONDS_MAX


def test_a_broker_that_is_named_2_000_times_is_described_once(node: CountedNode) -> None:
    resource = DescribeConfigsResource(BROKER, "1")
    request = DescribeConfigsRequest(resources=[resource] * 2_000)
    with node.wire() as wire:
        assert len(wire.request(request).results) == 1
    assert cost_of(node, request).cpu_seconds < 0.5, "6.7 s when it was described as often"
    keys = [DescribeConfigsResource(BROKER, "1", [f"k{number}"]) for number in range(5 * RESOURCES_AT_ONCE)]
    assert cost_of(node, DescribeConfigsRequest(resources=keys)).turns >= 5


def test_filters_of_list_groups_are_read_once_for_all_shards(node: CountedNode) -> None:
    request = ListGroupsRequest(states_filter=["Stable"] * 50_000, types_filter=["consumer"] * 50_000)
    with node.wire() as wire:
        assert wire.request(request).groups == []
    assert cost_of(node, request).cpu_seconds < 0.2, (
        "0.38 s when each of the 50 shards reads them, 0.06 s when it is done once"
    )
