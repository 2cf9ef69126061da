"""The tables of a location, read from the store: the topics that have one, the format, and the newest metadata and decision of
each.

It needs only listings and JSON, and no library of a format, because a catalog with hundreds of tables, and a page that shows
them, read often. Anyone with write access to the store may have put anything there: names that no topic can have are skipped,
and each object is read only up to a bound.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from ottla.server.config.tables.topic_tables import DELTA, FORMATS, ICEBERG, PARQUET, REJECTED_SUFFIX
from ottla.tables.decisions import FOLDER as DECISIONS
from ottla.tables.decisions import newest_of
from ottla.tables.directory_store import DirectoryStore
from ottla.tables.offers import REJECTED_FOLDER
from ottla.tables.store import Store, StoreFailure, StoreRefused
from ottla.tables.table import NAMESPACE

#: At most this many topics are read, in the order of their names.
TOPICS_MAX = 10_000
#: Longer metadata of a table is not read: pyiceberg's has about 1 KB for each snapshot.
METADATA_BYTES_MAX = 64 * 1024 * 1024
#: A longer decision is not read: it has about 150 bytes for the name of each file.
DECISION_BYTES_MAX = 16 * 1024 * 1024
#: A folder that only this format has.
METADATA = "metadata"
HINT = f"{METADATA}/version-hint.text"
FOLDER_OF = {ICEBERG: METADATA, DELTA: "_delta_log", PARQUET: "published"}
#: Iceberg's merged files. Below it there is one folder for each partition, as for offers, but listings of offers do not include
#: it.
MERGED = "merged"
#: The folder of Parquet's rejected records, inside the topic's folder.
PARQUET_REJECTED = "rejected_rows"
#: obstore's names of S3 options, and pyiceberg's.
ICEBERG_OPTIONS = {
    "endpoint": "s3.endpoint",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
}
_NAME = re.compile(rf"(?!\.{{1,2}}$)[a-zA-Z0-9._-]{{1,249}}(?:{REJECTED_SUFFIX})?")


class StoredMetadata(NamedTuple):
    """Iceberg's metadata of a table in the store: its version, its address, and its contents."""

    version: int
    url: str
    body: dict[str, Any]


class LastDecision(NamedTuple):
    """The newest decision about a topic's tables: the time of its object, and its contents."""

    sequence: int
    modified_ms: int
    body: dict[str, Any]


class TablePlace(NamedTuple):
    """A table in a store: its name, the topic whose rows or rejected records it has, its format, and its folder."""

    name: str
    topic: str
    format: str
    folder: str


