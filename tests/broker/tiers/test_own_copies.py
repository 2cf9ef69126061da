"""Copies that have failed: one whose last record may be committed is confirmed, and never deleted; one that failed before that is deleted."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ottla.broker.tiers.own_copies import OwnCopies
from ottla.broker.tiers.remote_retention import GIVEN_UP_MS
from ottla.broker.tiers.remote_segments import RemoteState, TieredPartition, started
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.remote_log_records import RemoteLogRecord
from tests.broker.tiers.harness import TOPIC, TierHarness
from tests.broker.tiers.test_remote_segments import segment
from tests.storage.logs_for_tests import TOPIC_ID


class Sent(TierHarness):
    """A metadata topic that loses its next responses. The record takes effect at once, or `late`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.sent: list[RemoteState] = []
        self.lost_of: RemoteState | None = None
        self.late: list[RemoteLogRecord] | None = None

    async def _publish(self, place: TieredPartition, record: RemoteLogRecord) -> None:
        state = RemoteState(getattr(record, "remote_log_segment_state", 0))
        self.sent.append(state)
        is_lost = state is self.lost_of
        if is_lost and self.late is not None:
            self.late.append(record)
        else:
            await super()._publish(place, record)
        if is_lost:
            self.lost_of = None
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    async def arrive(self) -> None:
        late, self.late = self.late or [], None
        for record in late:
            await super()._publish(TieredPartition(TOPIC, TOPIC_ID, 0), record)

    @property
    def states(self) -> list[RemoteState]:
        assert self.segments is not None
        return [each.state for each in self.segments.by_id.values()]


@pytest.fixture
def harness(tmp_path: Path) -> Sent:
    return Sent(tmp_path)


@pytest.mark.parametrize("comes_late", [False, True])
async def test_a_copy_whose_last_answer_was_lost_is_confirmed_and_not_deleted(harness: Sent, comes_late: bool) -> None:
    """The record was committed all the same, and by it other replicas may have deleted the segment from their disks."""
    harness.lost_of, harness.late = RemoteState.COPY_FINISHED, [] if comes_late else None
    await harness.round()
    assert harness.state["waits"].startswith("REQUEST_TIMED_OUT")
    await harness.round()
    await harness.arrive()
    assert RemoteState.DELETE_STARTED not in harness.sent
    assert set(harness.states) == {RemoteState.COPY_FINISHED}
    assert len(harness.states) == len(harness.log.segments) - 1
    assert harness.state["waits"] is None


async def test_a_copy_that_failed_before_its_last_record_is_deleted_before_the_next_one(harness: Sent) -> None:
    harness.store.fault = OSError("the store is away")
    await harness.round()
    harness.store.fault = None
    await harness.round()
    assert harness.sent[:4] == [
        RemoteState.COPY_STARTED,
        RemoteState.DELETE_STARTED,
        RemoteState.DELETE_FINISHED,
        RemoteState.COPY_STARTED,
    ]
    assert set(harness.states) == {RemoteState.COPY_FINISHED}


@pytest.mark.parametrize(("age_ms", "stays"), [(GIVEN_UP_MS - 1, True), (GIVEN_UP_MS + 1, False)])
async def test_a_copy_of_an_earlier_process_stays_for_an_hour(harness: Sent, age_ms: int, stays: bool) -> None:
    """A record that the process sent before it ended may still arrive, if its leader was paused."""
    assert harness.segments is not None
    now_ms = harness.driver._world.clock.wall_ms()
    begun = segment(5, 0, 3)._replace(event_ms=now_ms - age_ms)
    harness.segments.replay(started(TieredPartition(TOPIC, TOPIC_ID, 0), begun))
    await harness.round()
    assert (begun.id in harness.segments.by_id) is stays


def test_what_another_leader_has_deleted_under_a_copy_is_deleted_by_who_wrote_it_and_nothing_else_is() -> None:
    copies, undone = OwnCopies(), list[str]()
    known = {bytes([number] * 16): segment(number, 0, 3) for number in range(1, 5)}
    states = (RemoteState.COPY_STARTED, RemoteState.COPY_FINISHED, RemoteState.DELETE_STARTED, RemoteState.COPY_STARTED)
    known = {name: each._replace(state=state) for (name, each), state in zip(known.items(), states, strict=True)}
    for name in (*known, bytes([5] * 16)):
        copies.begin(name, TOPIC_ID, 0, partial(undone.append, name.hex()[:2]))
        if name[0] < 5:
            copies.named(name)
        copies.end(name)
    assert copies.settle(lambda topic_id, partition: known) == []
    known.clear()
    assert copies.settle(lambda topic_id, partition: None) == []
    for undo in copies.settle(lambda topic_id, partition: known):
        undo()
    assert undone == ["01", "03", "04"], "02 was finished, and the first record of 05 may still come"
    assert copies.settle(lambda topic_id, partition: known) == []
