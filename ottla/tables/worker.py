"""The tables of a broker's topics: the object in the process beside it, which does one job at a time (`server/table_work.py`).

It keeps what is open between jobs: of each topic its store and tables, and of each partition the translator for one leader epoch. All of
that can be made again from the store, so the process may be ended anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from time import monotonic, time
from typing import NamedTuple
from uuid import uuid4

from ottla.columns.batches import ColumnsError
from ottla.columns.wire import RegistryWaits
from ottla.server.table_work import TableJob, TableReport, TableSettings, TableSpan
from ottla.tables.decisions import TableDecision
from ottla.tables.layout import SchemaMoved
from ottla.tables.maintenance import IN_STEPS, Maintained
from ottla.tables.offers import TablePosition
from ottla.tables.opening import OpenTables, import_libraries, open_tables
from ottla.tables.segment_source import SegmentsGone, SegmentSource
from ottla.tables.store import StoreFailure, StoreRefused
from ottla.tables.table import NAMESPACE, CommitConflict, CommitUnknown, Owner, TableRefused
from ottla.tables.translating import CommittedSpan, EpochStart, Translator

#: A job that has taken so long begins no other file: other topics wait.
SLICE_S = 2.0
#: Characters of a sentence that says why a table waits.
WAITS_LENGTH_MAX = 500

STORE, STORE_REFUSES, CATALOG, CONFLICT = "store", "store refuses", "catalog", "conflict"
REFUSED, REGISTRY, RECORDS, FAULT = "refused", "registry", "records", "fault"
KINDS: tuple[tuple[type[Exception], str], ...] = (
    (StoreRefused, STORE_REFUSES),
    (StoreFailure, STORE),
    (CommitUnknown, CATALOG),
    (CommitConflict, CONFLICT),
    (SegmentsGone, CONFLICT),  # with retention or compaction, since the job was made: the next one has the new start
    (TableRefused, REFUSED),
    (RegistryWaits, REGISTRY),
    (ColumnsError, RECORDS),
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]*(?=@)")


class _Place(NamedTuple):
    """The place of a translator. A partition's folder is another one after a move between log directories."""

    partition: int
    leader_epoch: int
    folder: str


class _Topic:
    """The open tables of one topic, and its translators."""

    def __init__(self, settings: TableSettings, owner: Owner) -> None:
        self.settings = settings
        self.owner = owner
        self.opened: OpenTables = open_tables(settings, owner)
        self.translators: dict[_Place, Translator] = {}
        #: What is left of a maintenance that has begun.
        self.maintenance: Iterator[Maintained] | None = None

    def translator(self, span: TableSpan) -> Translator:
        place = _Place(span.partition, span.leader_epoch, span.folder)
        if place not in self.translators:
            for other in [each for each in self.translators if each.partition == span.partition]:
                del self.translators[other]
            keeps = self.settings.keeps_rejected
            source = SegmentSource(
                span.folder, self.owner, span.partition, self.opened.layout, self.opened.partition, keeps_rejected=keeps
            )
            self.translators[place] = Translator(self.opened.store, source, span.partition, span.leader_epoch, _new_uid)
        return self.translators[place]


class TableWorker:
    """Does the jobs of one broker."""

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._topics: dict[str, _Topic] = {}

    def prepare(self, settings: TableSettings) -> None:
        """Import what jobs of these settings need. No store and no catalog is asked."""
        import_libraries(settings)

    def work(self, job: TableJob) -> TableReport:
        """Do a slice of a job. It raises nothing: what has failed is the report's reason to wait."""
        progress = _Progress()
        try:
            self._work(job, progress)
        except SchemaMoved:  # the columns of the next file are others: the next slice opens the topic with them
            self.forget([job.topic_id])
            progress.more = True
        except Exception as fault:
            kind = next((kind for type_, kind in KINDS if isinstance(fault, type_)), FAULT)
            text = f"{type(fault).__name__}: {fault}" if kind == FAULT else str(fault)
            if isinstance(fault, StoreFailure):  # it has the object's name only
                text = f"{job.settings.location}/{NAMESPACE}/{job.topic}/{text}"
            return progress.report(kind, _without_secrets(text, job.settings.options) or kind)
        return progress.report()

    def forget(self, topic_ids: list[str]) -> None:
        """Close topics that have no table any more, or no leader here."""
        for topic_id in topic_ids:
            self._topics.pop(topic_id, None)

    def _work(self, job: TableJob, progress: _Progress) -> None:
        ends = monotonic() + self._slice_s
        topic = self._topic(job)
        if job.maintains:
            self._maintain(topic, ends, progress)
            return
        last = topic.opened.log.last()
        progress.see(last)
        if not topic.opened.is_partitioned_as(last):
            self.forget([job.topic_id])
            progress.more = True
            return
        taken = last.positions if last is not None else {}
        for span in job.spans:
            more = True
            while more and monotonic() < ends:
                more = self._offer(topic, span, taken.get(span.partition), progress)
            progress.more |= more
        if job.commits:
            done = topic.opened.committer.run(job.partitions)
            progress.rows, progress.rejected = done.rows, done.rejected
            progress.commits = 0 if done.last is None else done.last.sequence - (0 if last is None else last.sequence)
            progress.see(done.last)
            progress.more |= done.is_behind

    @staticmethod
    def _maintain(topic: _Topic, ends: float, progress: _Progress) -> None:
        steps = topic.maintenance or topic.opened.maintenance(IN_STEPS).steps(int(time() * 1000))
        topic.maintenance = None  # one that fails begins again
        for step in steps:
            progress.merged += step.merged
            progress.deleted += step.orphans + step.decisions
            if monotonic() >= ends:
                topic.maintenance, progress.more = steps, True
                return

    def _topic(self, job: TableJob) -> _Topic:
        topic = self._topics.get(job.topic_id)
        if topic is None or topic.settings != job.settings:
            owner = Owner(job.cluster_id, job.topic_id, job.topic)
            topic = self._topics[job.topic_id] = _Topic(job.settings, owner)
        return topic

    def _offer(self, topic: _Topic, span: TableSpan, taken: TablePosition | None, progress: _Progress) -> bool:
        """Offer one file; return whether there may be another."""
        epochs = tuple(EpochStart(*each) for each in span.epochs)
        committed = CommittedSpan(span.partition, span.leader_epoch, span.start, span.end, epochs)
        translator = topic.translator(span)
        left_out = translator.left_out
        offer = translator.offer(committed, taken)
        if offer is None:
            return False
        progress.lost += offer.lost
        progress.left_out += translator.left_out - left_out
        return offer.next < span.end


class _Progress:
    """The outcome of a job so far: also of one that fails later."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.commits = self.rows = self.rejected = self.lost = self.left_out = self.merged = self.deleted = 0
        self.more = False

    def see(self, last: TableDecision | None) -> None:
        if last is not None:
            self.positions = {partition: row.next for partition, row in last.positions.items()}

    def report(self, kind: str = "", waits: str = "") -> TableReport:
        return TableReport(
            tuple(self.positions.items()),
            self.commits,
            self.rows,
            self.rejected,
            self.lost,
            self.left_out,
            self.merged,
            self.deleted,
            self.more and not waits,
            kind,
            waits,
        )


def _new_uid() -> str:
    return uuid4().hex


def _without_secrets(text: str, options: dict[str, str]) -> str:
    """Return an error's text for the log: libraries put addresses with logins and whole requests into theirs."""
    for secret in options.values():
        if len(secret) > 3:
            text = text.replace(secret, "[hidden]")
    return _LOGIN.sub("[hidden]", " ".join(text.split()))[:WAITS_LENGTH_MAX]