class TableLocation:
    """The tables below the address of a store. All calls block, and raise StoreFailure."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._iceberg: set[str] = set()

    def topics(self) -> list[str]:
        """Return the names of topics with a table, and those of Iceberg's tables of rejected records."""
        return list(islice(filter(_NAME.fullmatch, self.store.folders(NAMESPACE)), TOPICS_MAX))

    def places(self, topic: str) -> list[TablePlace]:
        """Return the tables in the folder of a topic: usually one, and the table of rejected records if the format has it
        there.
        """
        folder = place_of(topic)
        inside = set(self.store.folders(folder)) if _NAME.fullmatch(topic) else set[str]()
        owner = topic.removesuffix(REJECTED_SUFFIX)
        found = [TablePlace(topic, owner, each, folder) for each in FORMATS if FOLDER_OF[each] in inside]
        rejected = f"{topic}{REJECTED_SUFFIX}"
        if FOLDER_OF[DELTA] in inside and FOLDER_OF[DELTA] in self.store.folders(f"{folder}/{REJECTED_FOLDER}"):
            found.append(TablePlace(rejected, topic, DELTA, f"{folder}/{REJECTED_FOLDER}"))
        if PARQUET_REJECTED in inside:
            found.append(TablePlace(rejected, topic, PARQUET, f"{folder}/{PARQUET_REJECTED}"))
        return found

    def place(self, name: str) -> TablePlace | None:
        """Return a table by its name, or None if there is none."""
        around = dict.fromkeys((name, name.removesuffix(REJECTED_SUFFIX)))
        return next((found for each in around for found in self.places(each) if found.name == name), None)

    def iceberg_tables(self) -> list[str]:
        """Return the names of Iceberg's tables."""
        topics = self.topics()
        # The folder of each topic is listed once: a table does not change its format as long as its folder exists.
        self._iceberg.intersection_update(topics)
        unknown = [name for name in topics if name not in self._iceberg]
        self._iceberg.update(name for name in unknown if any(each.format == ICEBERG for each in self.places(name)))
        return sorted(self._iceberg)

    def metadata_version(self, table: str) -> int | None:
        """Return the newest version of an Iceberg table's metadata, or None if there is no such table."""
        return newest_version(self.store, place_of(table)) if _NAME.fullmatch(table) else None

    def metadata(self, table: str, version: int | None = None) -> StoredMetadata | None:
        """Return the metadata of an Iceberg table, by default of the newest version; None if there is no such table."""
        version = self.metadata_version(table) if version is None else version
        if version is None:
            return None
        name = metadata_file(place_of(table), version)
        body = self._object(name, METADATA_BYTES_MAX)
        return None if body is None else StoredMetadata(version, f"{self.store.url}/{name}", body)

    def last_decision(self, topic: str) -> LastDecision | None:
        """Return the newest decision about a topic's tables, or None."""
        newest = newest_of(self.store.list(f"{place_of(topic)}/{DECISIONS}"))
        if newest is None:
            return None
        sequence, found = newest
        body = self._object(found.name, DECISION_BYTES_MAX)
        return None if body is None else LastDecision(sequence, found.modified_ms, body)

    def _object(self, name: str, bytes_max: int) -> dict[str, Any] | None:
        """Return the JSON in an object, or None if it does not exist. Raises StoreFailure, also if it is no JSON or too long."""
        size = self.store.size(name)
        if size is None:
            return None
        if size > bytes_max:
            raise StoreFailure(f"{name} has {size} bytes, and {bytes_max} are read at most")
        try:
            found = json.loads(bytes(self.store.get_range(name, 0, size)))
        except (ValueError, RecursionError) as fault:
            raise StoreFailure(f"{name} is no JSON: {fault!r:.200}") from fault
        if not isinstance(found, dict):
            raise StoreFailure(f"{name} is no object of JSON")
        return found


def open_store(location: str, options: dict[str, str]) -> Store:
    """Return the store at an address. Raises StoreRefused for a wrong address."""
    scheme, separator, path = location.partition("://")
    if wrong := next(
        (each for each in "?#%" if each in location), None
    ):  # delta-rs takes `%20` as a blank, also in a path
        raise StoreRefused(
            f"{location}: tables cannot lie where {wrong!r} is in the name, which their readers take apart"
        )
    if not separator:
        return DirectoryStore(location)
    if scheme == "file":
        return DirectoryStore(path)
    from ottla.tables.object_store import ObjectStore

    return ObjectStore(location, options)


def iceberg_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a store under the names that Iceberg's clients use."""
    return {ICEBERG_OPTIONS[name]: value for name, value in options.items() if name in ICEBERG_OPTIONS}


def delta_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a store under the names that delta-rs uses."""
    return {f"aws_{name}" if name in ICEBERG_OPTIONS else name: value for name, value in options.items()} | (
        {"aws_allow_http": "true"} if options.get("endpoint", "").startswith("http://") else {}
    )


def metadata_file(place: str, version: int) -> str:
    """Return the version in the file name of an Iceberg table's metadata, as in Hadoop's tables."""
    return f"{place}/{METADATA}/v{version}.metadata.json"


def newest_version(store: Store, place: str) -> int | None:
    """Return the newest version of the Iceberg table at this place, or None if there is no table.

    It is found by a listing, never by the hint: a killed writer has not written the hint, and a writer that was cut off for
    hours may have set it back.

    Raises:
        StoreFailure: the store does not answer.
    """
    # Manifests have hexadecimal names, or names that begin with "snap": after these in the listing there are only versions and
    # the hint.
    listed = store.list(f"{place}/{METADATA}", f"{place}/{METADATA}/v")
    return max((found for each in listed if (found := version_of(each.name)) is not None), default=None)


def version_of(name: str) -> int | None:
    """Return the version number in a file's name, or None for another file."""
    file = name.rpartition("/")[2]
    number = file.removeprefix("v").removesuffix(".metadata.json")
    is_ours = number.isascii() and number.isdecimal() and file == f"v{number}.metadata.json"
    return int(number) if is_ours else None


def is_name(topic: str) -> bool:
    """Return whether a topic, or a table of rejected records, may have this name."""
    return _NAME.fullmatch(topic) is not None


def place_of(topic: str) -> str:
    return f"{NAMESPACE}/{topic}"
