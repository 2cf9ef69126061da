"""The table of `make bench ARGS=steady`: which messages count, by what they are divided, and which rows are beyond the goal."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.steady.accidents import ACCIDENTS, FULL, Sizes
from benchmarks.steady.table import Delays, Outcome, Run, delays, lost, missed, percentile, table


def run(server: str, *, quiet: list[float], beside: dict[str, Outcome]) -> Run:
    """Return a run with a number of accidents that changed nothing, by which the quiet p99 is known, and with `accidents`."""
    calm = {
        f"calm {number}": Outcome(Delays(4000, 0.5, p99, 2 * p99), Delays(2500, 0.5, p99, 2 * p99), seconds=5.0)
        for number, p99 in enumerate(quiet)
    }
    return Run(server, calm | beside)


def struck(p99: float, text: str = "gone after 0.1 s", **others: float) -> Outcome:
    outcome = Outcome(beside=Delays(2500, 0.5, p99, 3 * p99), seconds=6.0, text=text)
    for name, value in others.items():
        setattr(outcome, name, value)
    return outcome


def test_a_percentile_is_the_value_that_its_share_of_all_is_not_above() -> None:
    assert percentile(range(1, 101), 0.99) == 100
    assert percentile(range(1, 101), 0.5) == 51
    assert percentile([7.0], 0.99) == 7.0


def test_messages_count_in_the_stretch_in_which_they_were_sent() -> None:
    found = {"sent": 5, "sent_ns": [10, 20, 30, 40], "delays_ms": [1.0, 2.0, 300.0, 4.0]}
    during = delays(found, 20, 40)
    assert during == Delays(2, 300.0, 300.0, 300.0)
    assert delays(found, 41, 90) is None


def test_a_message_that_arrives_twice_counts_once_and_hides_no_loss() -> None:
    found = {"sent": 4, "sent_ns": [10, 20, 10, 30], "delays_ms": [1.0, 2.0, 90.0, 3.0]}
    assert delays(found, 0, 99) == Delays(3, 2.0, 3.0, 3.0)
    assert lost(found) == 1


def test_a_ratio_is_to_the_median_of_all_quiet_stretches() -> None:
    one = run("Ottla", quiet=[1.0, 2.0, 40.0], beside={"a kill": struck(3.0), "a storm": struck(4.1)})
    lines = table(["a kill", "a storm"], [one])
    assert lines[2] == "| quiet, median (least to most) | 2.00 (1.00 to 40.0) ms |  | 3 stretches |"
    assert lines[3] == "| a kill | 3.00; 9.00 ms | 1.50x (met) | gone after 0.1 s, 6 s |"
    assert lines[4].startswith("| a storm | 4.10; 12.3 ms | 2.05x (MISSED) |")


def test_each_server_is_divided_by_its_own_quiet() -> None:
    runs = [
        run("Ottla", quiet=[1.0], beside={"a kill": struck(4.0)}),
        run("Apache Kafka", quiet=[10.0], beside={"a kill": struck(15.0)}),
    ]
    assert missed(runs) == ["Ottla: a kill"]
    assert "| 1.50x (met) |" in table(["a kill"], runs)[3]


def test_an_accident_that_failed_is_a_row_with_its_reason_and_is_missed() -> None:
    one = run("Ottla", quiet=[1.0], beside={"a kill": Outcome(text="failed: TimeoutError: in sync")})
    assert table(["a kill"], [one])[3] == "| a kill |  | MISSED | failed: TimeoutError: in sync |"
    assert missed([one]) == ["Ottla: a kill"]


def test_an_accident_that_was_not_reached_leaves_its_cells_empty() -> None:
    one = run("Ottla", quiet=[1.0], beside={"a kill": struck(1.5)})
    assert table(["a kill", "a storm"], [one, Run("Apache Kafka")])[4] == "| a storm |  |  |  |  |  |  |"


def test_lost_messages_and_stolen_time_are_named_beside_the_figures() -> None:
    one = run("Ottla", quiet=[1.0], beside={"a kill": struck(1.5, lost=3, stolen_percent=40.0)})
    line = table(["a kill"], [one])[3]
    assert "3 messages LOST" in line
    assert "stolen 40 %, TOO MUCH" in line


@pytest.mark.parametrize("sizes", [Sizes(), FULL])
def test_the_names_of_the_accidents_have_their_sizes_and_differ(sizes: Sizes) -> None:
    names = [each.name.format(**asdict(sizes)) for each in ACCIDENTS]
    assert len(set(names)) == len(names)
    assert "1,000 partitions are deleted" in names
    assert "500 new TLS connections/s" in names
