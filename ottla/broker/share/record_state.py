"""The states of a record in a share partition, as data: its transitions (drawn in docs/dev/STATES.md), and what each acknowledgement means.

The numbers are those of the wire and of `__share_group_state`.
"""

from __future__ import annotations

from enum import IntEnum


class RecordState(IntEnum):
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    #: Given up, in a group that has a dead-letter topic (KIP-1191): the record's dead letter is not written yet.
    ARCHIVING = 3
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    #: The offset has no record: compaction removed it, or it is a control record.
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    #: The lock of the record begins again (KIP-1222).
    RENEW = 4


TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})

#: The state that an acknowledgement gives. A released record is archived instead once its deliveries are used up.
OUTCOMES = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}

TRANSITIONS: dict[RecordState, dict[RecordState, str]] = {
    RecordState.AVAILABLE: {
        RecordState.ACQUIRED: "a member fetches it: the delivery count rises by one, and the acquisition lock begins",
        RecordState.ARCHIVED: "the log does not have the offset any more (compaction)",
    },
    RecordState.ACQUIRED: {
        RecordState.AVAILABLE: "released, or its lock timed out, or its member is gone; the delivery count is below the limit",
        RecordState.ACKNOWLEDGED: "accepted",
        RecordState.ARCHIVING: "rejected, or released after its last delivery, in a group with a dead-letter topic",
        RecordState.ARCHIVED: "rejected; or released after its last delivery; or a gap; or of an aborted transaction",
    },
    RecordState.ACKNOWLEDGED: {},
    RecordState.ARCHIVING: {
        RecordState.ARCHIVED: "its dead letter is committed in the dead-letter topic, or has failed for good",
    },
    RecordState.ARCHIVED: {},
}


def released(delivery_count: int, limit: int) -> RecordState:
    """The state of a record that its member releases."""
    return RecordState.AVAILABLE if delivery_count < limit else RecordState.ARCHIVED
