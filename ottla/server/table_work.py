"""The settings of topics' tables, the jobs of a broker for the process that works on tables, and its reports.

They are plain values, because they go through pipes. They are in a package below both sides: a broker knows nothing of the
libraries of tables, and `ottla/tables` knows nothing of brokers.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.server.config.tables.topic_tables import UNPARTITIONED


class FetchedRecords(NamedTuple):
    """Batches that are not on the leader's disk: all of [first, next), and the aborted transactions among them, each by its
    producer and first offset.
    """

    first: int
    next: int
    data: bytes
    aborted: tuple[tuple[int, int], ...]


class TableSpan(NamedTuple):
    """The committed records of a partition in a leader's log: [start, end), and the starts of its leader epochs.

    The folder has those from `local_start` on. The others are in remote storage, and some of them may be `fetched`.
    """

    partition: int
    folder: str
    leader_epoch: int
    start: int
    local_start: int
    end: int
    epochs: tuple[tuple[int, int], ...]
    fetched: FetchedRecords | None = None


class TableSettings(NamedTuple):
    """The settings of a topic's table, from its configuration.

    `options` are those of the store and of the catalog, and may be passwords.
    """

    format: str
    #: The address below which all tables are: a path, `file://`, `s3://`, `gs://` or `az://`.
    location: str
    #: The catalog of Iceberg: `files`, the address of a REST catalog, or of a database (`sqlite:///...`, `postgresql://...`).
    catalog: str
    key: str
    value: str
    #: Options of the store by obstore's names, and those of the catalog by pyiceberg's names.
    options: dict[str, str]
    #: The address of the schema registry, and a file with its login (`RegistryClient.of`).
    registry: str = ""
    registry_config: str | None = None
    #: The JSON Schema for values that are `json`, or that of the registry's subject.
    json_schema: str = ""
    #: Whether rejected records become rows of a second table, or are only counted.
    keeps_rejected: bool = True
    #: The partitioning of a table that does not exist yet.
    partition: str = UNPARTITIONED


class TableJob(NamedTuple):
    """Offer the new records of these partitions. If the broker leads partition 0, then commit the offers of all leaders."""

    cluster_id: str
    topic_id: str
    topic: str
    settings: TableSettings
    #: The number of the topic's partitions.
    partitions: int
    spans: tuple[TableSpan, ...]
    commits: bool
    #: Maintain the table instead: run a slice of it, which continues where the topic's last slice ended.
    maintains: bool = False


class TableReport(NamedTuple):
    """The result of a job."""

    #: Partitions, each with the next offset of the table; empty if that is not known.
    positions: tuple[tuple[int, int], ...] = ()
    commits: int = 0
    rows: int = 0
    rejected: int = 0
    #: Offsets that the log had lost before they were translated.
    lost: int = 0
    #: Offsets that the tables have from records that the log has no more, and take again.
    parted: int = 0
    #: Rejected records that are offered to no table.
    left_out: int = 0
    #: Small files that maintenance has merged, and files that it has deleted.
    merged: int = 0
    deleted: int = 0
    #: Partitions, each with the offset from which on the table needs records that are not on the disk.
    wanted: tuple[tuple[int, int], ...] = ()
    #: Whether there is more to do at once, because a slice of work is bounded.
    more: bool = False
    #: The reason why the table waits, as a word that stays the same and as a sentence; both are empty if it does not wait.
    kind: str = ""
    waits: str = ""
