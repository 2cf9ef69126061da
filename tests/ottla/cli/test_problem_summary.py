"""The command `ottla cluster health` sums many problems up."""

from __future__ import annotations

from ottla.cli.problem_summary import LINES_MAX, summary
from ottla.client.cluster_state import Problem


def test_a_dead_broker_of_980_partitions_is_three_lines_and_it_comes_first() -> None:
    problems = [Problem("broker 3", "fenced")]
    for index in range(490):
        problems.append(Problem(f"orders-{index}", "replicas not in sync: 3"))
        problems.append(Problem(f"orders-{index}", "replicas offline: 3"))
    assert summary(problems) == (
        [
            Problem("broker 3", "fenced"),
            Problem("orders-0, orders-1, orders-2 and 487 more", "replicas not in sync: 3"),
            Problem("orders-0, orders-1, orders-2 and 487 more", "replicas offline: 3"),
        ],
        0,
    )
    assert summary(problems, is_whole=True) == (problems, 0)


def test_more_kinds_than_lines_are_counted() -> None:
    shown, left_out = summary([Problem(f"t-{index}", f"problem {index}") for index in range(25)])
    assert (len(shown), left_out) == (LINES_MAX - 1, 16)
    assert shown[0] == Problem("t-0", "problem 0")


def test_three_places_are_all_named() -> None:
    (row,), _ = summary([Problem(place, "fenced") for place in ("broker 1", "broker 2", "broker 3")])
    assert row.place == "broker 1, broker 2, broker 3"
