"""Groups of the source in a mirror's history, and what must hold of their checkpoints and of their offsets in the target.

Each checkpoint, also one that was replaced: what its group had not read in the source, and the target has, lies at its offset or behind it;
and what lies there is of the same topic of the source, not of one that was deleted before. When all is well again and a group is at the
end of its topics, its checkpoints and its offsets in the target are behind the last record, and not behind the end of the log.
"""

from __future__ import annotations

import random

from ottla.mirror.formats import Checkpoint, read_checkpoint
from tests.sim.mirror_model import Log, MirrorBroken, ModelCluster

GROUP = "g"
CHECKPOINTS = "west.checkpoints.internal"


class Groups:
    def __init__(self, source: ModelCluster, target: ModelCluster, rng: random.Random) -> None:
        self._source, self._target, self._rng = source, target, rng
        self._committed = source.groups.setdefault(GROUP, {})

    def read(self, name: str) -> None:
        """The group commits an offset of a partition: mostly the end, sometimes an earlier one."""
        logs = self._source.topics[name].logs
        index = self._rng.randrange(len(logs))
        log = logs[index]
        at = log.stable if self._rng.random() < 0.6 else self._rng.randint(log.start, max(log.start, log.stable))
        self._committed[name, index] = at

    def read_all(self, names: list[str]) -> None:
        for name in names:
            for index, log in enumerate(self._source.topics[name].logs):
                self._committed[name, index] = log.stable

    def check_ends(self, names: list[str]) -> None:
        """Check the groups after each partition has got a record since the last fault, and all records were read."""
        newest = {row.place: row for row in self._checkpoints()}
        for name in names:
            for index in range(len(self._source.topics[name].logs)):
                place = f"west.{name}", index
                log = self._target.log(*place)
                assert log is not None
                last = max((row.offset for row in log.records()), default=-1)
                for what, at in (
                    ("checkpoint", newest[place].downstream if place in newest else None),
                    ("offset in the target", self._target.groups.get(GROUP, {}).get(place)),
                ):
                    if at is None or not last < at <= log.end:
                        raise MirrorBroken(f"{place}: the {what} is {at}, its last record {last}, its end {log.end}")

    def check_all(self) -> None:
        """Check each checkpoint that was written."""
        for row in self._checkpoints():
            assert row.ids is not None
            name, index = row.place[0].removeprefix("west."), row.place[1]
            source, target = self._source.by_id(row.ids.source), self._target.by_id(row.ids.target)
            assert source is not None and target is not None
            at = {record.value: record.offset for record in target.logs[index].records()}
            unread = [record.value for record in source.logs[index].records() if record.offset >= row.upstream]
            if missed := [value for value in unread if at.get(value, row.downstream) < row.downstream]:
                raise MirrorBroken(f"{row} misses {missed}")
            others = {value for log in self._former(name, index, row) for value in log.values()}
            if again := [value for value, offset in at.items() if offset >= row.downstream and value in others]:
                raise MirrorBroken(f"{row} goes back to {again} of a topic that was deleted")

    def _former(self, name: str, index: int, row: Checkpoint) -> list[Log]:
        """Return the logs of the source's topics that had this name before."""
        assert row.ids is not None
        former = [topic for topic in self._source.deleted.values() if topic.id < row.ids.source]
        return [topic.logs[index] for topic in former if topic.name == name and index < len(topic.logs)]

    def _checkpoints(self) -> list[Checkpoint]:
        log = self._target.log(CHECKPOINTS, 0)
        rows = [read_checkpoint(record) for record in log.records()] if log is not None else []
        return [row for row in rows if row is not None]
