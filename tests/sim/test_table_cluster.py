"""Clusters whose topics are tables in simulations with faults, and mistakes of the brokers' side that they must notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import seeds
from tests.needs import needs_packages

needs_packages("pyarrow")

from ottla.broker.replication.partition_log import LedLog
from ottla.broker.tables import table_driver
from ottla.broker.tables.topic_table import NEVER_MS, TopicTable
from ottla.server.table_work import TableReport, TableSpan
from tests.histories import Mistake, assert_noticed, by_name, noticed_by
from tests.sim.table_cluster import TablesBroken, play

SEEDS = seeds(2, long=60)
ROOT = Path(__file__).parents[2]
#: A mistake must be noticed by one of them.
SEEDS_MAX = 20


@pytest.mark.timeout(900)
def test_each_table_has_what_its_log_has() -> None:
    """Each simulation runs in a process of its own, because a seed replays only with the hash seed that the runner sets."""
    command = [sys.executable, "-m", "tests.sim", "--jobs", "1", "--tables", f"0-{SEEDS - 1}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def what_is_not_committed_is_offered(patch: pytest.MonkeyPatch) -> None:
    """The process gets the end of the log, and not the last stable offset."""
    span = table_driver._span
    patch.setattr(table_driver, "_span", lambda led: span(led)._replace(end=led.log.log_end_offset))


def the_epoch_of_a_leader_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """All offers are of one leader epoch."""
    span = table_driver._span

    def of_first_epoch(led: LedLog) -> TableSpan:
        return span(led)._replace(leader_epoch=0)

    patch.setattr(table_driver, "_span", of_first_epoch)


def a_commit_is_left_to_who_leads_all(patch: pytest.MonkeyPatch) -> None:
    """The leader of partition 0 does not commit what other leaders have offered."""
    offered = TopicTable.offered

    def without_commit(
        self: TopicTable, report: TableReport, *times: int, commits_later: bool, took_ms: int = 0
    ) -> None:
        offered(self, report, *times, commits_later=False, took_ms=took_ms)

    patch.setattr(TopicTable, "offered", without_commit)


def a_failure_is_not_tried_again(patch: pytest.MonkeyPatch) -> None:
    fail = TopicTable._fail

    def for_ever(self: TopicTable, report: TableReport, now_ms: int, took_ms: int) -> None:
        fail(self, report, now_ms, took_ms)
        self.due_ms = NEVER_MS

    patch.setattr(TopicTable, "_fail", for_ever)


MUTANTS: dict[str, Mistake] = by_name(
    what_is_not_committed_is_offered,
    the_epoch_of_a_leader_is_forgotten,
    a_commit_is_left_to_who_leads_all,
    a_failure_is_not_tried_again,
)


is_noticed = noticed_by(play, TablesBroken, MUTANTS)


@pytest.mark.chaos
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_noticed(name: str) -> None:
    assert_noticed("table clusters", name, is_noticed, SEEDS_MAX)
