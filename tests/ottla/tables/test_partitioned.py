"""Tables that are partitioned by the day or the hour of their records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from ottla.server.config.key import ConfigError
from ottla.server.config.resource_configs import check_topic_configs
from ottla.server.config.tables.topic_tables import DAY, HOUR, UNPARTITIONED
from ottla.server.table_work import TableSettings
from ottla.tables import offers
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.opening import open_tables
from ottla.tables.partitioning import PARTS_MAX
from ottla.tables.segment_source import SegmentSource
from ottla.tables.translating import CommittedSpan, EpochStart, Translator
from tests.ottla.tables.topics import OWNER, TYPES
from tests.server.config.test_topic_tables import LAKE, TABLE, broker

FORMATS = ("iceberg", "delta", "parquet")
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
UIDS = count(1)
LATER = 1 << 50


class TimedTopic:
    """A topic of one partition, with records of these times."""

    def __init__(self, place: Path, format_: str, partition: str) -> None:
        self.settings = TableSettings(format_, str(place), "files", "bytes", "bytes", {}, partition=partition)
        self.opened = open_tables(self.settings, OWNER)
        self.times: list[datetime] = []
        source: Any = SegmentSource("", OWNER, 0, self.opened.layout, self.opened.partition)
        source._records = self._records
        self.translator = Translator(self.opened.store, source, 0, 0, lambda: f"{next(UIDS):032x}")

    def _records(self, first: int, end: int, fetched: object) -> Any:
        assert fetched is None, "all records are in the log's folder"
        rows = [(b"k", b"%d" % offset, 0, offset, self.times[offset], 0, 0, None) for offset in range(first, end)]
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), TYPES, strict=True)]
        names = ("key", "value", "partition", "offset", "timestamp", "timestampType", "leaderEpoch", "headers")
        yield pa.RecordBatch.from_arrays(columns, names)

    def write(self, *times: datetime) -> None:
        self.times += times
        while self.translator.offer(CommittedSpan(0, 0, 0, len(self.times), (EpochStart(0, 0),)), self.taken()):
            self.opened.committer.run(1)

    def taken(self) -> Any:
        last = self.opened.log.last()
        return None if last is None else last.positions.get(0)

    def files(self) -> list[str]:
        """Return the partition of each file of the table, as the format records it."""
        place = self.opened.store.url.removeprefix("file://")
        match self.settings.format:
            case "iceberg":
                newest = max(Path(place, "metadata").glob("v*.json"), key=lambda file: int(file.name[1:].split(".")[0]))
                tasks = StaticTable.from_metadata(str(newest)).scan().plan_files()
                return sorted(str(task.file.partition) for task in tasks)
            case "delta":
                return sorted(str(part) for part in DeltaTable(place).get_add_actions().column("partition").to_pylist())
        return sorted(file.parent.name for file in Path(place, "rows").rglob("*.parquet"))

    def rows(self) -> dict[int, datetime]:
        place = self.opened.store.url.removeprefix("file://")
        match self.settings.format:
            case "iceberg":
                newest = max(Path(place, "metadata").glob("v*.json"), key=lambda file: int(file.name[1:].split(".")[0]))
                found = StaticTable.from_metadata(str(newest)).scan().to_arrow()
            case "delta":
                found = DeltaTable(place).to_pyarrow_table()
            case _:
                found = ds.dataset(f"{place}/rows", partitioning="hive").to_table()
        rows = [row["_kafka"] for row in found.to_pylist()]
        assert len(rows) == len({row["offset"] for row in rows})
        return {row["offset"]: row["timestamp"] for row in rows}


@pytest.mark.parametrize("format_", FORMATS)
def test_each_file_has_the_records_of_one_day(tmp_path: Path, format_: str) -> None:
    topic = TimedTopic(tmp_path, format_, DAY)
    topic.write(*(NOON + timedelta(hours=7 * number) for number in range(6)), NOON, NOON - timedelta(days=25_000))
    last = str((NOON.date() - datetime(1969, 12, 31).date()).days) if format_ == "iceberg" else "2026"
    assert len(topic.files()) == 3 and last in topic.files()[-1]
    assert topic.rows() == dict(enumerate(topic.times))
    state = topic.opened.tables[0].load()
    assert state is not None and topic.opened.tables[0].size(state) == (8, 3)


@pytest.mark.parametrize("format_", FORMATS)
def test_maintenance_keeps_the_days_apart_and_leaves_nothing(tmp_path: Path, format_: str) -> None:
    topic = TimedTopic(tmp_path, format_, DAY)
    for _ in range(6):
        topic.write(NOON, NOON + timedelta(days=1))
    assert len(topic.files()) == 12
    done = topic.opened.maintenance(MaintenancePolicy(age_ms=0)).run(LATER)
    assert len(topic.files()) == (12 if format_ == "parquet" else 2) and done.merged in (0, 12)
    assert topic.rows() == dict(enumerate(topic.times))
    left = [each.name for folder in ("data", "parts") for each in topic.opened.store.list(folder)]
    assert not left
    topic.write(NOON)
    assert topic.rows() == dict(enumerate(topic.times))


def test_a_filter_on_the_time_opens_the_files_of_that_hour_alone(tmp_path: Path) -> None:
    topic = TimedTopic(tmp_path, "iceberg", HOUR)
    topic.write(*(NOON + timedelta(minutes=20 * number) for number in range(9)))
    state = topic.opened.tables[0].load()
    assert state is not None
    wanted = f"_kafka.timestamp >= '{(NOON + timedelta(hours=2)).isoformat()}'"
    assert len([*state.version.scan(row_filter=wanted).plan_files()]) == 1 and len(topic.files()) == 3


def test_records_of_any_time_make_a_bounded_number_of_files(tmp_path: Path) -> None:
    topic = TimedTopic(tmp_path, "delta", DAY)
    topic.write(*(NOON + timedelta(days=7 * number % 100) for number in range(100)))
    assert topic.rows() == dict(enumerate(topic.times))
    for name in (each.name for each in topic.opened.store.list("data")):
        offer = offers.offer_of(name)
        assert offer is not None and offer.rows <= PARTS_MAX


def test_a_table_stays_what_it_is_and_leaders_that_think_otherwise_offer_again(tmp_path: Path) -> None:
    topic, late = TimedTopic(tmp_path, "delta", DAY), TimedTopic(tmp_path, "delta", UNPARTITIONED)
    late.times = topic.times = [NOON]
    late.translator.offer(CommittedSpan(0, 0, 0, 1, (EpochStart(0, 0),)), None)
    topic.opened.committer.run(1)
    assert topic.taken() is None and not late.opened.is_partitioned_as(late.opened.log.last())
    again = TimedTopic(tmp_path, "delta", UNPARTITIONED)
    assert again.opened.partition == DAY
    again.times = []
    again.write(NOON)
    assert again.rows() == {0: NOON} and len(again.files()) == 1


def test_what_no_table_is_partitioned_by_is_refused_with_what_it_may_be() -> None:
    values = broker(location=LAKE)
    check_topic_configs(TABLE | {"ottla.table.partition": "day"}, values)
    with pytest.raises(ConfigError, match="by day or hour of _kafka"):
        check_topic_configs(TABLE | {"ottla.table.partition": "bucket(16, id)"}, values)
