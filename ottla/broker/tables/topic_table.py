"""One topic's table as this broker knows it: when it is worked on next, how far it is, why it waits, and its counts. Pure."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.tables.remote_records import RemoteSlices
from ottla.server.story import StoryLogger
from ottla.server.table_work import TableReport

log = logging.getLogger(__name__)

#: The delay of the next attempt after a failure, which doubles with each further failure, and its maximum.
BACKOFF_MS, BACKOFF_MS_MAX = 1_000, 60_000
#: After this many conflicts in sequence, with another committer or with retention, the table waits for a reason and not by
#: accident.
CONFLICT, CONFLICTS_MAX = "conflict", 5
#: The longest wait of a commit for the offers of other brokers in the same interval.
COMMIT_DELAY_MS_MAX = 3_000
#: The partition whose leader commits and maintains the table.
COMMITTING = 0
#: A time that does not come.
NEVER_MS = 1 << 62
#: Points of a partition's past by which its lag in seconds is found. The oldest go if there are more.
POINTS_MAX = 64


class LogPoint(NamedTuple):
    """The high watermark of a partition at a time (monotonic, ms)."""

    offset: int
    time_ms: int


class TableLag:
    """The lag of the table behind one partition that this broker leads."""

    def __init__(self) -> None:
        self.position: int | None = None
        self._points: deque[LogPoint] = deque(maxlen=POINTS_MAX)

    def saw(self, high_watermark: int, now_ms: int) -> None:
        if not self._points or high_watermark > self._points[-1].offset:
            self._points.append(LogPoint(high_watermark, now_ms))

    def reached(self, position: int) -> None:
        self.position = position
        while self._points and self._points[0].offset <= position:
            self._points.popleft()

    def records(self, high_watermark: int, start: int) -> int:
        return max(0, high_watermark - (start if self.position is None else self.position))

    def seconds(self, high_watermark: int, now_ms: int) -> float:
        """Return for how long at least there have been records that the table does not have."""
        if self.position is not None and self.position >= high_watermark:
            return 0.0
        return (now_ms - self._points[0].time_ms) / 1000 if self._points else 0.0


class TableMaintenance:
    """The time of the next maintenance of one topic's table, and the result of the last. Times are monotonic, in ms."""

    def __init__(self, topic: str, story: StoryLogger[str], due_ms: int) -> None:
        self._topic = topic
        self._story = story
        self.due_ms = due_ms
        self.runs = self.merged = self.deleted = self.failures = 0
        #: Why the last attempt has failed; empty if it has not.
        self.failed = ""
        #: The end of the last maintenance by the wall clock, or -1 if there was none.
        self.ended_ms = -1
        self._kind = ""
        self._failed = 0

    def forget_failure(self) -> None:
        """Another broker maintains the table from now on: why it has failed here says nothing any more."""
        self._kind = self.failed = ""
        self._failed = 0

    def took(self, report: TableReport, wall_ms: int, now_ms: int, interval_ms: int, took_ms: int) -> None:
        """Take over the report of a slice, and set when the next one is due. A kind of failure is logged once, until
        another kind follows."""
        self.merged += report.merged
        self.deleted += report.deleted
        if report.waits:
            self.failures += 1
            self._failed += 1
            self.due_ms = now_ms + max(took_ms, _backoff_ms(self._failed, interval_ms))
            if report.kind == CONFLICT and self._failed < CONFLICTS_MAX:
                return
            if report.kind != self._kind:
                self._story.error("Maintenance of the table of topic %s has failed: %s", self._topic, report.waits)
            self._kind, self.failed = report.kind, report.waits
            return
        self._failed = 0
        if report.more:
            self.due_ms = now_ms
            return
        if self._kind:
            self._story.info("Maintenance of the table of topic %s goes on", self._topic)
        self._kind = self.failed = ""
        self.runs += 1
        self.ended_ms = wall_ms
        self.due_ms = now_ms + interval_ms


