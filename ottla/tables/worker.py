"""The tables of a broker's topics: the object in the process beside it, which does one job at a time (`server/table_work.py`).

Between jobs it keeps things open: the store and tables of each topic, and the translator of each partition for one leader
epoch. All of these can be made again from the store, so the process may be killed anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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
from ottla.tables.segment_source import RecordsAway, SegmentsGone, SegmentSource
from ottla.tables.store import StoreFailure, StoreRefused
from ottla.tables.table import NAMESPACE, CommitConflict, CommitUnknown, Owner, TableRefused
from ottla.tables.translating import CommittedSpan, EpochStart, Translator

#: After this time a job begins no further file, because other topics wait.
SLICE_S = 2.0
#: The most characters of the sentence that says why a table waits.
WAITS_LENGTH_MAX = 500

STORE, STORE_REFUSES, CATALOG, CONFLICT = "store", "store refuses", "catalog", "conflict"
REFUSED, REGISTRY, RECORDS, FAULT = "refused", "registry", "records", "fault"
KINDS: tuple[tuple[type[Exception], str], ...] = (
    (StoreRefused, STORE_REFUSES),
    (StoreFailure, STORE),
    (CommitUnknown, CATALOG),
    (CommitConflict, CONFLICT),
    (SegmentsGone, CONFLICT),  # by retention or compaction, since the job was made: the next job has the new start
    (TableRefused, REFUSED),
    (RegistryWaits, REGISTRY),
    (ColumnsError, RECORDS),
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]*(?=@)")


class _Place(NamedTuple):
    """The partition of a translator. After a move between log directories its folder is another one."""

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
        self._sources: dict[int, SegmentSource] = {}
        #: The rest of a maintenance that has begun.
        self.maintenance: Iterator[Maintained] | None = None

    def translator(self, span: TableSpan) -> Translator:
        place = _Place(span.partition, span.leader_epoch, span.folder)
        if place not in self.translators:
            for other in [each for each in self.translators if each.partition == span.partition]:
                del self.translators[other]
            keeps = self.settings.keeps_rejected
            source = self._sources[span.partition] = SegmentSource(
                span.folder, self.owner, span.partition, self.opened.layout, self.opened.partition, keeps_rejected=keeps
            )
            self.translators[place] = Translator(self.opened.store, source, span.partition, span.leader_epoch, _new_uid)
        self._sources[span.partition].see(span.local_start, span.fetched)
        return self.translators[place]


class TableWorker:
    """Runs the jobs of one broker."""

    def __init__(self, slice_s: float = SLICE_S, prepared: Callable[[], object] | None = None) -> None:
        """Take `prepared`, which is called once, when the libraries of the first job are there."""
        self._slice_s = slice_s
        self._on_prepared = prepared
        self._topics: dict[str, _Topic] = {}

    def prepare(self, settings: TableSettings) -> None:
        """Import the modules that jobs with these settings need. No store and no catalog is contacted."""
        import_libraries(settings)
        if self._on_prepared is not None:
            self._on_prepared()
            self._on_prepared = None

    def work(self, job: TableJob) -> TableReport:
        """Run a slice of a job. It raises nothing: a failure is the reason to wait in the report."""
        progress = _Progress()
        try:
            self._work(job, progress)
        except SchemaMoved:  # the next file has other columns: the next slice opens the topic with these
            self.forget([job.topic_id])
            progress.more = True
        except Exception as fault:
            kind = next((kind for type_, kind in KINDS if isinstance(fault, type_)), FAULT)
            text = f"{type(fault).__name__}: {fault}" if kind == FAULT else str(fault)
            if isinstance(fault, StoreFailure):  # it contains only the object's name
                text = f"{job.settings.location}/{NAMESPACE}/{job.topic}/{text}"
            return progress.report(kind, _without_secrets(text, job.settings.options) or kind)
        return progress.report()

    def forget(self, topic_ids: list[str]) -> None:
        """Close topics that no longer have a table, or a leader here."""
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
        topic.maintenance = None  # a maintenance that fails begins again
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
        """Offer one file. Return whether there may be more."""
        epochs = tuple(EpochStart(*each) for each in span.epochs)
        committed = CommittedSpan(span.partition, span.leader_epoch, span.start, span.end, epochs)
        translator = topic.translator(span)
        left_out = translator.left_out
        try:
            offer = translator.offer(committed, taken)
        except RecordsAway as away:
            progress.wanted[span.partition] = away.offset
            return False
        if offer is None:
            return False
        progress.lost += offer.lost
        progress.parted += offer.parted
        progress.left_out += translator.left_out - left_out
        return offer.next < span.end


class _Progress:
    """The result of a job so far, also of one that fails later."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.wanted: dict[int, int] = {}
        self.commits = self.rows = self.rejected = self.lost = self.parted = 0
        self.left_out = self.merged = self.deleted = 0
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
            self.parted,
            self.left_out,
            self.merged,
            self.deleted,
            tuple(self.wanted.items()),
            (self.more or bool(self.wanted)) and not waits,
            kind,
            waits,
        )


def _new_uid() -> str:
    return uuid4().hex


def _without_secrets(text: str, options: dict[str, str]) -> str:
    """Return an error's text for the log: libraries include addresses with logins and whole requests."""
    for secret in options.values():
        if len(secret) > 3:
            text = text.replace(secret, "[hidden]")
    return _LOGIN.sub("[hidden]", " ".join(text.split()))[:WAITS_LENGTH_MAX]
