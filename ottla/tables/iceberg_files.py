"""The maintenance of an Iceberg table: merging of small files, expiry of snapshots, and the files that its snapshots name.

pyiceberg has neither compaction nor a removal of orphans. A merge is one commit that removes files and adds their rows again in
one file. As each commit, it is conditional on the snapshot whose files were read, so a committer and a merge can never both
change the same version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.transforms import DayTransform, HourTransform, Transform

from ottla.server.config.tables.topic_tables import DAY, UNPARTITIONED
from ottla.tables.layout import KAFKA
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.offers import FOLDER, PARTS_FOLDER, offer_of, offer_of_part
from ottla.tables.segment_source import parquet_writer
from ottla.tables.table_location import MERGED

_SCHEME = re.compile(r"^[a-z0-9+.-]+:/*|^/+")
_MERGED_NAME = re.compile(rf"/{MERGED}/(\d{{5}})/[0-9_]+_[0-9a-f]{{32}}\.parquet$")


class MergePart(NamedTuple):
    """Files of one partition that are merged into one, in the order of their offsets."""

    partition: int
    files: list[DataFile]


def parts_to_merge(table: Table, policy: MaintenancePolicy) -> Iterator[MergePart]:
    """Yield groups of small files of Ottla, for each partition that has too many of them."""
    small: dict[tuple[int, str], list[DataFile]] = {}
    for task in table.scan().plan_files():
        partition = _partition_of(task.file.file_path)
        if partition is not None and not task.delete_files and task.file.file_size_in_bytes < policy.small_bytes:
            small.setdefault((partition, str(task.file.partition)), []).append(task.file)
    for (partition, _), files in sorted(small.items()):
        if len(files) > policy.small_files_max:
            yield from _parts(table.io, partition, sorted(files, key=_first_offset), policy.merged_bytes)


def merged_file(io: FileIO, location: str, part: MergePart) -> str:
    """Write the rows of a group into one file, one row group at a time. Return its address."""
    first = _first_offset(part.files[0]).split("_")[0]
    where = f"{location}/{MERGED}/{part.partition:05}/{first}_{len(part.files)}_{uuid4().hex}.parquet"
    with io.new_output(where).create() as sink:
        writer: pq.ParquetWriter | None = None
        for file in part.files:
            with io.new_input(file.file_path).open() as source:
                rows = pq.ParquetFile(source)
                if writer is None:
                    writer = parquet_writer(sink, rows.schema_arrow.remove_metadata())
                for number in range(rows.num_row_groups):
                    writer.write_table(rows.read_row_group(number).replace_schema_metadata())
        assert writer is not None, "a part has files"
        writer.close()
    return where


def add_parts(transaction: Transaction, summary: dict[str, str], files: list[tuple[str, int | None]]) -> None:
    """Add files by their addresses, each with the day or hour of its rows: pyiceberg has no bounds of a struct's fields to find
    these by.
    """
    if transaction.table_metadata.name_mapping() is None:
        mapping = transaction.table_metadata.schema().name_mapping
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping.model_dump_json()})
    with transaction._append_snapshot_producer(summary) as snapshot:
        for address, part in files:
            made = parquet_file_to_data_file(transaction._table.io, transaction.table_metadata, address)
            made.partition[0] = part
            snapshot.append_data_file(made)


def replace(transaction: Transaction, summary: dict[str, str], gone: list[DataFile], made: DataFile) -> None:
    """Remove files from the table and add another one, in one snapshot."""
    with transaction.update_snapshot(summary).overwrite() as snapshot:
        for file in gone:
            snapshot.delete_data_file(file)
        snapshot.append_data_file(made)


def expired_snapshots(table: Table, policy: MaintenancePolicy, now_ms: int) -> list[int]:
    """Return the snapshots that no new reader uses: never the current one, nor those of tags and branches."""
    kept = {each.snapshot_id for each in table.metadata.refs.values()}
    newest = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True)
    old = [*newest[policy.versions_max :]]
    old += [each for each in newest[: policy.versions_max] if each.timestamp_ms <= now_ms - policy.age_ms]
    return [each.snapshot_id for each in old if each.snapshot_id not in kept]


class NamedFiles:
    """The files that a table's snapshots name, without the schemes of their addresses (Spark writes `file:/` and `s3a://`).

    A manifest never changes, so each is read once.
    """

    def __init__(self) -> None:
        self._of_manifest: dict[str, set[str]] = {}

    def of(self, table: Table) -> set[str]:
        """Return manifest lists, manifests, and files of rows and of deletes. Raises pyiceberg's error if one is missing."""
        found: set[str] = set()
        manifests: set[str] = set()
        for snapshot in table.metadata.snapshots:
            found.add(plain(snapshot.manifest_list))
            for manifest in snapshot.manifests(table.io):
                path = manifest.manifest_path
                if path not in self._of_manifest:
                    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                    self._of_manifest[path] = {plain(entry.data_file.file_path) for entry in entries}
                manifests.add(path)
        self._of_manifest = {path: self._of_manifest[path] for path in manifests}
        return found.union(map(plain, manifests), *self._of_manifest.values())


def plain(address: str) -> str:
    """Return an address without its scheme and leading slashes."""
    return _SCHEME.sub("", address)


def _parts(io: FileIO, partition: int, files: list[DataFile], merged_bytes: int) -> Iterator[MergePart]:
    """Yield groups of consecutive files with the same columns."""
    part: list[DataFile] = []
    size, columns = 0, None
    for file in files:
        with io.new_input(file.file_path).open() as source:
            own = pq.read_schema(source).remove_metadata()
        size += file.file_size_in_bytes
        if part and (size > merged_bytes or own != columns):
            if len(part) > 1:
                yield MergePart(partition, part)
            part, size = [], file.file_size_in_bytes
        part.append(file)
        columns = own
    if len(part) > 1:
        yield MergePart(partition, part)


def _partition_of(address: str) -> int | None:
    """Return the partition of a file of Ottla, or None: files of other writers are theirs to merge."""
    if merged := _MERGED_NAME.search(address):
        return int(merged.group(1))
    name = "/".join(address.split("/")[-2:])
    offer = offer_of(f"{FOLDER}/{name}") or offer_of_part(f"{PARTS_FOLDER}/{name}")
    return None if offer is None else offer.partition


def partitioned(catalog: Catalog, columns: pa.Schema, partition: str) -> tuple[Schema, PartitionSpec]:
    """Return the columns of a new table, and its partitioning."""
    schema = assign_fresh_schema_ids(catalog._convert_schema_if_needed(columns))
    if partition == UNPARTITIONED:
        return schema, UNPARTITIONED_PARTITION_SPEC
    source = schema.find_field(f"{KAFKA}.timestamp").field_id
    transform: Transform[Any, Any] = DayTransform() if partition == DAY else HourTransform()
    return schema, PartitionSpec(PartitionField(source, 1000, transform, f"{KAFKA}_{partition}"))


def _first_offset(file: DataFile) -> str:
    """Return the name of a file, which begins with the position that precedes its rows."""
    return str(file.file_path).rpartition("/")[2]
