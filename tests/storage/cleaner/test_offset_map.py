"""The map of last offsets that a pass of the log cleaner fills."""

from __future__ import annotations

from ottla.storage.cleaner.cleaner_filter import GONE, LOAD_FACTOR_MAX, SLOT_BYTES, TOMBSTONE, VALUE, OffsetMap


def test_only_the_last_record_of_a_key_is_kept_by_its_ordinal() -> None:
    offsets = OffsetMap(100, 4, memory_bytes=1 << 16)
    offsets.put_all({b"a": 0 << 1, b"b": 1 << 1})
    offsets.put_all({b"a": 2 << 1, b"c": (3 << 1) + 1})
    assert [*offsets.kinds[:4]] == [GONE, VALUE, VALUE, TOMBSTONE]
    assert b"a" in offsets and b"c" in offsets and b"d" not in offsets
    assert offsets.keys == 3


def test_a_full_map_leaves_slots_free_whatever_load_factor_is_configured() -> None:
    slots = 1000
    memory_bytes = slots * SLOT_BYTES + 5000
    offsets = OffsetMap(0, 5000, memory_bytes, load_factor=1.0)
    assert offsets.keys_max == int(offsets._slots * LOAD_FACTOR_MAX) < offsets._slots
    keys = {b"%d" % number: number << 1 for number in range(offsets.keys_max)}
    assert offsets.has_room(0, len(keys)) and not offsets.has_room(0, len(keys) + 1)
    offsets.put_all(keys)
    assert not offsets.has_room(0, 1)
    assert all(key in offsets for key in keys) and b"another" not in offsets
