"""The translator of a partition's leader: the offset at which it continues, and the files that it offers.

It needs only the store and its own log.

The node passes the committed part of its log (`CommittedSpan`); the position of the tables is in the store. Offers that have
not been taken yet are remembered, so that with a slow committer nothing is translated twice. A new leader remembers none, and
translates at most these again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.tables.offers import LOST, NO_ROWS, NOT_BEGUN, PARQUET, Offer, TablePosition
from ottla.tables.store import Store
from ottla.tables.table import CommitConflict, TableRefused

#: An offset behind all others.
END = (1 << 63) - 1


class EpochStart(NamedTuple):
    """An entry of the leader's epoch cache."""

    epoch: int
    start: int


class CommittedSpan(NamedTuple):
    """The committed records of a leader's log: [start, end). `end` is its last stable offset."""

    partition: int
    leader_epoch: int
    start: int
    end: int
    epochs: tuple[EpochStart, ...]

    def end_of(self, epoch: int) -> int:
        """Return the end of the records of this epoch and earlier ones in this log, if others follow (as OffsetForLeaderEpoch,
        KIP-320).

        A leader adds its own epoch before it accepts records. Records that are not committed here may be committed
        nevertheless, because a new leader learns the high watermark late.
        """
        return next((each.start for each in self.epochs if each.epoch > epoch), END)


class TranslatedPart(NamedTuple):
    """The bytes of the rows of the day or hour with this number."""

    value: int
    data: bytes


class Translated(NamedTuple):
    """A file's bytes and rows, those of the rejected records, and the offset behind them.

    Without bytes there is no file of rejected records. In a partitioned table the bytes are the list of the files in `parts`.
    """

    next: int
    rows: int
    data: bytes
    rejected: int
    rejected_data: bytes
    suffix: str = PARQUET
    parts: tuple[TranslatedPart, ...] = ()


class FileSource(Protocol):
    """A partition's records as files."""

    def translate(self, first: int, end: int) -> Translated:
        """Translate from an offset on, up to `end` or to the limits of one file."""


class Translator:
    """Offers the records of one partition, for one leader epoch."""

    def __init__(
        self, store: Store, source: FileSource, partition: int, leader_epoch: int, new_uid: Callable[[], str]
    ) -> None:
        """Take `new_uid`, which returns 32 hexadecimal digits that no other file ever gets."""
        self._store = store
        self._source = source
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._new_uid = new_uid
        #: The offers that have not been taken, in the order of the offsets.
        self._pending: list[Offer] = []
        #: The number of records that were left out.
        self.left_out = 0

    def offer(self, span: CommittedSpan, taken: TablePosition | None) -> Offer | None:
        """Write the next file. Return None if there is nothing to offer. `taken` is the position of the tables.

        Raises:
            StoreFailure: the file may exist or not; the next call writes another one.
            CommitConflict: there is a newer leader, or the log was restored, and its leader epochs are lower again.
            TableRefused: the log was restored, and lacks records of this leader epoch that the tables have.
        """
        assert span.leader_epoch == self._leader_epoch and span.partition == self._partition
        if taken is not None:
            self._check(span, taken)
        after = self._position(taken)
        if after is None:
            after = TablePosition(span.start, NOT_BEGUN)
        first = after.next if after.epoch == NOT_BEGUN else min(after.next, span.end_of(after.epoch))
        if first < span.start:
            return self._written(self._made(after, first, span.start, LOST))
        if first >= span.end:
            return None
        found = self._source.translate(first, span.end)
        suffix = found.suffix if found.rows else NO_ROWS
        rejected = found.rejected if found.rejected_data else 0
        offer = self._made(after, first, found.next, suffix, found.rows, rejected)
        if rejected:
            self._store.put(offer.rejected_name, found.rejected_data)
        for part in found.parts:
            self._store.put(offer.part_name(part.value), part.data)
        written = self._written(offer, found.data)
        self.left_out += found.rejected - rejected
        return written

    def _check(self, span: CommittedSpan, taken: TablePosition) -> None:
        if taken.epoch > span.leader_epoch:
            raise CommitConflict(
                f"the tables have partition {span.partition} from leader epoch {taken.epoch}, and this leader's is {span.leader_epoch}: "
                "there is a newer one, or else the cluster was restored, and `ottla table rebuild` makes the table again"
            )
        if taken.epoch == span.leader_epoch and taken.next > span.end:
            raise TableRefused(
                f"the tables have partition {span.partition} up to offset {taken.next} of leader epoch {taken.epoch}, and its log ends "
                f"at {span.end}: the cluster was restored, and `ottla table rebuild` makes the table again"
            )

    def _position(self, taken: TablePosition | None) -> TablePosition | None:
        """Return the position that the next offer follows: behind the last own offer that may still be taken, or the position
        of the tables.
        """
        pending = self._pending
        for index, offer in enumerate(pending):
            if offer.position == taken:
                self._pending = pending[index + 1 :]
                break
        else:
            if pending and taken is not None and pending[0].after != taken:
                self._pending = []  # an offer of another leader was taken
        return self._pending[-1].position if self._pending else taken

    def _made(self, after: TablePosition, first: int, end: int, suffix: str, rows: int = 0, rejected: int = 0) -> Offer:
        uid = self._new_uid()
        return Offer(self._partition, after, first, end, self._leader_epoch, rows, rejected, uid, suffix)

    def _written(self, offer: Offer, data: bytes = b"") -> Offer:
        self._store.put(offer.name, data)
        self._pending.append(offer)
        return offer
