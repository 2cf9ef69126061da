"""The settings of topics' tables, jobs that a broker gives to the process that works on them, and their reports.

Plain values, because they go through pipes. They stand below both: a broker knows nothing of the libraries of tables, and what works
on tables (`ottla/tables`) nothing of brokers.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.server.config.tables.topic_tables import UNPARTITIONED


class TableSpan(NamedTuple):
    """The committed records of a leader's log of a partition: [start, end) in a folder, and the starts of its leader epochs."""

    partition: int
    folder: str
    leader_epoch: int
    start: int
    end: int
    epochs: tuple[tuple[int, int], ...]


class TableSettings(NamedTuple):
    """The settings of a topic's table, by its configuration. `options` are of the store and of the catalog, and may be passwords."""

    format: str
    #: The address below which all tables lie: a path, `file://`, `s3://`, `gs://` or `az://`.
    location: str
    #: The catalog of Iceberg: `files`, the address of a REST catalog, or of a database (`sqlite:///...`, `postgresql://...`).
    catalog: str
    key: str
    value: str
    #: Options of the store by obstore's names, and of the catalog by pyiceberg's.
    options: dict[str, str]
    #: The address of the schema registry, and a file with its login (`RegistryClient.of`).
    registry: str = ""
    registry_config: str | None = None
    #: The JSON Schema of values that are `json`, or that of the registry's subject.
    json_schema: str = ""
    #: Whether rejected records are rows of the table beside, or are left out and counted.
    keeps_rejected: bool = True
    #: How a table is partitioned that is yet to be made.
    partition: str = UNPARTITIONED


class TableJob(NamedTuple):
    """Offer what is new of these partitions, and then, if the broker leads partition 0, commit what all leaders have offered."""

    cluster_id: str
    topic_id: str
    topic: str
    settings: TableSettings
    #: How many partitions the topic has.
    partitions: int
    spans: tuple[TableSpan, ...]
    commits: bool
    #: Maintain the table instead: a slice of it, which goes on where the last one of this topic has ended.
    maintains: bool = False


class TableReport(NamedTuple):
    """The outcome of a job."""

    #: Partitions, each with the next offset of the table; empty if it is not known.
    positions: tuple[tuple[int, int], ...] = ()
    commits: int = 0
    rows: int = 0
    rejected: int = 0
    #: Offsets that the log had lost before they were translated.
    lost: int = 0
    #: Offsets that the tables have from records that the log has no more, and take again.
    parted: int = 0
    #: Rejected records that were offered to no table.
    left_out: int = 0
    #: Small files that maintenance has merged, and files that it has deleted.
    merged: int = 0
    deleted: int = 0
    #: Whether there is more to do at once: a slice of work is bounded.
    more: bool = False
    #: Why the table waits, in a word that stays the same and in a sentence; empty if it does not.
    kind: str = ""
    waits: str = ""
