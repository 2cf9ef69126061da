"""Drives the tables of topics whose partitions this broker leads: it decides on the loop, and has the work done in a process beside it.

At each interval of a topic every leader offers its new committed records, one file for each partition. The leader of partition
0 commits the files of all leaders, and maintains the table about once an hour (`ottla/tables`, docs/dev/TABLES.md). The process
is started with the first topic that has a table, and ends with the last one. It does one job at a time, in slices; topics take
turns.

A job describes the state at the time when it was made, and offers of a deposed leader do no harm. The report is used only for
partitions that this broker still leads in the same leader epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_log import LedLog, led_log
from ottla.broker.replication.replicas import Replicas
from ottla.broker.share.remote_records import TieredReads
from ottla.broker.tables.remote_records import Slice
from ottla.broker.tables.table_process import TableProcess
from ottla.broker.tables.topic_table import COMMITTING, NEVER_MS, TableLag, TopicTable
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.topic_names import INTERNAL_TOPICS
from ottla.protocol.primitives import uuid_to_str
from ottla.server.config.key import ConfigError, Values
from ottla.server.config.resource_configs import check_topic_configs, topic_values
from ottla.server.config.tables.topic_tables import DLQ, DLQ_TABLE, FORMAT, MAINTENANCE, NONE, PARTITION
from ottla.server.story import Stories
from ottla.server.table_work import TableJob, TableReport, TableSettings, TableSpan
from ottla.server.world import World
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

NOT_ALLOWED = "not allowed"


class _Turn(NamedTuple):
    """A turn of a topic: when it is due, and whether the table is maintained or gets new records. A commit goes first if both
    are due.
    """

    due_ms: int
    maintains: bool
    topic: str


class TableDriver:
    """The tables of a broker's topics: their list, the next one to work on, and the facts found about each."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        replicas: Replicas,
        factory: Callable[[], object],
    ) -> None:
        self._world, self._configs, self._metadata, self._replicas = world, configs, metadata, replicas
        self._process = TableProcess(world.workers.process(), factory)
        #: Where remote storage is on.
        self.remote_reads: TieredReads | None = None
        self.stories: Stories[str] = Stories("table", world.clock.wall_ms)
        #: The tables by the topic's name, of those of which this broker leads a partition.
        self.tables: dict[str, TopicTable] = {}
        #: Names of all topics that have a table.
        self._with_table: set[str] = set()
        self._gone: list[str] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = self._world.spawn(self._run(), "tables")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._process.close()

    # -- What there is to do -----------------------------------------------------------------------------------------

    def on_leader(self, partition: Partition) -> None:
        if partition.topic in self._with_table:
            self._changed.set()

    def on_resigned(self, partition: Partition) -> None:
        if partition.log is not None:
            partition.log.table_offset = None
        table = self.tables.get(partition.topic)
        if table is not None:
            table.resigned(partition.index)
        if partition.topic in self._with_table:
            self._changed.set()

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Find the topics that have a table: by their changed configurations, so that 10,000 topics without one cost nothing."""
        if delta.configs is None:
            return
        for kind, name in delta.configs.changed_resources:
            if kind != ResourceType.TOPIC:
                continue
            if image.configs.for_topic(name).get(FORMAT, NONE) != NONE:
                self._with_table.add(name)
            elif name in self._with_table:
                self._with_table.discard(name)
            else:
                continue
            self._changed.set()

    def led(self, topic: str) -> Iterator[Partition]:
        """Yield the partitions of a topic that this broker leads, and can read."""
        for partition in self._replicas.by_name.get(topic, {}).values():
            if partition.leader_log is not None:
                yield partition

    def values_of(self, topic: str) -> Values:
        return topic_values(self._metadata.image.configs.for_topic(topic), self._configs.values)

    def lags(self, table: TopicTable) -> Iterator[tuple[int, Log, TableLag]]:
        """Yield the lag of a table behind each partition that this broker leads."""
        for partition in self.led(table.topic):
            if partition.leader_log is not None and (lag := table.lags.get(partition.index)) is not None:
                yield partition.index, partition.leader_log, lag

    def _refresh(self, now_ms: int) -> None:
        """Begin the tables of topics that this broker leads since now, and drop the others."""
        for name in self._with_table - INTERNAL_TOPICS:
            topic_id = next((partition.topic_id for partition in self.led(name)), None)
            known = self.tables.get(name)
            if known is not None and known.topic_id != topic_id:
                self._drop(name)
            if topic_id is not None and name not in self.tables:
                story = self.stories.logger_of(name, log)
                maintained_ms = now_ms + self._maintained_after_ms(0.0, 1.0)  # not after each restart, nor all at once
                self.tables[name] = TopicTable(name, topic_id, story, now_ms, maintained_ms)
        for name in self.tables.keys() - self._with_table:
            self._drop(name)

    def _maintained_after_ms(self, least: float, most: float) -> int:
        """Return a time between these shares of the interval of maintenance."""
        interval_ms: int = self._configs[MAINTENANCE]
        return int(interval_ms * self._world.rng.uniform(least, most)) if interval_ms else NEVER_MS

    def _drop(self, name: str) -> None:
        self._gone.append(uuid_to_str(self.tables.pop(name).topic_id))
        for partition in self._replicas.by_name.get(name, {}).values():
            if partition.log is not None:
                partition.log.table_offset = None

    # -- Doing it ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        clock = self._world.clock
        while True:
            self._changed.clear()
            try:
                self._refresh(clock.mono_ms())
                if self._gone:
                    gone, self._gone = self._gone, []
                    await (self._process.forget(gone) if self.tables else self._process.close())
                due = min(self._turns(), default=None)
                if due is not None and due.due_ms <= clock.mono_ms():
                    await self._work(self.tables[due.topic], maintains=due.maintains)
                else:
                    await self._wait(None if due is None else due.due_ms - clock.mono_ms())
            except Exception:
                log.exception("Work on tables failed")
                await self._wait(1_000)

    def _turns(self) -> Iterator[_Turn]:
        for name, table in self.tables.items():
            yield _Turn(table.due_ms, maintains=False, topic=name)
            yield _Turn(table.maintenance.due_ms, maintains=True, topic=name)

    async def _wait(self, delay_ms: int | None) -> None:
        """Wait until something has changed, or the time is over."""
        timer = None if delay_ms is None else self._world.clock.call_later(max(1, delay_ms), self._changed.set)
        await self._changed.wait()
        if timer is not None:
            timer.cancel()

    async def _work(self, table: TopicTable, *, maintains: bool) -> None:
        """Do one slice of a topic's work, and take over its result."""
        clock, fetched = self._world.clock, Slice()
        began_ms = clock.mono_ms()
        if table.wanted and not maintains and not table.is_commit_next:
            leads = {each.index: found for each in self.led(table.topic) if (found := led_log(each)) is not None}
            fetched = await table.slices.next_slice(table.wanted, leads, self.remote_reads)
        led = [found for each in self.led(table.topic) if (found := led_log(each)) is not None]
        image = self._metadata.image
        topic = image.topics.by_name(table.topic)
        if not led or topic is None or topic.id != table.topic_id:
            self.tables.pop(table.topic, None)
            self._gone.append(uuid_to_str(table.topic_id))
            return
        overrides = image.configs.for_topic(table.topic)
        values = topic_values(overrides, self._configs.values)
        interval_ms: int = values["ottla.table.commit.interval.ms"]
        table.led(each.partition.index for each in led)
        now_ms = clock.mono_ms()
        for each in led:
            table.lags[each.partition.index].saw(each.log.high_watermark, now_ms)
        if maintains:  # with any result, it is not due again at once
            table.maintenance.due_ms = now_ms + self._maintained_after_ms(0.8, 1.2)
        try:
            check_topic_configs(overrides, self._configs.values)
        except ConfigError as error:  # another broker allows these configs, or this broker did before
            report = TableReport(kind=NOT_ALLOWED, waits=str(error))
            table.offered(report, clock.wall_ms(), now_ms, interval_ms, commits_later=False)
            return
        first = next((each for each in led if each.partition.index == COMMITTING), None)
        leads_first = first is not None
        job = self._job(table, values, max(topic.partitions) + 1)
        if maintains:
            # The reason for which the table waits would fail maintenance, too, and would be logged twice.
            if first is not None and not table.kind:
                await self._maintain(table, job._replace(maintains=True), first)
            return
        leads_all = len(led) == len(topic.partitions)
        is_commit = table.is_commit_next and leads_first
        if leads_all and not table.kind and all(_is_done(table, each) for each in led):
            table.offered(TableReport(), clock.wall_ms(), now_ms, interval_ms, commits_later=False)
            return
        spans = () if is_commit else tuple(fetched.with_span(_span(each)) for each in led)
        job = job._replace(spans=spans, commits=leads_first and (is_commit or leads_all))
        report = fetched.with_report(await self._report_of(job))
        positions = dict(report.positions)
        for each in led:
            position = positions.get(each.partition.index)
            if position is not None and each.still_holds:
                each.log.table_offset = position
        if job.commits and first is not None and not first.still_holds:
            report = report._replace(kind="", waits="")  # it may be about the commit, which is another broker's now
        table.offered(
            report,
            clock.wall_ms(),
            clock.mono_ms(),
            interval_ms,
            commits_later=leads_first and not leads_all and not is_commit,
            took_ms=clock.mono_ms() - began_ms,
        )

    def _job(self, table: TopicTable, values: Values, partitions: int) -> TableJob:
        topic_id, settings = uuid_to_str(table.topic_id), _settings(values, self._configs)
        return TableJob(self._metadata.cluster_id, topic_id, table.topic, settings, partitions, spans=(), commits=False)

    async def _report_of(self, job: TableJob) -> TableReport:
        return await self._process.work(job, self._configs["ottla.table.call.timeout.ms"])

    async def _maintain(self, table: TopicTable, job: TableJob, first: LedLog) -> None:
        """Do a slice of maintenance. A deposed leader does no harm by it; its failure counts only while this broker leads the
        partition.
        """
        clock, again_ms = self._world.clock, table.maintenance.due_ms
        began_ms = clock.mono_ms()
        report = await self._report_of(job)
        now_ms = clock.mono_ms()
        table.maintenance.took(report, clock.wall_ms(), now_ms, again_ms - began_ms, now_ms - began_ms)
        if not first.still_holds:
            table.maintenance.forget_failure()


