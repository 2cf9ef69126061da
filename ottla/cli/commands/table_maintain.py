"""The commands of `ottla table` for existing tables: `status`, `maintain`, `rebuild`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Annotated, Literal

from ottla.cli.app import Parameter, option_group
from ottla.cli.application import Output
from ottla.cli.errors import need_extra
from ottla.cli.output import confirm, note, print_rows
from ottla.cli.table_options import store_options
from ottla.client.failures import Failure, Kind
from ottla.server.config.tables.topic_tables import BYTES, FILES
from ottla.server.table_work import TableSettings

if TYPE_CHECKING:
    from ottla.tables.opening import OpenTables
    from ottla.tables.table import Owner
    from ottla.tables.translating import CommittedSpan


@option_group
class PresentTable:
    """An existing table: its location and its format."""

    at: Annotated[str, Parameter(name="--at", help="Where tables lie: what `export` had as --to.")]
    format: Annotated[
        Literal["iceberg", "delta", "parquet"] | None,
        Parameter(name="--format", help="Its format. Default: what is there."),
    ] = None
    catalog: Annotated[str, Parameter(help="The catalog of Iceberg: what `export` had as --catalog.")] = FILES
    option: Annotated[
        list[str] | None,
        Parameter(name="--option", help="NAME=VALUE of the store or of the catalog, as of `export`."),
    ] = None

    def open(self, topic: str) -> tuple[Owner, OpenTables]:
        """Open the tables of a topic. Raises as `open_existing`."""
        from ottla.tables.status import open_existing

        settings = TableSettings(self.format or "", self.at, self.catalog, BYTES, BYTES, store_options(self.option))
        return open_existing(settings, topic)


SomeLogDirs = Annotated[
    list[str] | None,
    Parameter(name="--log-dir", help="A log directory of a broker, which says what the log has."),
]

STATUS = ("topic", "commits", "last_commit", "rows", "files", "rejected", "waiting", "orphans", "lag")
PARTITIONS = ("topic", "partition", "log_start", "committed", "table", "lag")
MAINTAINED = ("topic", "merged", "expired", "orphans", "decisions", "conflicts")


def status(
    topic: str,
    /,
    *,
    table: PresentTable,
    log_dir: SomeLogDirs = None,
    partitions: Annotated[bool, Parameter(help="A row for each partition.")] = False,
    output: Output = "table",
) -> None:
    """Show how far a table is: commits, rows, rejected records, offers that wait, orphans; with --log-dir its lag."""
    need_extra("tables", "a table")
    from ottla.tables.offline import find_topic
    from ottla.tables.status import status as look

    with table_failures():
        owner, opened = table.open(topic)
        found = look(owner, opened)
        spans = {}
        if log_dir:
            logs = find_topic(log_dir, topic)
            if logs.owner != owner:
                raise Failure(f"the table has the rows of {owner.text}, and the log is {logs.owner.text}")
            spans = {number: each.span for number, each in logs.partitions.items()}
    numbers = sorted(found.positions.keys() | spans.keys())
    rows = [partition_row(topic, number, spans.get(number), found.positions.get(number)) for number in numbers]
    if partitions:
        print_rows(rows, PARTITIONS, output)
        return
    row = {name: getattr(found, name) for name in STATUS if name in found._fields}
    row |= {
        "topic": topic,
        "last_commit": datetime.fromtimestamp(found.last_commit_ms / 1000, UTC).isoformat(timespec="seconds"),
    }
    lags = [each["lag"] for each in rows if isinstance(each["lag"], int)]
    print_rows([row | {"lag": sum(lags) if lags else None}], STATUS, output)


def partition_row(topic: str, number: int, span: CommittedSpan | None, position: int | None) -> dict[str, object]:
    """Return a row of PARTITIONS: the offsets of a partition in its log, if they are known, and in the table."""
    start, end = (None, None) if span is None else (span.start, span.end)
    lag = None if end is None or start is None else max(0, end - max(start, position or 0))
    return {"topic": topic, "partition": number, "log_start": start, "committed": end, "table": position, "lag": lag}


def maintain(
    topic: str,
    /,
    *,
    table: PresentTable,
    output: Output = "table",
) -> None:
    """Merge small files, end old snapshots, and delete what nothing names and is older than a day.

    Writers may go on meanwhile. What a transaction of theirs has taken away, the next run does.
    """
    need_extra("tables", "a table")
    from ottla.tables.maintenance import MaintenancePolicy

    with table_failures():
        _, opened = table.open(topic)
        done = opened.maintenance(MaintenancePolicy()).run(int(time() * 1000))
    print_rows([{"topic": topic} | done._asdict()], MAINTAINED, output)


def rebuild(
    topic: str,
    /,
    *,
    table: PresentTable,
    log_dir: SomeLogDirs = None,
    discard: Annotated[
        str | None,
        Parameter(help="The id of the topic whose table it is, if that is not the topic in the log directories."),
    ] = None,
    yes: Annotated[bool, Parameter(help="Do not ask.")] = False,
) -> None:
    """Delete a table and what was decided about it: the next export begins at the start of the log.

    Records that retention has deleted since are in the table alone, and are lost. Stop what writes it first: exports, and brokers by
    the topic's ottla.table.format=none.
    """
    need_extra("tables", "a table")
    from ottla.tables.offline import find_topic
    from ottla.tables.status import drop

    with table_failures():
        owner, opened = table.open(topic)
        known = find_topic(log_dir, topic).owner if log_dir else None
        if owner != known and discard != owner.topic_id:
            raise Failure(
                f"it is the table of {owner.text}",
                f"name the log directory of this topic with --log-dir, or discard it: --discard {owner.topic_id}",
                Kind.WRONG,
            )
        confirm(f"delete the table of {owner.text} with all rows?", yes)
        drop(opened)
    note(f"{topic}: the table is deleted; the next export begins at the start of the log")


@contextmanager
def table_failures() -> Iterator[None]:
    """Turn errors of libraries and of the protocol into failures of a command."""
    from ottla.columns.batches import ColumnsError
    from ottla.tables.segment_source import SegmentsGone
    from ottla.tables.store import StoreFailure
    from ottla.tables.table import CommitConflict, CommitUnknown, TableRefused

    try:
        yield
    except (StoreFailure, TableRefused, ColumnsError) as fault:
        raise Failure(str(fault)) from fault
    except (OSError, ValueError) as fault:  # a file that an option names
        raise Failure(str(fault), kind=Kind.WRONG) from fault
    except (CommitConflict, CommitUnknown, SegmentsGone) as fault:
        raise Failure(str(fault), "run it again: it goes on where it ended") from fault
