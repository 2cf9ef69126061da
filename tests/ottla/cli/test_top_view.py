"""The rows of `ottla top`, made of two looks."""

from __future__ import annotations

from ottla.cli.top_view import (
    BYTES_IN,
    MEMORY,
    TIMES,
    GroupLook,
    NodeLook,
    TopicLook,
    TopLook,
    without_admin,
)
from ottla.client.admin_listeners import AdminSample


def look(at_ms: int, end: int, bytes_in: float | None, committed: int = 0) -> TopLook:
    metrics = None
    if bytes_in is not None:
        metrics = [
            AdminSample(BYTES_IN, {}, bytes_in),
            AdminSample(BYTES_IN, {"topic": "t"}, bytes_in),
            AdminSample(MEMORY, {}, 50e6),
            AdminSample(TIMES, {"quantile": "0.99", "request": "Produce"}, 1.26),
        ]
    return TopLook(
        at_ms,
        {1: NodeLook(2, 3, 0, metrics), 2: NodeLook()},
        {"t": TopicLook(2, 0, end, 2_000_000)},
        {"g": GroupLook("consumer", "Stable", committed, end - committed)},
    )


def test_rates_are_those_between_two_looks() -> None:
    rows = look(3000, 500, 4000.0, 100).rows(look(1000, 300, 2000.0, 0))
    node = rows["nodes"][0]
    assert (node["in_per_s"], node["memory"], node["produce_p99_ms"], node["fetch_p99_ms"]) == (
        1000.0,
        50_000_000,
        1.3,
        None,
    )
    assert (rows["topics"][0]["records_per_s"], rows["topics"][0]["in_per_s"]) == (100.0, 1000.0)
    assert rows["groups"] == [
        {"group": "g", "type": "consumer", "state": "Stable", "lag": 400, "consumed_per_s": 50.0, "time_left": 8.0}
    ]


def test_what_only_an_admin_listener_knows_is_not_known_without_one() -> None:
    now = look(3000, 500, None)
    rows = now.rows(look(1000, 300, None))
    assert rows["nodes"][0]["in_per_s"] is rows["nodes"][0]["memory"] is rows["topics"][0]["in_per_s"] is None
    assert rows["topics"][0]["records_per_s"] == 100.0 and list(without_admin(now.nodes)) == [1, 2]


def test_a_node_that_restarted_and_a_topic_that_is_new_have_no_rate_yet() -> None:
    rows = look(3000, 5, 100.0).rows(look(1000, 300, 2000.0))
    assert rows["nodes"][0]["in_per_s"] == rows["topics"][0]["records_per_s"] == 0.0
    assert look(3000, 5, 1.0).rows(TopLook(1000))["groups"][0]["consumed_per_s"] == 0.0
