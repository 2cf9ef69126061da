"""A table, whatever its format: the number of the last decision that it has, and one commit that adds the next one.

The rule of all formats: files and number become part of the table together or not at all, and only if the table is what it was when it
was loaded. A library's own retry would add a late writer's files behind a newer one's, and rows would be there twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

#: The namespace of all tables, which is a folder.
NAMESPACE = "ottla"


class CommitConflict(Exception):
    """Another writer has changed the table since it was loaded. Nothing of the commit has happened."""


class CommitUnknown(Exception):
    """The answer was lost: the commit has happened or not. Only the table itself can say."""


class TableRefused(Exception):
    """The table is another topic's, was dropped, or cannot be read: work on it stops until a person has looked at it."""


class Owner(NamedTuple):
    """Whose rows a table has. Another topic of this name, and a fork's, are others."""

    cluster_id: str
    topic_id: str
    topic: str

    @property
    def text(self) -> str:
        return f"topic {self.topic} (id {self.topic_id}) of cluster {self.cluster_id}"


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it was loaded. `version` is what a commit is conditional on, and means something to its format only."""

    version: Any
    #: The number of the last decision that it has.
    sequence: int


class AddedFile(NamedTuple):
    """A file that a commit adds: its name in the store, its size in bytes, its rows, and the day or hour of all of them."""

    name: str
    size: int
    rows: int
    part: int | None = None


class TableCommit(NamedTuple):
    """One commit of a table, for one decision. `summary` is for people: the positions as text."""

    sequence: int
    files: tuple[AddedFile, ...]
    summary: str
    #: The columns of the files, or None without files. The table adds those that it lacks, with the files or before them.
    schema: pa.Schema | None = None


class Table(Protocol):
    """A table of one topic, of one format, in one catalog."""

    def load(self) -> TableState | None:
        """Return its state, or None if it is not there.

        Raises:
            TableRefused: it is there, and not ours.
            CommitUnknown, StoreFailure: catalog or store has not answered.
        """

    def create(self, sequence: int) -> None:
        """Make it, unless it is there, as one that has all decisions up to this number. Raises as `load`."""

    def commit(self, state: TableState, commit: TableCommit) -> None:
        """Add the files and the number, or nothing. Raises CommitConflict, CommitUnknown, TableRefused, StoreFailure."""