def _is_done(table: TopicTable, led: LedLog) -> bool:
    """Return whether the table has everything of a partition."""
    position = table.lags[led.partition.index].position
    return position is not None and led.log.table_offset == position == led.log.last_stable_offset


def _span(led: LedLog) -> TableSpan:
    return TableSpan(
        partition=led.partition.index,
        folder=led.log.directory,
        leader_epoch=led.leader_epoch,
        start=led.log.log_start_offset,
        local_start=led.log.local_start_offset,
        end=led.log.last_stable_offset,
        epochs=tuple(led.log.epochs.entries),
    )


def _settings(values: Values, configs: BrokerConfigs) -> TableSettings:
    options = dict(configs.node.store_options)
    if values["ottla.table.catalog"] != configs["ottla.table.catalog"]:
        # The address with the password belongs to the brokers' catalog, and would take precedence over the catalog that the
        # topic names.
        options.pop("uri", None)
    return TableSettings(
        format=values[FORMAT],
        location=values["ottla.table.location"],
        catalog=values["ottla.table.catalog"],
        key=values["ottla.table.key"],
        value=values["ottla.table.value"],
        options=options,
        registry=configs["ottla.table.registry"] or "",
        registry_config=configs["ottla.table.registry.config"],
        keeps_rejected=values[DLQ] == DLQ_TABLE,
        partition=values[PARTITION],
    )
