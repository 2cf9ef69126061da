"""The histories find bugs: known mistakes are put back in at run time, and each must be caught within some seeds.

A mutant that lives means that the histories, or what they look at, have become too tame.
"""

from __future__ import annotations

import pytest

from storage import changes, checkpoint, recovery, replay
from storage.epochs import LeaderEpochs
from storage.log import Log
from storage.logs import Logs
from storage.producers import ProducerState
from storage.segment import Segment
from storage.txn_index import TransactionIndex
from tests.sim.disk import Killed
from tests.sim.storage_history import StorageHistory

SEEDS_MAX = 2000


class EqualToAll:
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def nothing(*args: object, **kwargs: object) -> None:
    return None


def raise_without_limit(log: Log, offset: int) -> bool:
    raised, log.high_watermark = offset > log.high_watermark, max(offset, log.high_watermark)
    return raised


def write_without_sync(files: object, path: str, offsets: dict[tuple[str, int], int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    checkpoint.write_lines(files, path, lines, sync=False)  # type: ignore[arg-type]


def erase_without_sync(segment: Segment, end: int, end_offset: int) -> None:
    segment._zero(segment.size, end)
    segment.txn_index.truncate_to(segment._files, end_offset)
    segment.indexes.save()


def close_and_claim_success(log: Log, clean: bool = True) -> bool:
    changes.close(log, clean)
    return True


def remember_last_batch_only(state: ProducerState, epoch: int, first: int, last: int) -> None:
    return None


ALWAYS = property(lambda self: True, lambda self, value: None)
NEVER_FAILED = property(lambda self: None, lambda self, value: None)

#: the mistake, where it is put, and what is there instead
MUTANTS: dict[str, tuple[object, str, object]] = {
    "the directory of a new partition is not synced": (Log, "entry_synced", ALWAYS),
    "recovery trusts a torn batch": (recovery, "crc32c", lambda data: EqualToAll()),
    "checkpoints are written without fsync": (checkpoint, "write_offsets", write_without_sync),
    "producer snapshots stay after a truncation": (replay, "remove_snapshot", nothing),
    "the dedupe window is zero": (ProducerState, "duplicate_of", remember_last_batch_only),
    "the high watermark may be ahead of the log": (Log, "advance_high_watermark", raise_without_limit),
    "a flush syncs no log": (Segment, "sync_log", nothing),
    "a flush syncs no epochs": (LeaderEpochs, "flush", nothing),
    "a truncation is not synced": (Segment, "erase", erase_without_sync),
    "a truncation leaves the checkpoints as they are": (Logs, "_lower_checkpoints", nothing),
    "a restart leaves checkpoints beyond the log's end": (Logs, "_lower_to_ends", nothing),
    "a new topic inherits a deleted one's checkpoints": (Logs, "_forget_checkpoints", nothing),
    "the topic id is not synced": (changes, "sync_topic_id", nothing),
    "transaction indexes keep what was truncated": (TransactionIndex, "truncate_to", nothing),
    "aborted transactions are not listed again": (TransactionIndex, "append_if_missing", nothing),
    "every stop claims to be clean": (Log, "close", close_and_claim_success),
    "a failed log takes writes": (Log, "failure", NEVER_FAILED),
    "a truncation cut short is built upon": (Segment, "settle_tail", nothing),
    "what a failed fsync left is taken for written": (Segment, "rewrite", nothing),
    "log starts are not written down": (Logs, "write_log_starts", nothing),
}


def caught_at(seeds: range) -> int | None:
    """The first seed in whose history something is not as it must be."""
    for seed in seeds:
        try:
            StorageHistory(seed).run()
        except (AssertionError, pytest.fail.Exception):
            return seed
        except (Exception, Killed):
            continue  # of the mutant's own: proves nothing
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, instead = MUTANTS[name]
    monkeypatch.setattr(target, attribute, instead, raising=False)  # some are attributes of instances
    assert caught_at(range(SEEDS_MAX)) is not None, f"no history noticed that {name}"


def test_without_a_mutant_the_same_seeds_pass() -> None:
    assert caught_at(range(40)) is None
