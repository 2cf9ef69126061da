"""A report counts for the partitions that are still led in the epoch of the job; a table that is up to date needs no job."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.tables import table_driver
from ottla.broker.tables.table_driver import TableDriver
from ottla.broker.tables.table_report import table_metrics
from ottla.broker.tables.topic_table import TopicTable
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.resource_configs import topic_values
from ottla.server.metrics import GAUGE
from ottla.server.table_work import TableJob, TableReport

TOPIC, ID = "orders", b"0123456789abcdef"
VALUES = {name: key.default for name, key in BROKER_CONFIGS.items()} | {"ottla.table.location": "/lake"}


class DriverHarness:
    """A driver of a topic with two partitions, whose process answers as the test says."""

    def __init__(self, leads: tuple[int, ...] = (0, 1), overrides: dict[str, str] | None = None) -> None:
        self.jobs: list[TableJob] = []
        self.during: Callable[[], object] = lambda: None
        self.report = TableReport(positions=((0, 7), (1, 5)), commits=1, rows=12)
        self.partitions = {index: self._partition(index) for index in leads}
        own = {"ottla.table.format": "delta"} | (overrides or {})
        topic = SimpleNamespace(id=ID, partitions={0: None, 1: None})
        image = SimpleNamespace(
            topics=SimpleNamespace(by_name=lambda name: topic), configs=SimpleNamespace(for_topic=lambda name: own)
        )
        clock = SimpleNamespace(mono_ms=lambda: 1_000, wall_ms=lambda: 61_000)
        world = SimpleNamespace(clock=clock, workers=SimpleNamespace(process=lambda: self), rng=random.Random(1))

        class Configs:
            values = VALUES
            node = SimpleNamespace(store_options={"secret": "hush"})

            def __getitem__(self, name: str) -> object:
                return VALUES[name]

        self.driver = TableDriver(
            cast(Any, world),
            cast(Any, Configs()),
            cast(Any, SimpleNamespace(image=image, cluster_id="c")),
            cast(Any, SimpleNamespace(by_name={TOPIC: self.partitions})),
            object,
        )
        self.table = TopicTable(TOPIC, ID, cast(Any, self.driver.stories.logger_of(TOPIC, _Quiet())), 0)

    @staticmethod
    def _partition(index: int) -> SimpleNamespace:
        log = SimpleNamespace(
            table_offset=None, high_watermark=7 - 2 * index, last_stable_offset=7 - 2 * index, log_start_offset=0, local_start_offset=0,
            directory=f"/data/orders-{index}", epochs=SimpleNamespace(entries=[(3, 0)]),
        )  # fmt: skip
        return SimpleNamespace(topic=TOPIC, index=index, topic_id=ID, leader_epoch=3, leader_log=log, log=log)

    async def make(self, factory: Callable[..., object], *args: object) -> None:
        pass

    async def call(self, method: str, job: TableJob) -> TableReport | None:
        if method == "prepare":
            return None
        self.jobs.append(job)
        self.during()
        return self.report

    async def work(self, *, maintains: bool = False) -> None:
        await self.driver._work(self.table, maintains=maintains)

    def offset(self, index: int) -> int | None:
        found: int | None = self.partitions[index].log.table_offset
        return found


class _Quiet:
    def log(self, *args: object, **more: object) -> None:
        pass


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.tables.table_process.lacking", lambda extra: None)


async def test_the_hold_follows_what_the_report_says() -> None:
    harness = DriverHarness()
    await harness.work()
    assert (harness.offset(0), harness.offset(1)) == (7, 5)
    (job,) = harness.jobs
    assert job.commits and job.settings.location == "/lake" and job.settings.options == {"secret": "hush"}
    assert [(span.folder, span.start, span.end, span.epochs) for span in job.spans] == [
        ("/data/orders-0", 0, 7, ((3, 0),)),
        ("/data/orders-1", 0, 5, ((3, 0),)),
    ]


async def test_a_report_says_nothing_of_a_partition_that_is_led_in_another_epoch_meanwhile() -> None:
    harness = DriverHarness()
    harness.during = lambda: setattr(harness.partitions[1], "leader_epoch", 4)
    await harness.work()
    assert (harness.offset(0), harness.offset(1)) == (7, None)


async def test_a_report_says_nothing_of_a_partition_that_was_resigned_meanwhile() -> None:
    harness = DriverHarness()
    harness.during = lambda: setattr(harness.partitions[0], "leader_log", None)
    await harness.work()
    assert (harness.offset(0), harness.offset(1)) == (None, 5)


async def test_a_table_that_has_everything_costs_no_job() -> None:
    harness = DriverHarness()
    await harness.work()
    await harness.work()
    assert len(harness.jobs) == 1
    harness.partitions[0].log.high_watermark = harness.partitions[0].log.last_stable_offset = 8
    await harness.work()
    assert len(harness.jobs) == 2


async def test_the_leader_of_the_first_partition_commits_once_others_have_offered() -> None:
    harness = DriverHarness(leads=(0,))
    await harness.work()
    await harness.work()
    assert [(len(job.spans), job.commits) for job in harness.jobs] == [(1, False), (0, True)]


async def test_others_offer_only() -> None:
    harness = DriverHarness(leads=(1,))
    await harness.work()
    await harness.work()
    assert [(len(job.spans), job.commits) for job in harness.jobs] == [(1, False), (1, False)]


async def test_a_place_that_this_brokers_file_does_not_allow_is_not_opened() -> None:
    harness = DriverHarness(overrides={"ottla.table.location": "/etc"})
    await harness.work()
    await harness.work(maintains=True)
    assert not harness.jobs and "is not allowed" in harness.table.waits
    assert harness.table.maintenance.due_ms > 1_000


async def test_the_leader_of_the_first_partition_maintains_the_table() -> None:
    harness = DriverHarness(leads=(0,))
    harness.report = TableReport(merged=5, deleted=7, more=True)
    await harness.work(maintains=True)
    maintenance = harness.table.maintenance
    assert (maintenance.merged, maintenance.deleted, maintenance.runs, maintenance.due_ms) == (5, 7, 0, 1_000), (
        "there is more at once"
    )
    harness.report = TableReport()
    await harness.work(maintains=True)
    assert [(job.maintains, job.spans, job.commits) for job in harness.jobs] == [(True, (), False)] * 2
    assert maintenance.runs == 1 and 0.8 * 3_600_000 <= maintenance.due_ms - 1_000 <= 1.2 * 3_600_000
    others = DriverHarness(leads=(1,))
    await others.work(maintains=True)
    assert not others.jobs and others.table.maintenance.due_ms > 1_000


async def test_a_table_that_waits_is_not_maintained() -> None:
    harness = DriverHarness()
    harness.report = TableReport(kind="store", waits="no answer")
    await harness.work()
    await harness.work(maintains=True)
    assert len(harness.jobs) == 1 and harness.table.maintenance.due_ms > 1_000


async def test_a_commit_goes_between_two_slices_of_maintenance() -> None:
    harness = DriverHarness()
    table, driver = harness.table, harness.driver
    driver.tables[TOPIC] = table
    table.due_ms, table.maintenance.due_ms = 1_000, 900
    assert min(driver._turns()).maintains, "it has waited longer"
    harness.report = TableReport(more=True)
    await harness.work(maintains=True)
    assert not min(driver._turns()).maintains
    await harness.work()
    table.maintenance.due_ms = 999
    assert min(driver._turns()).maintains, "nor do commits that have more to do keep it waiting"


def gauges(harness: DriverHarness) -> dict[str, float]:
    """Return the gauges of the only table by their names, without those that have no sample."""
    harness.driver.tables[TOPIC] = harness.table
    families = [family for family in table_metrics(harness.driver, 1_000) if family.kind == GAUGE]
    return {family.name: family.samples[0].value for family in families if family.samples}


def resign(harness: DriverHarness, index: int) -> None:
    harness.driver.tables[TOPIC] = harness.table
    harness.partitions[index].leader_log = None
    harness.driver.on_resigned(cast(Any, harness.partitions[index]))


async def test_a_leader_of_the_first_partition_that_resigns_says_no_more_what_has_failed_there() -> None:
    harness = DriverHarness()
    await harness.work()
    harness.report = TableReport(kind="store", waits="no answer")
    await harness.work(maintains=True)
    assert gauges(harness)["ottla_table_maintenance_failing"] == 1
    resign(harness, 0)
    assert gauges(harness).keys() == {"ottla_table_lag_records", "ottla_table_lag_seconds", "ottla_table_waits"}
    assert not harness.table.maintenance.failed
    resign(harness, 1)
    assert not gauges(harness), "nor of a table of which it leads nothing, before the next job has ended"


@pytest.mark.parametrize("maintains", [False, True])
async def test_what_has_failed_for_the_leader_of_the_first_partition_is_not_said_by_one_that_has_resigned_meanwhile(
    maintains: bool,
) -> None:
    harness = DriverHarness()
    harness.report = TableReport(kind="catalog", waits="no answer")
    harness.during = lambda: resign(harness, 0)
    await harness.work(maintains=maintains)
    assert not harness.table.maintenance.failed and not harness.table.waits


@pytest.mark.parametrize(
    ("catalog", "options"),
    [
        ("postgresql://lake/tables", {"uri": "postgresql://u:p@lake/tables", "secret": "hush"}),
        ("files", {"secret": "hush"}),
        ("http://other:8181", {"secret": "hush"}),
    ],
)
def test_the_address_with_the_password_is_for_the_catalog_of_the_brokers_alone(
    catalog: str, options: dict[str, str]
) -> None:
    own = VALUES | {"ottla.table.catalog": "postgresql://lake/tables"}
    topic = topic_values({"ottla.table.catalog": catalog}, own)

    class Configs(dict[str, Any]):
        node = SimpleNamespace(store_options={"uri": "postgresql://u:p@lake/tables", "secret": "hush"})

    settings = table_driver._settings(topic, cast(Any, Configs(own)))
    assert (settings.catalog, settings.options) == (catalog, options)