class TopicTable:
    """The state of one topic's table. Times are monotonic, in ms."""

    def __init__(
        self, topic: str, topic_id: bytes, story: StoryLogger[str], now_ms: int, maintained_ms: int = NEVER_MS
    ) -> None:
        """Take `maintained_ms`, the time of the first maintenance."""
        self.topic, self.topic_id = topic, topic_id
        self._story = story
        self.maintenance = TableMaintenance(topic, story, maintained_ms)
        #: The time of the next work: at once, so that the table of a new topic is made.
        self.due_ms = now_ms
        #: True if only a commit is due: this broker has made its offers, and those of others come.
        self.is_commit_next = False
        #: Whether there was more to offer when this broker last offered, and the time of its last commit.
        self._has_more, self._committed_ms = False, now_ms
        self.lags: dict[int, TableLag] = {}
        #: The partitions of which the table needs records from an offset on that are in remote storage alone.
        self.wanted: dict[int, int] = {}
        self.slices = RemoteSlices()
        self.commits = self.rows = self.rejected = self.left_out = self.failures = 0
        self.lost = self.parted = 0
        self.kind = self.waits = ""
        self.waits_since_ms = self.last_commit_ms = -1
        self._failed = 0

    def led(self, partitions: Iterator[int]) -> None:
        """This broker leads these partitions, and no others."""
        self.lags = {index: self.lags.get(index) or TableLag() for index in partitions}

    def resigned(self, partition: int) -> None:
        """This broker leads a partition no more. What only its leader knows is forgotten at once, and not after the next job."""
        self.lags.pop(partition, None)
        if partition == COMMITTING:
            self.is_commit_next = False
            self.maintenance.forget_failure()
        if partition == COMMITTING or not self.lags:
            self._forget_why()  # if the reason still holds, the next job reports it again

    def offered(
        self, report: TableReport, wall_ms: int, now_ms: int, interval_ms: int, *, commits_later: bool, took_ms: int = 0
    ) -> None:
        """Take over a report, and set when the next job is due. Intervals end at the same time at all brokers, by their wall clocks."""
        self.commits += report.commits
        self.rows += report.rows
        self.rejected += report.rejected
        self.lost += report.lost
        self.parted += report.parted
        if report.parted:
            self._story.error(
                "The log of topic %s and its table have parted, as after an unclean election or a restore: the table keeps rows of %d offsets "
                "that the log has lost, with an older leader_epoch",
                self.topic,
                report.parted,
            )
        self.left_out += report.left_out
        if report.commits:
            self.last_commit_ms = wall_ms
        for index, position in report.positions:
            if index in self.lags:
                self.lags[index].reached(position)
        was_commit = self.is_commit_next
        if not was_commit and (report.wanted or not report.waits):
            self.wanted = dict(report.wanted)
        if report.waits:
            self._fail(report, now_ms, took_ms)
            return
        self._failed = 0
        self._go_on()
        next_ms = now_ms + interval_ms - wall_ms % interval_ms
        if was_commit:
            self._committed_ms = now_ms
        else:
            self._has_more = report.more
        if report.more or self._has_more:
            next_ms = now_ms
        elif commits_later:
            next_ms = now_ms + min(interval_ms // 10, COMMIT_DELAY_MS_MAX)
        # Beside offers without an end, as of a log that is long, others' are committed once in an interval.
        self.is_commit_next = commits_later and (not report.more or now_ms - self._committed_ms >= interval_ms)
        self.due_ms = next_ms

    def wait(self, kind: str, reason: str, now_ms: int) -> None:
        """Say why it waits: one line for each new kind of reason."""
        if kind != self.kind:
            self.waits_since_ms = now_ms
            self._story.error("The table of topic %s waits: %s", self.topic, reason)
        self.kind, self.waits = kind, reason

    def _fail(self, report: TableReport, now_ms: int, took_ms: int) -> None:
        self.failures += 1
        self._failed += 1
        self.is_commit_next = False
        if report.kind != CONFLICT or self._failed >= CONFLICTS_MAX:
            self.wait(report.kind, report.waits, now_ms)
        # A job that hangs is followed by a pause of at least its own length, in which other topics have their turn.
        self.due_ms = now_ms + max(took_ms, _backoff_ms(self._failed, BACKOFF_MS_MAX))

    def _go_on(self) -> None:
        if self.kind:
            self._story.info("The table of topic %s goes on", self.topic)
        self._forget_why()

    def _forget_why(self) -> None:
        self.kind = self.waits = ""
        self.waits_since_ms = -1


def _backoff_ms(failures: int, most_ms: int) -> int:
    return min(BACKOFF_MS << min(failures - 1, 16), most_ms)
