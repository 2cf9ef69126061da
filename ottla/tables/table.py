"""A table of any format: the number of its last decision, and a commit that adds the next decision.

All formats follow one rule: files and number become part of the table together or not at all, and only if the table has not
changed since it was loaded. A library's own retry would add a late writer's files after those of a newer one, and rows would
occur twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

#: The namespace of all tables. It is a folder.
NAMESPACE = "ottla"


class CommitConflict(Exception):
    """Another writer has changed the table since it was loaded. The commit has had no effect."""


class CommitUnknown(Exception):
    """The response was lost: the commit may have happened or not. Only the table itself shows that."""


class TableRefused(Exception):
    """The table belongs to another topic, was dropped, or cannot be read: work on it stops until a person has checked it."""


class Owner(NamedTuple):
    """The owner of a table's rows. Another topic with the same name, and a fork's topic, are other owners."""

    cluster_id: str
    topic_id: str
    topic: str

    @property
    def text(self) -> str:
        return f"topic {self.topic} (id {self.topic_id}) of cluster {self.cluster_id}"


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it was loaded. A commit is conditional on `version`, whose meaning depends on the format."""

    version: Any
    #: The number of its last decision.
    sequence: int


class AddedFile(NamedTuple):
    """A file that a commit adds: its name in the store, its size in bytes, its rows, and the day or hour of all of them."""

    name: str
    size: int
    rows: int
    part: int | None = None


class TableCommit(NamedTuple):
    """One commit of a table, for one decision. `summary` is for people: it has the positions as text."""

    sequence: int
    files: tuple[AddedFile, ...]
    summary: str
    #: The columns of the files, or None without files. The table adds the columns that it lacks, with the files or before them.
    schema: pa.Schema | None = None


class Table(Protocol):
    """A table of one topic in one format and one catalog."""

    def load(self) -> TableState | None:
        """Return its state, or None if it does not exist.

        Raises:
            TableRefused: it exists, but belongs to something else.
            CommitUnknown, StoreFailure: catalog or store has not answered.
        """

    def create(self, sequence: int) -> None:
        """Create it, unless it exists, as a table that has all decisions up to this number. Raises as `load`."""

    def commit(self, state: TableState, commit: TableCommit) -> None:
        """Add the files and the number, or nothing. Raises CommitConflict, CommitUnknown, TableRefused, StoreFailure."""
