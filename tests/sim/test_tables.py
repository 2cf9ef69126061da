"""Topics as tables in histories with faults, and mistakes that they must notice."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ottla.server.config.tables.topic_tables import DAY, UNPARTITIONED
from ottla.tables import committing, offers
from ottla.tables.committing import TableFollower
from ottla.tables.decisions import DecisionLog, TableDecision
from ottla.tables.offers import NOT_BEGUN, Offer, TablePosition
from ottla.tables.table import TableCommit, TableState
from ottla.tables.translating import END, CommittedSpan, Translator
from tests.effort import seeds
from tests.histories import assert_noticed, by_name, each_mistake, noticed_by
from tests.sim.table_history import History, TablesBroken, play
from tests.sim.table_model import SimStore, SimTable

#: A mistake must be noticed by one of them.
SEEDS = range(seeds(10, long=20))


def a_commit_has_no_condition(patch: pytest.MonkeyPatch) -> None:
    """An old committer's files are added after a newer one's, as a library's own retry does."""
    commit = SimTable.commit

    def anyhow(self: SimTable, state: TableState, row: TableCommit) -> None:
        commit(self, TableState(self.version, state.sequence), row)

    patch.setattr(SimTable, "commit", anyhow)


def a_position_is_an_offset_only(patch: pytest.MonkeyPatch) -> None:
    """An offer is accepted if the tables are at its offset, no matter which epoch they have there."""

    def by_offset(found: list[Offer], position: TablePosition) -> list[Offer]:
        taken: list[Offer] = []
        while best := max((each for each in found if each.after.next == position.next), default=None):
            found = [each for each in found if each is not best]
            taken.append(best)
            position = best.position
        return taken

    patch.setattr(offers, "chain", by_offset)


def the_oldest_leader_is_taken(patch: pytest.MonkeyPatch) -> None:
    """The committer accepts the offer of the oldest leader epoch if several follow one position: the position then has a past
    epoch.
    """

    def oldest(found: list[Offer], position: TablePosition) -> list[Offer]:
        best = min((each for each in found if each.after.next == position.next), default=None)
        return [best] if best is not None else []

    patch.setattr(offers, "chain", oldest)


def epochs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """After an unclean election the leader goes on at the position of the tables, and not where its log diverges from them."""
    patch.setattr(CommittedSpan, "end_of", lambda self, epoch: END)


def a_restored_cluster_counts_epochs_from_where_it_was(patch: pytest.MonkeyPatch) -> None:
    """Other records have the offsets and epochs of the lost records."""
    patch.setattr(History, "epoch_after", lambda self, kept: kept.epoch + 1)


def uncommitted_records_are_translated(patch: pytest.MonkeyPatch) -> None:
    """A leader offers all its records, and not only the committed ones; the next leader has other records there."""
    offer = Translator.offer

    def all_there_is(self: Translator, span: CommittedSpan, taken: TablePosition | None) -> Offer | None:
        log: Any = self._source
        return offer(self, span._replace(end=log.end), taken)

    patch.setattr(Translator, "offer", all_there_is)


def lost_offsets_are_not_offered(patch: pytest.MonkeyPatch) -> None:
    """Let tables wait for ever if retention was faster than they were."""
    offer = Translator.offer

    def waiting(self: Translator, span: CommittedSpan, taken: TablePosition | None) -> Offer | None:
        if taken is not None and taken.epoch != NOT_BEGUN and taken.next < span.start:
            return None
        return offer(self, span, taken)

    patch.setattr(Translator, "offer", waiting)


def a_table_forgets_its_number(patch: pytest.MonkeyPatch) -> None:
    """The number of the last decision is read from the store, and not from the table, as a stale coordinator does."""
    follow = TableFollower.follow

    def by_the_log(
        self: TableFollower, log: DecisionLog, last: TableDecision, state: TableState | None
    ) -> TableState | None:
        table: Any = self._table
        if table.version is not None and table.sequence >= last.sequence:
            table.sequence = last.sequence - 1
            state = self.load()
        return follow(self, log, last, state)

    patch.setattr(TableFollower, "follow", by_the_log)


def rejected_records_are_left_to_others(patch: pytest.MonkeyPatch) -> None:
    """A table that is created late begins with the decision after the one that created it."""
    create = SimTable.create
    patch.setattr(SimTable, "create", lambda self, sequence: create(self, sequence + 1 if sequence else 0))


