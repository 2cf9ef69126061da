"""The maintenance of an Iceberg table: merging of small files, expiry of snapshots, and which files its snapshots name.

pyiceberg has neither compaction nor a removal of orphans. A merge is one commit that takes files out and puts their rows back in one file;
it is conditional on the snapshot whose files were read, as each commit is, so that a committer and a merge never meet in one version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction

from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.offers import FOLDER, offer_of
from ottla.tables.segment_source import parquet_writer
from ottla.tables.table_location import MERGED

_SCHEME = re.compile(r"^[a-z0-9+.-]+:/*|^/+")
_MERGED_NAME = re.compile(rf"/{MERGED}/(\d{{5}})/[0-9_]+_[0-9a-f]{{32}}\.parquet$")


class MergePart(NamedTuple):
    """Files of one partition that become one, in the order of their offsets."""

    partition: int
    files: list[DataFile]


def parts_to_merge(table: Table, policy: MaintenancePolicy) -> list[MergePart]:
    """Return the parts of our own files that are small, of each partition that has too many of them."""
    small: dict[int, list[DataFile]] = {}
    schemas: dict[str, pa.Schema] = {}
    for task in table.scan().plan_files():
        partition = _partition_of(task.file.file_path)
        if partition is not None and not task.delete_files and task.file.file_size_in_bytes < policy.small_bytes:
            small.setdefault(partition, []).append(task.file)
    parts: list[MergePart] = []
    for partition, files in sorted(small.items()):
        if len(files) > policy.small_files_max:
            files.sort(key=lambda file: _stem(file.file_path))
            for file in files:
                with table.io.new_input(file.file_path).open() as source:
                    schemas[file.file_path] = pq.read_schema(source).remove_metadata()
            parts += _parts(partition, files, schemas, policy.merged_bytes)
    return parts


def merged_file(io: FileIO, location: str, part: MergePart) -> str:
    """Write the rows of a part into one file, a row group at a time; return its address."""
    first = _stem(part.files[0].file_path).split("_")[0]
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


def replace(transaction: Transaction, summary: dict[str, str], gone: list[DataFile], made: list[DataFile]) -> None:
    """Take files out of the table and put others in, in one snapshot."""
    with transaction.update_snapshot(summary).overwrite() as snapshot:
        for file in gone:
            snapshot.delete_data_file(file)
        for file in made:
            snapshot.append_data_file(file)


def expired_snapshots(table: Table, policy: MaintenancePolicy, now_ms: int) -> list[int]:
    """Return the snapshots that no reader begins with any more: never the current one, nor those of tags and branches."""
    kept = {each.snapshot_id for each in table.metadata.refs.values()}
    newest = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True)
    old = [*newest[policy.versions_max :]]
    old += [each for each in newest[: policy.versions_max] if each.timestamp_ms <= now_ms - policy.age_ms]
    return [each.snapshot_id for each in old if each.snapshot_id not in kept]


class NamedFiles:
    """The files that a table's snapshots name, without the schemes of their addresses: Spark writes `file:/` and `s3a://`.

    What a manifest names never changes, so each is read once.
    """

    def __init__(self) -> None:
        self._of_manifest: dict[str, set[str]] = {}

    def of(self, table: Table) -> set[str]:
        """Return manifest lists, manifests, files of rows and of deletes. Raises what pyiceberg raises if one is not there."""
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


def _parts(
    partition: int, files: list[DataFile], schemas: dict[str, pa.Schema], merged_bytes: int
) -> Iterator[MergePart]:
    """Yield files that follow each other and have the same columns."""
    part: list[DataFile] = []
    for file in files:
        size = sum(each.file_size_in_bytes for each in part) + file.file_size_in_bytes
        if part and (size > merged_bytes or schemas[part[0].file_path] != schemas[file.file_path]):
            yield from [MergePart(partition, part)] * (len(part) > 1)
            part = []
        part.append(file)
    yield from [MergePart(partition, part)] * (len(part) > 1)


def _partition_of(address: str) -> int | None:
    """Return the partition of a file of ours, or None: what others have written is theirs to merge."""
    if merged := _MERGED_NAME.search(address):
        return int(merged.group(1))
    offer = offer_of("/".join([FOLDER, *address.split("/")[-2:]]))
    return None if offer is None else offer.partition


def _stem(address: str) -> str:
    return address.rpartition("/")[2]
