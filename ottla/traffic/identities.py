"""Names and numbers that each cluster chooses itself: those of a recording are translated for the cluster that its requests are
sent to again.

They are learned from pairs of responses, the recorded one and the cluster's own, and put into later requests. A number with a
meaning only beside another value, such as an epoch beside its producer id, is known by both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    PRODUCER_ID_AT,
    crc32c,
)
from ottla.protocol.schema import ZERO_UUID, fields

PRODUCER, TOPIC, MEMBER = "producer id", "topic id", "member id"
EPOCH, GENERATION = "producer epoch", "generation"

#: Field names, and the kinds of names in them.
NAMES = {
    "producer_id": PRODUCER,
    "v3_and_below_producer_id": PRODUCER,
    "ongoing_txn_producer_id": PRODUCER,
    "topic_id": TOPIC,
    "member_id": MEMBER,
    "leader": MEMBER,  # only in JoinGroup
}
#: Field names of numbers, their kinds, and the field beside them that they belong to.
NUMBERS = {
    "producer_epoch": (EPOCH, "producer_id"),
    "v3_and_below_producer_epoch": (EPOCH, "v3_and_below_producer_id"),
    "ongoing_txn_producer_epoch": (EPOCH, "ongoing_txn_producer_id"),
    "generation_id": (GENERATION, "member_id"),
    "member_epoch": (GENERATION, "member_id"),
    "generation_id_or_member_epoch": (GENERATION, "member_id"),
}
#: The recorded cluster's leader epoch, by which a request asks to be refused elsewhere (KIP-320), and the value for none.
LEADER_EPOCH, NO_EPOCH = "current_leader_epoch", -1
#: These values stand for no name.
NOTHING = (None, "", ZERO_UUID, b"", NO_PRODUCER_ID)
#: This many names are kept, and the oldest are dropped first: a recording can have any number.
NAMES_MAX = 1_000_000


class NamedPlace(NamedTuple):
    """A value of the recording: its kind, and the value that it belongs to."""

    kind: str
    owner: object
    value: object


def place_of(holder: Any, name: str) -> NamedPlace | None:
    """Return the name in a field of a message. Return None for a field that has the same value in every cluster, or no name."""
    value = getattr(holder, name)
    if name in NAMES:
        kind, owner = NAMES[name], None
        if name == "leader" and not isinstance(value, str):
            return None
    elif name in NUMBERS:
        kind, beside = NUMBERS[name]
        owner = getattr(holder, beside, None)
        if owner in NOTHING:
            return None
    else:
        return None
    return None if names_nothing(kind, value) else NamedPlace(kind, owner, value)


def names_nothing(kind: str, value: object) -> bool:
    """Return whether a value stands for no name of this kind."""
    if kind in (EPOCH, GENERATION):
        return not isinstance(value, int) or value < 0
    return value in NOTHING


class Identities:
    """The translations of one recording's names for one cluster."""

    def __init__(self) -> None:
        self._known: dict[NamedPlace, object] = {}

    def known(self, place: NamedPlace) -> object | None:
        """Return the cluster's own value, or None if it is not known."""
        return self._known.get(place)

    def learn(self, place: NamedPlace, value: object) -> None:
        if len(self._known) >= NAMES_MAX:
            del self._known[next(iter(self._known))]
        self._known[place] = value

    def translate(self, message: Any) -> None:
        """Put the cluster's own values into a request of the recording."""
        new: dict[str, object] = {}
        for field in fields(message.__plain__):
            value = getattr(message, field.name)
            if field.type.struct is not None and value is not None:
                self.translate(value)
            elif field.type.item is not None and value:
                self._translate_items(message, field.name, value)
            elif field.type.name == "Records" and value is not None:
                new[field.name] = self.translated_records(value)
            elif field.name == LEADER_EPOCH:
                new[field.name] = NO_EPOCH
            elif (place := place_of(message, field.name)) is not None and (found := self.known(place)) is not None:
                new[field.name] = found
        for name, found in new.items():  # set at the end, because a number is looked up by the recorded name beside it
            setattr(message, name, found)

    def _translate_items(self, message: Any, name: str, items: list[Any]) -> None:
        if hasattr(items[0], "__plain__"):
            for item in items:
                self.translate(item)
        elif name == "topic_ids":
            setattr(message, name, [self._known.get(NamedPlace(TOPIC, None, each), each) for each in items])

    def translated_records(self, records: Buffer) -> bytes:
        """Return batches with the cluster's own producer ids and epochs."""
        data, pos = bytearray(records), 0
        while len(data) - pos >= HEADER_BYTES:
            header = HEADER.unpack_from(data, pos)
            size = header[1] + 12
            if header[3] != MAGIC or size < HEADER_BYTES or pos + size > len(data):
                break
            producer_id = header[PRODUCER_ID]
            own = self.known(NamedPlace(PRODUCER, None, producer_id))
            if isinstance(own, int):
                epoch = self.known(NamedPlace(EPOCH, producer_id, header[PRODUCER_EPOCH]))
                data[pos + PRODUCER_ID_AT : pos + PRODUCER_ID_AT + 8] = own.to_bytes(8, "big", signed=True)
                if isinstance(epoch, int):
                    at = pos + PRODUCER_ID_AT + 8
                    data[at : at + 2] = epoch.to_bytes(2, "big", signed=True)
                crc = crc32c(memoryview(data)[pos + ATTRIBUTES_AT : pos + size])
                data[pos + CRC_AT : pos + CRC_AT + 4] = crc.to_bytes(4, "big")
            pos += size
        return bytes(data)
