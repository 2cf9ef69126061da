"""Histories for one kind of mistake each: they consist of the operations and faults that show it, and of few others.

`StorageHistory` does the same operations at random, and its checks are used here. After the history with all operations, a seed
plays one of these, which its number selects (`storage_histories_of`, `cleaner_histories_of`). One in three of them has a few
other operations, too.
"""

from __future__ import annotations

import random

import pytest

from ottla.storage.log_config import LogConfig
from tests.sim.cleaner_history import CleanerHistory
from tests.sim.storage_history import OPERATIONS, StorageHistory


class HardStops(StorageHistory):
    """Every life ends with a stop on a full disk, and then the power fails."""

    stops, power_losses = 1.0, 1.0
    stop_faults = (("none", 20), ("full", 60), ("failure", 20))
    faults = (("none", 1),)
    operations = (("append", 60), ("flush", 5), ("roll", 5), ("advance", 10))


class CutShort(StorageHistory):
    """Truncations in which the process dies, batches of the same size in place of the old ones, and the power goes.

    Batches fill a sector each: what a torn page keeps of the old log looks like the new one's end.
    """

    power_losses = 0.5
    names = (("logs",),)
    faults = (("none", 40), ("kill", 60))
    operations = (("append", 50), ("flush", 10), ("truncate", 30))

    def __init__(self, seed: int, lives: int = 25, steps: int = 20) -> None:
        super().__init__(seed, lives, steps)
        self.ops.batch_bytes = 512
        self.stops = 0.0


class FailedSyncs(StorageHistory):
    """A sync fails, and from then on its data counts as written; the next process syncs, and the power fails."""

    power_losses, stops = 0.5, 0.0
    names = (("logs",),)
    faults = (("none", 75), ("failure", 25))
    operations = (("append", 60), ("flush", 20))

    def __init__(self, seed: int, lives: int = 10, steps: int = 20) -> None:
        super().__init__(seed, lives, steps)
        self.ops.batch_bytes = 2048
        self.config = LogConfig(segment_bytes=100_000)


class CheckpointsBeside(StorageHistory):
    """Truncations after unclean elections, below the high watermark, while another thread writes the checkpoints."""

    power_losses, stops = 0.3, 0.0
    names = (("logs",),)
    faults = (("none", 90), ("kill", 10))
    operations = (("append", 50), ("advance", 20), ("flush", 5), ("cut_beside", 25))

    def __init__(self, seed: int, lives: int = 10, steps: int = 20) -> None:
        super().__init__(seed, lives, steps)
        self.ops.unclean = 0.8


class ShortenedLogs(StorageHistory):
    """Checkpoints of records that a power loss then removes, and other records in their place before the next restart."""

    power_losses, stops = 0.6, 0.0
    names = (("logs",), ("compacted",))
    faults = (("none", 1),)
    operations = (("append", 50), ("advance", 25), ("write_high_watermarks", 20), ("flush", 3))

    def __init__(self, seed: int, lives: int = 10, steps: int = 15) -> None:
        super().__init__(seed, lives, steps)


class DamagedStops(StorageHistory):
    """Every life ends with a clean stop, and a check of damaged copies of its many segments."""

    longer = 2  # each stop is looked at four times
    stops, damages = 1.0, (4,)
    stop_faults = faults = (("none", 1),)
    names = (("logs",),)
    operations = (("append", 70), ("roll", 5), ("flush", 5), ("advance", 10))


class FrozenProducers(StorageHistory):
    """Snapshots that flushes write, as for partitions with thousands of producers."""

    operations = (
        ("append", 50),
        ("flush", 10),
        ("roll", 5),
        ("advance", 10),
        ("truncate", 8),
        ("snapshot", 8),
        ("flush_beside", 8),
    )

    def run(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ottla.storage.producers.producer_snapshots.PRODUCERS_AT_ONCE", 0)
            super().run()


class FlushedEpochs(StorageHistory):
    """Elections, flushes with their checkpoints, and power losses."""

    power_losses, stops = 1.0, 0.0
    faults = (("none", 1),)
    operations = (("append", 40), ("elect", 20), ("flush", 20), ("write_recovery_points", 15))


class SwapsCutShort(CleanerHistory):
    """Passes of the log cleaner in which the process dies."""

    faults = (("none", 60), ("kill", 40))
    operations = (("append", 40), ("advance", 15), ("roll", 8), ("compact", 30))


class TruncatedSnapshots(FrozenProducers):
    """The log is truncated while a flush writes the snapshot of its former state."""

    beside = ("truncate", "truncate", "append", "roll", "append")
    operations = (("append", 45), ("flush_beside", 30), ("roll", 12), ("advance", 5), ("truncate", 5))


class LoweredCheckpoints(StorageHistory):
    """Checkpoints, truncations below them, and other records in the place of the old ones."""

    stops = 0.1
    names = (("logs",),)
    faults = (("none", 1),)
    operations = (
        ("append", 50),
        ("advance", 12),
        ("flush", 8),
        ("write_recovery_points", 12),
        ("write_high_watermarks", 8),
        ("truncate", 12),
    )

    def __init__(self, seed: int, lives: int = 10, steps: int = 30) -> None:
        super().__init__(seed, lives, steps)
        self.ops.unclean = 0.6


class DelayedMetadata(StorageHistory):
    """Responses that the network has not sent yet, while the log under them is truncated, rolled and replaced."""

    faults = (("none", 1),)
    operations = (("append", 50), ("hold", 25), ("roll", 8), ("truncate", 12), ("truncate_fully", 4), ("recreate", 2))


DIRECTED: tuple[type[StorageHistory], ...] = (
    HardStops,
    CutShort,
    FailedSyncs,
    CheckpointsBeside,
    ShortenedLogs,
    DamagedStops,
    DamagedStops,
    FrozenProducers,
    FlushedEpochs,
    TruncatedSnapshots,
    LoweredCheckpoints,
    DelayedMetadata,
)
#: In how many histories other operations take place, too, and how many kinds of them.
MIXED_SHARE, MIXED_OPERATIONS = 1 / 3, 3


def storage_histories_of(seed: int) -> list[StorageHistory]:
    return [StorageHistory(seed), _directed(DIRECTED[seed % len(DIRECTED)], seed)]


def cleaner_histories_of(seed: int) -> list[StorageHistory]:
    return [CleanerHistory(seed) if seed % 4 else _directed(SwapsCutShort, seed)]


def _directed(kind: type[StorageHistory], seed: int) -> StorageHistory:
    history = kind(seed)
    history.lives *= history.longer
    chance = random.Random(f"mixed {seed}")
    if chance.random() < MIXED_SHARE:
        known = {name for name, _ in history.operations}
        others = [(name, weight) for name, weight in OPERATIONS if name not in known]
        history.operations += tuple(chance.sample(others, MIXED_OPERATIONS))
    return history


def run_histories(seed: int) -> list[StorageHistory]:
    """Runs the histories of a seed; a failure names the command that replays them, and the last events."""
    histories = storage_histories_of(seed)
    for history in histories:
        try:
            history.run()
        except BaseException as failure:
            failure.add_note(
                f"replay: OTTLA_SIM_SEED={seed} python -m pytest -q tests/sim/test_storage_crashes.py\n"
                + "\n".join([type(history).__name__, *history.trace[-25:]])
            )
            raise
    return histories
