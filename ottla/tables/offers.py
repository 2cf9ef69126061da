"""Offers: the files into which partition leaders have translated records, and the order in which tables may take them.

A leader writes the committed records of [first, next) into one file. The file's name has these offsets, and the position of the
tables that it follows: the file is the offer. Nothing else has to be sent or stored. Several leaders may offer the same
offsets, an old one and a new one, and a leader may offer them again after a restart. A file is taken only if it follows exactly
the present position of the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.server.config.tables.topic_tables import DAY, HOUR, UNPARTITIONED

#: Below these folders of a topic's place there is one folder for each partition. VACUUM and Spark's remove_orphan_files, run on
#: the table of rows, delete after some days files that the table does not name, unless their names begin with an underscore:
#: the other table, and the decisions.
FOLDER, REJECTED_FOLDER = "data", "_rejected"
#: The folder for the parts of partitioned offers.
PARTS_FOLDER = "parts"
#: Kinds of files: rows; records without rows (aborted, or rejected); offsets that the log had lost before they were translated.
PARQUET, NO_ROWS, LOST = "parquet", "none", "lost"
#: Rows in one file, or a list of files for each day or hour.
SUFFIX_OF = {UNPARTITIONED: PARQUET, DAY: DAY, HOUR: HOUR}

#: The epoch in the position before any leader has offered: the start of a log.
NOT_BEGUN = -1


class TablePosition(NamedTuple):
    """The position of the tables in one partition: the next offset, and the epoch of the leader that translated the last file.

    It only grows: by the epoch, and within an epoch by the offset, because a leader never goes back. An offer that follows a
    lower position is never taken.
    """

    next: int
    epoch: int

    def is_below(self, other: TablePosition) -> bool:
        return (self.epoch, self.next) < (other.epoch, other.next)


class Offer(NamedTuple):
    """A file of one partition, which follows exactly the position `after` of the tables.

    `first` is usually the offset of that position. After an unclean election a leader's log may differ from the tables at an
    earlier offset: then the leader continues from there, and the tables pass the same offsets twice. Therefore the position has
    the epoch, too.
    """

    partition: int
    after: TablePosition
    first: int
    next: int
    epoch: int
    rows: int
    #: The number of records that did not fit the columns. They are in another file, which was written before this one.
    rejected: int
    uid: str
    suffix: str

    @property
    def name(self) -> str:
        return f"{folder_of(self.partition)}/{self._stem}.{self.suffix}"

    @property
    def rejected_name(self) -> str:
        return f"{REJECTED_FOLDER}/{self.partition:05}/{self._stem}.{PARQUET}"

    def part_name(self, value: int) -> str:
        """Return the name of the file with the rows of the day or hour with this number."""
        return f"{PARTS_FOLDER}/{self.partition:05}/{self._stem}_{value}.{PARQUET}"

    @property
    def position(self) -> TablePosition:
        return TablePosition(self.next, self.epoch)

    @property
    def lost(self) -> int:
        return self.next - self.first if self.suffix == LOST else 0

    @property
    def parted(self) -> int:
        """Return how many offsets the tables have from another log than that of this leader."""
        return self.after.next - self.first

    @property
    def _stem(self) -> str:
        numbers = f"{self.first:020}_{self.next:020}_{self.epoch}_{self.rows}_{self.rejected}"
        return f"{self.after.next:020}_{self.after.epoch}_{numbers}_{self.uid}"


def folder_of(partition: int) -> str:
    return f"{FOLDER}/{partition:05}"


def names_after(partition: int, position: int) -> str:
    """Return a name that sorts before the names of all offers after this position and later ones."""
    return f"{folder_of(partition)}/{position:020}"


def offer_of(name: str) -> Offer | None:
    """Return the offer with this name, or None for another file: anyone may have put it there."""
    folder, _, file = name.rpartition("/")
    stem, _, suffix = file.rpartition(".")
    *texts, uid = stem.split("_")
    try:
        after, after_epoch, first, next_, epoch, rows, rejected = map(int, texts)
        partition, position = int(folder.rpartition("/")[2]), TablePosition(after, after_epoch)
        found = Offer(partition, position, first, next_, epoch, rows, rejected, f"{int(uid, 16):032x}", suffix)
    except ValueError:
        return None
    is_sound = (
        first <= after
        and first < next_
        and (rows > 0) == (suffix in SUFFIX_OF.values())
        and position.is_below(found.position)
    )
    return found if is_sound and found.name == name and suffix in (*SUFFIX_OF.values(), NO_ROWS, LOST) else None


def offer_of_rejected(name: str) -> Offer | None:
    """Return the offer whose rejected records are in the file with this name, or None."""
    folder, _, file = name.rpartition("/")
    stem = f"{FOLDER}/{folder.rpartition('/')[2]}/{file.rpartition('.')[0]}"
    found = (offer_of(f"{stem}.{suffix}") for suffix in (PARQUET, NO_ROWS))
    return next((offer for offer in found if offer is not None and offer.rejected_name == name), None)


def offer_of_part(name: str) -> Offer | None:
    """Return the offer that has the file with this name as one of its parts, or None."""
    folder, _, file = name.rpartition("/")
    stem, _, value = file.removesuffix(f".{PARQUET}").rpartition("_")
    offer = offer_of(f"{FOLDER}/{folder.rpartition('/')[2]}/{stem}.{DAY}")
    try:
        return offer if offer is not None and offer.part_name(int(value)) == name else None
    except ValueError:
        return None


def chain(offers: Iterable[Offer], position: TablePosition) -> list[Offer]:
    """Return consecutive files from the position on.

    If several follow the same position, the one of the newest leader is taken, and of one leader's files the longest. The rows
    below a last stable offset are the same for all leaders, so an old leader's file is right, too; after an unclean election
    only the newest leader's files are right.
    """
    by_position: dict[TablePosition, list[Offer]] = {}
    for offer in offers:
        by_position.setdefault(offer.after, []).append(offer)
    taken: list[Offer] = []
    while found := by_position.pop(position, None):
        best = max(found, key=lambda offer: (offer.epoch, offer.next, offer.uid))
        taken.append(best)
        position = best.position
    return taken
