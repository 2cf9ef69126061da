"""Seeded histories of one compacted log: they are like those of `storage_history`, but the log cleaner runs most of the time."""

from __future__ import annotations

from tests.sim.storage_history import StorageHistory


class CleanerHistory(StorageHistory):
    names = (("compacted",),)
    operations = (
        ("append", 50),
        ("repeat", 4),
        ("elect", 2),
        ("roll", 5),
        ("flush", 3),
        ("flush_beside", 2),
        ("advance", 12),
        ("truncate", 4),
        ("truncate_fully", 1),
        ("retain", 3),
        ("delete_records", 3),
        ("compact", 16),
        ("outgrow", 8),
        ("snapshot", 2),
        ("write_recovery_points", 3),
        ("write_high_watermarks", 3),
        ("remove_deleted", 2),
        ("recreate", 2),
    )
