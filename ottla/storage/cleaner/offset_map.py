"""The offset map of the log cleaner: the last record of every key in the dirty part of a log, in bounded memory.

Kafka's SkimpyOffsetMap: open addressing over 16-byte hashes of the keys, 20 bytes a slot here (a Python dict takes 140).
Two keys with the same hash would count as one key: with 5 million keys the probability is 10^-26, which Kafka accepts, too.

Beside the table there is one byte for every record of the dirty part, by its ordinal in the order of the log: it says whether
that record is the last one of its key. So for most batches of the dirty part the keys are not read a second time: a `count`
over a slice shows whether all records of a batch survive, or none.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from hashlib import blake2b
from struct import Struct

#: Two halves of the hash, and the ordinal.
SLOT_BYTES = 20
#: The upper limit of log.cleaner.io.buffer.load.factor: above it probing would take longer than another pass.
LOAD_FACTOR_MAX = 0.95
#: One sixth of the memory is for the bytes of the ordinals: with 4 records per key both parts are full at the same time.
_ORDINALS_SHARE = 6
_ORDINALS_MIN = 1024
_SLOTS_MIN = 32
_FREE = 0xFFFF_FFFF
_HALVES = Struct("<QQ")
#: The values of an ordinal's byte: a superseded record, the last record of a key with a value, and a tombstone.
GONE, VALUE, TOMBSTONE = 0, 1, 2


class OffsetMap:
    """The map of the records in [first_offset, latest_offset]; `latest_offset` is the last offset of the last batch added."""

    __slots__ = (
        "_high",
        "_low",
        "_ordinals",
        "_slots",
        "first_offset",
        "keys",
        "keys_max",
        "kinds",
        "latest_offset",
        "records",
    )

    def __init__(self, first_offset: int, records: int, memory_bytes: int, load_factor: float = 0.9) -> None:
        """Makes a map for `records` records, or for as many as fit into the memory."""
        span = min(max(records, 1), ordinals_max(memory_bytes))
        # Probes are short if half of the slots are free; few records need few slots.
        self._slots = max(min((memory_bytes - span) // SLOT_BYTES, 2 * span), _SLOTS_MIN)
        self.keys_max = int(self._slots * min(max(load_factor, 0.1), LOAD_FACTOR_MAX))
        self.keys = 0
        self.records = 0
        self.first_offset = first_offset
        self.latest_offset = first_offset - 1
        self.kinds = bytearray(span)
        self._high = array("Q", [0]) * self._slots
        self._low = array("Q", [0]) * self._slots
        self._ordinals = array("I", [_FREE]) * self._slots

    def has_room(self, records: int, keys: int) -> bool:
        return self.records + records <= len(self.kinds) and self.keys + keys <= self.keys_max

    def put_all(self, latest: Mapping[bytes, int]) -> None:
        """Adds keys, each with twice its last ordinal, plus one for a tombstone. Ordinals grow from call to call."""
        high, low, ordinals, slots, kinds = self._high, self._low, self._ordinals, self._slots, self.kinds
        unpack, keys = _HALVES.unpack, self.keys
        for key, packed in latest.items():
            one, other = unpack(blake2b(key, digest_size=16).digest())
            slot = one % slots
            while (found := ordinals[slot]) != _FREE:
                if high[slot] == one and low[slot] == other:
                    kinds[found] = GONE
                    break
                slot = slot + 1 if slot + 1 < slots else 0
            else:
                high[slot] = one
                low[slot] = other
                keys += 1
            ordinal = packed >> 1
            ordinals[slot] = ordinal
            kinds[ordinal] = TOMBSTONE if packed & 1 else VALUE
        self.keys = keys

    def __contains__(self, key: bytes) -> bool:
        one, other = _HALVES.unpack(blake2b(key, digest_size=16).digest())
        slot = one % self._slots
        while self._ordinals[slot] != _FREE:
            if self._high[slot] == one and self._low[slot] == other:
                return True
            slot = slot + 1 if slot + 1 < self._slots else 0
        return False


def ordinals_max(memory_bytes: int) -> int:
    """Returns the number of records of the dirty part that fit into one pass."""
    return min(max(memory_bytes // _ORDINALS_SHARE, _ORDINALS_MIN), _FREE - 1)
