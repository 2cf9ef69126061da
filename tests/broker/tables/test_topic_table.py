"""The times at which a topic's table is worked on, how far it is behind, and how often its reason to wait is logged."""

from __future__ import annotations

import logging

import pytest

from ottla.broker.tables.topic_table import BACKOFF_MS_MAX, COMMIT_DELAY_MS_MAX, POINTS_MAX, TableLag, TopicTable
from ottla.server.story import Stories
from ottla.server.table_work import TableReport

INTERVAL_MS = 60_000
log = logging.getLogger(__name__)


@pytest.fixture
def stories() -> Stories[str]:
    return Stories("table", lambda: 0)


@pytest.fixture
def table(stories: Stories[str]) -> TopicTable:
    return TopicTable("orders", b"id", stories.logger_of("orders", log), 1_000)


def take(table: TopicTable, report: TableReport, now_ms: int = 1_000, *, commits_later: bool = False) -> int:
    """Let the table take over a report. The monotonic clock is 500 ms before a full minute of the wall clock."""
    table.offered(report, now_ms + 500, now_ms, INTERVAL_MS, commits_later=commits_later)
    return table.due_ms - now_ms


def test_intervals_end_at_the_same_time_at_all_brokers(table: TopicTable) -> None:
    assert table.due_ms == 1_000, "at once"
    assert take(table, TableReport()) == INTERVAL_MS - 1_500
    assert take(table, TableReport(more=True)) == 0


def test_the_commit_waits_for_what_other_brokers_offer(table: TopicTable) -> None:
    assert take(table, TableReport(), commits_later=True) == COMMIT_DELAY_MS_MAX
    assert table.is_commit_next
    take(table, TableReport())
    assert not table.is_commit_next


def test_a_log_that_is_long_is_committed_in_each_interval_while_its_offers_go_on(table: TopicTable) -> None:
    more = TableReport(more=True, wanted=((3, 700),))
    assert take(table, more, 2_000, commits_later=True) == 0 and not table.is_commit_next
    assert take(table, more, 1_000 + INTERVAL_MS, commits_later=True) == 0 and table.is_commit_next
    assert take(table, TableReport(), 1_100 + INTERVAL_MS) == 0  # the commit
    assert table.wanted == {3: 700} and not table.is_commit_next
    assert take(table, more, 1_200 + INTERVAL_MS, commits_later=True) == 0 and not table.is_commit_next
    assert take(table, TableReport(), 1_300 + INTERVAL_MS, commits_later=True) > 0 and table.is_commit_next
    assert not table.wanted


def test_failures_are_tried_again_later_and_later(table: TopicTable) -> None:
    failed = TableReport(kind="store", waits="no answer")
    assert [take(table, failed) for _ in range(4)] == [1_000, 2_000, 4_000, 8_000]
    for _ in range(80):
        assert take(table, failed) <= BACKOFF_MS_MAX
    take(table, TableReport())
    assert take(table, failed) == 1_000


def test_one_that_hangs_leaves_others_as_long_as_it_took(table: TopicTable) -> None:
    report = TableReport(kind="no answer", waits="no answer in 45000 ms")
    table.offered(report, 1_500, 1_000, INTERVAL_MS, commits_later=False, took_ms=45_000)
    assert table.due_ms == 46_000


def test_a_reason_is_logged_once(table: TopicTable, stories: Stories[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(3):
            take(table, TableReport(kind="store", waits=f"no answer to request {number}"))
        take(table, TableReport(kind="refused", waits="it is another's"))
        take(table, TableReport())
    lines = [
        "The table of topic orders waits: no answer to request 0",
        "The table of topic orders waits: it is another's",
    ]
    lines += ["The table of topic orders goes on"]
    assert [each.getMessage() for each in caplog.records] == lines == [each.text for each in stories.of("orders")]
    assert table.failures == 4 and not table.waits


def test_another_committer_is_no_reason_to_wait_at_first(table: TopicTable) -> None:
    conflict = TableReport(kind="conflict", waits="another committer has made commit 7")
    for _ in range(4):
        take(table, conflict)
    assert not table.waits
    take(table, conflict)
    assert table.waits


def test_the_lag_in_seconds_is_since_when_there_is_more() -> None:
    lag = TableLag()
    lag.saw(10, 1_000)
    lag.saw(20, 2_000)
    assert (lag.records(20, 5), lag.seconds(20, 5_000)) == (15, 4.0)
    lag.reached(10)
    assert (lag.records(20, 5), lag.seconds(20, 5_000)) == (10, 3.0)
    lag.reached(20)
    assert (lag.records(20, 5), lag.seconds(20, 5_000)) == (0, 0.0)


def test_the_past_of_a_table_that_is_far_behind_is_bounded() -> None:
    lag = TableLag()
    for number in range(POINTS_MAX + 10):
        lag.saw(number, 1_000 * number)
    assert lag.seconds(POINTS_MAX + 9, 1_000 * (POINTS_MAX + 9)) == POINTS_MAX - 1


def maintained(table: TopicTable, report: TableReport, took_ms: int = 0) -> int:
    table.maintenance.took(report, 1_500, 1_000, 3_600_000, took_ms)
    return table.maintenance.due_ms - 1_000


def test_maintenance_goes_on_at_once_and_comes_again_after_its_interval(table: TopicTable) -> None:
    assert maintained(table, TableReport(merged=3, more=True)) == 0
    assert maintained(table, TableReport(deleted=2)) == 3_600_000
    maintenance = table.maintenance
    assert (maintenance.merged, maintenance.deleted, maintenance.runs, maintenance.ended_ms, maintenance.failed) == (
        3,
        2,
        1,
        1_500,
        "",
    )


def test_maintenance_that_fails_is_tried_later_and_later_and_is_one_line(
    table: TopicTable, caplog: pytest.LogCaptureFixture
) -> None:
    failed = TableReport(kind="store", waits="no answer")
    with caplog.at_level(logging.INFO):
        assert [maintained(table, failed) for _ in range(3)] == [1_000, 2_000, 4_000]
        for _ in range(30):
            assert maintained(table, failed) <= 3_600_000
        assert maintained(table, failed, took_ms=9_000_000) == 9_000_000, "others get at least as much time"
        assert table.maintenance.failed == "no answer" and not table.waits
        maintained(table, TableReport())
    assert [each.getMessage() for each in caplog.records] == [
        "Maintenance of the table of topic orders has failed: no answer",
        "Maintenance of the table of topic orders goes on",
    ]
    assert table.maintenance.failures == 34 and not table.maintenance.failed


def test_a_committer_that_was_faster_is_no_failed_maintenance_at_first(table: TopicTable) -> None:
    for number in range(5):
        maintained(table, TableReport(kind="conflict", waits="another version"))
        assert bool(table.maintenance.failed) == (number == 4)
