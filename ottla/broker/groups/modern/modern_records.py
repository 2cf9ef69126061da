"""The records that consumer, share and streams groups have in common, as pairs of key and value; without a value, tombstones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord

#: The class of a record's key or value.
RecordClass: TypeAlias = type[Any]


class ModernRecords(NamedTuple):
    """The classes of one kind's keys, and of the value that all kinds fill in the same way."""

    group: RecordClass
    member: RecordClass
    assignment_epoch: RecordClass
    assignment_epoch_value: RecordClass
    target: RecordClass
    current: RecordClass

    def member_record(self, group_id: str, member_id: str, value: Any) -> CoordinatorRecord:
        return self.member(group_id, member_id), value

    def target_record(self, group_id: str, member_id: str, value: Any) -> CoordinatorRecord:
        return self.target(group_id, member_id), value

    def assignment_epoch_record(self, group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
        return self.assignment_epoch(group_id), self.assignment_epoch_value(epoch, now_ms)

    def current_record(self, group_id: str, member_id: str, value: Any) -> CoordinatorRecord:
        return self.current(group_id, member_id), value

    def member_tombstones(self, group_id: str, member_id: str) -> Iterator[CoordinatorRecord]:
        for key in (self.current, self.target, self.member):
            yield key(group_id, member_id), None