def a_partition_begins_anywhere(patch: pytest.MonkeyPatch) -> None:
    """The tables begin a partition at any offer, not at the first offer of a leader that found none."""

    def anywhere(self: Any, partition: int, position: TablePosition | None, parted: str) -> list[Offer]:
        found = [offers.offer_of(each.name) for each in self._store.list(offers.folder_of(partition))]
        offered = [offer for offer in found if offer is not None and offer.suffix in (offers.SUFFIX_OF[parted], "none")]
        if position is None and offered:
            position = max(offered).after
        return offers.chain(offered, position or TablePosition(0, NOT_BEGUN))

    patch.setattr(committing.Committer, "_chain", anywhere)


def a_put_is_not_conditional(patch: pytest.MonkeyPatch) -> None:
    """The store does not know If-None-Match, and overwrites the object."""

    def anyhow(self: SimStore, name: str, data: bytes) -> bool:
        self.put(name, data)
        return True

    patch.setattr(SimStore, "put_if_absent", anyhow)


def a_sweep_takes_what_is_above_the_position(patch: pytest.MonkeyPatch) -> None:
    """A file that no version names is an orphan, even if a committer may accept it next."""
    patch.setattr(TablePosition, "is_below", lambda self, other: True)


def a_sweep_compares_offsets_only(patch: pytest.MonkeyPatch) -> None:
    """After an unclean election the tables pass the same offsets again, and an offer for them has not been passed yet."""
    patch.setattr(TablePosition, "is_below", lambda self, other: self.next < other.next)


def a_sweep_does_not_wait_for_the_tables(patch: pytest.MonkeyPatch) -> None:
    """A decision has accepted a file, and no table has repeated it yet."""
    load = SimTable.load

    def up_to_date(self: SimTable) -> TableState | None:
        state = load(self)
        caller: Any = sys._getframe(1).f_code.co_name
        return state if state is None or caller != "_orphans" else TableState(state.version, 1 << 40)

    patch.setattr(SimTable, "load", up_to_date)


def a_sweep_spares_the_last_version_only(patch: pytest.MonkeyPatch) -> None:
    """Readers of an older version miss the files that were merged since then."""
    patch.setattr(SimTable, "unnamed", lambda self, state, names, policy: names - {*self.files})


def files_of_a_format_are_deleted_without_a_commit(patch: pytest.MonkeyPatch) -> None:
    """An old merge goes on, and commits a file that was deleted."""
    patch.setattr(SimTable, "touch", lambda self, state: None)


def decisions_are_swept_with_the_last_one(patch: pytest.MonkeyPatch) -> None:
    """The positions are lost with it, and all records are taken again."""
    sweep = DecisionLog.sweep
    patch.setattr(DecisionLog, "sweep", lambda self, below, before_ms: sweep(self, below + 1, before_ms))


def rejected_records_are_never_swept(patch: pytest.MonkeyPatch) -> None:
    """Files of offers that were not accepted are orphans, too."""
    patch.setattr(offers, "offer_of_rejected", lambda name: None)


def offers_of_any_kind_are_taken(patch: pytest.MonkeyPatch) -> None:
    """A leader that believes the tables are not partitioned offers one file for several days; in the opposite case it offers a
    list of files.
    """
    chain = committing.Committer._chain

    def of_any_kind(self: Any, partition: int, position: TablePosition | None, parted: str) -> list[Offer]:
        taken = chain(self, partition, position, parted)
        return taken or chain(self, partition, position, DAY if parted == UNPARTITIONED else UNPARTITIONED)

    patch.setattr(committing.Committer, "_chain", of_any_kind)


def parts_are_never_swept(patch: pytest.MonkeyPatch) -> None:
    """The sweep leaves the files of offers that were not accepted."""
    patch.setattr(offers, "offer_of_part", lambda name: None)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_committed_record_is_in_the_tables_once(seed: int) -> None:
    play(seed)


MUTANTS = by_name(
    a_commit_has_no_condition,
    a_position_is_an_offset_only,
    the_oldest_leader_is_taken,
    epochs_are_not_compared,
    a_restored_cluster_counts_epochs_from_where_it_was,
    uncommitted_records_are_translated,
    lost_offsets_are_not_offered,
    a_table_forgets_its_number,
    rejected_records_are_left_to_others,
    a_partition_begins_anywhere,
    a_put_is_not_conditional,
    a_sweep_takes_what_is_above_the_position,
    a_sweep_compares_offsets_only,
    a_sweep_does_not_wait_for_the_tables,
    a_sweep_spares_the_last_version_only,
    files_of_a_format_are_deleted_without_a_commit,
    decisions_are_swept_with_the_last_one,
    rejected_records_are_never_swept,
    offers_of_any_kind_are_taken,
    parts_are_never_swept,
)
is_noticed = noticed_by(play, TablesBroken, MUTANTS)


@pytest.mark.parametrize("name", each_mistake(MUTANTS))
def test_a_mistake_is_noticed(name: str) -> None:
    assert_noticed("tables", name, is_noticed)
