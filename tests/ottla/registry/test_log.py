"""The log of a registry: its topic may have been created a moment ago, so that a broker does not know it yet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ottla.client import topics
from ottla.client.errors import ClusterError
from ottla.client.failures import Failure
from ottla.client.producer import ClusterProducer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import find_coordinator
from ottla.protocol.records.builder import build_batch
from ottla.registry import log
from ottla.registry.errors import RegistryError
from ottla.registry.log import LogPlace, SchemaLog, place_from
from ottla.registry.schema_records import noop_record, subject_record
from tests.manual_clock import ManualClock
from tests.sim.loop import run
from tests.sim.mirror_client import ModelClient, Process
from tests.sim.mirror_model import Entry, Log, ModelCluster


class LateBroker:
    """Answers UNKNOWN_TOPIC_OR_PARTITION at first, as a broker that gets the metadata late."""

    def __init__(self, misses: int) -> None:
        self.misses, self.brokers, self.asked = misses, {1: None}, 0
        self.world = self
        self.clock = ManualClock()

    async def topic_names(self) -> list[str]:
        return []

    async def partitions(self, topic: str) -> list[int]:
        self.asked += 1
        if self.asked <= self.misses:
            raise ClusterError(f"topic {topic}: no such topic", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [0]


@pytest.fixture(autouse=True)
def _created(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_topic(*_: Any) -> None:
        return None

    monkeypatch.setattr(topics, "create_topic", create_topic)
    monkeypatch.setattr(log, "LOOK_AGAIN_S", 0.0)


async def test_a_registry_waits_until_both_of_its_brokers_know_the_new_topic() -> None:
    """On a slow machine the command `ottla dev --registry` ended with UNKNOWN_TOPIC_OR_PARTITION."""
    reading, writing = LateBroker(3), LateBroker(2)
    await SchemaLog(cast("Any", reading), cast("Any", writing), "_schemas", "fence")._create()
    assert (reading.asked, writing.asked) == (4, 3)


async def test_a_topic_that_stays_unknown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CREATE_MS_MAX", -1)
    with pytest.raises(ClusterError, match="no such topic"):
        await SchemaLog(cast("Any", LateBroker(9)), cast("Any", LateBroker(9)), "_schemas", "fence")._create()


class Model:
    """A registry's log on a cluster in memory: `west` has one broker, whose topic is deleted, cut and damaged."""

    def __init__(self) -> None:
        self.cluster = ModelCluster("west", random.Random(1))
        self.cluster.create("_schemas", 1)
        process = Process(self.cluster.rng)
        self.log = SchemaLog(
            ModelClient(self.cluster, process), ModelClient(self.cluster, process), "_schemas", "fence"
        )
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def kept(self) -> Log:
        return self.cluster.topics["_schemas"].logs[0]

    def write(self, *names: str) -> None:
        """Append a mode for the subject of each name, each in its own batch."""
        for name in names:
            key, value = subject_record("MODE", name, {"mode": "READONLY"})
            self.kept.append(build_batch([(key, value, 1)]), 1)

    async def follow(self) -> None:
        self.tasks.append(asyncio.create_task(self.log.follow()))

    async def modes(self) -> set[str]:
        """Return the subjects that a write sees."""
        await self.log.sync()
        return set(self.log.state.modes)

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


def on_model(test: Callable[[Model], Awaitable[None]]) -> None:
    """Run a test in virtual time."""

    async def main() -> None:
        model = Model()
        try:
            await test(model)
        finally:
            model.end()

    run(main())


@pytest.mark.parametrize("more", [0, 1, 2, 5], ids=lambda count: f"{count} records later")
def test_a_log_that_an_unclean_election_has_cut_is_read_again_and_a_write_sees_no_ghost(
    more: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The log ends before the position, exactly at it, or behind it: offsets alone do not show the last two cases."""

    async def test(model: Model) -> None:
        model.write("a", "b", "lost", "lost too")
        await model.log.start()
        await model.follow()
        assert await model.modes() == {"a", "b", "lost", "lost too"}
        model.kept.cut(2)
        new = [f"new {number}" for number in range(more)]
        model.write(*new)
        assert await model.modes() == {"a", "b", *new}
        assert not model.log.is_writable
        model.write("last")
        assert await model.modes() == {"a", "b", *new, "last"}
        assert model.log.state.unreadable == 0

    on_model(test)
    said = [row.message for row in caplog.records if row.levelname == "ERROR"]
    assert len(said) == 1 and "all its records are read again" in said[0]


def test_a_leader_takes_the_lead_again_in_a_log_that_was_cut() -> None:
    """The partition may also have lost the batch by which it knew the producer epoch."""

    async def test(model: Model) -> None:
        model.write("a", "lost")
        await model.log.start()
        await model.follow()
        await model.log.lead()
        assert model.log.is_writable
        model.kept.cut(1)
        model.write("new", "newer", "newest")
        assert await model.modes() == {"a", "new", "newer", "newest"}
        assert not model.log.is_writable
        await model.log.lead()
        place = await model.log.append([subject_record("MODE", "own", {"mode": "READONLY"})])
        assert model.log.is_writable and "own" in model.log.state.modes and place.offset == model.kept.end

    on_model(test)


def test_a_write_into_a_log_that_is_cut_meanwhile_fails() -> None:
    async def test(model: Model) -> None:
        model.write("a", "lost")
        await model.log.start()
        await model.follow()
        await model.log.lead()
        flush = ClusterProducer.flush

        async def cut_before(self: ClusterProducer) -> None:
            model.kept.cut(1)
            model.write("new", "newer", "newest")
            await flush(self)

        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(RegistryError, match="was cut while a record was written"),
        ):
            patch.setattr(ClusterProducer, "flush", cut_before)
            await model.log.append([subject_record("MODE", "own", {"mode": "READONLY"})])
        assert not model.log.is_writable

    on_model(test)


def test_the_last_noop_has_the_ids_that_the_leader_before_has_given_last() -> None:
    """After compaction this is all that is left of an id whose schema was permanently deleted."""

    async def test(model: Model) -> None:
        await model.log.start()
        await model.follow()
        await asyncio.sleep(0.1)  # the reader waits for new records, which come only after the leader has begun
        key, value = noop_record({".": 9})
        model.kept.append(build_batch([(key, value, 1)]), 1)
        await model.log.lead()
        assert model.kept.records()[-1][2:4] == (key, value) and model.log.state.greatest_ids() == {".": 9}
        count = len(model.kept.entries)
        await model.log.lead()
        assert len(model.kept.entries) == count + 1

    on_model(test)


@pytest.mark.parametrize("said", ["Error while writing to the Kafka store", "timed out"])
def test_a_leader_that_cannot_take_the_lead_says_so_to_the_client(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write takes the next epoch if the topic was created again.

    It ended with status 500, or waited as long as there was no coordinator.
    """

    async def test(model: Model) -> None:
        await model.log.start()
        await model.follow()
        if said == "timed out":
            none = find_coordinator.Coordinator("fence", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            answer = find_coordinator.FindCoordinatorResponse(coordinators=[none])
            monkeypatch.setattr(ModelCluster, "_FindCoordinatorRequest", lambda self, request: answer)
        else:
            cast("Any", model.log._writing)._process.lost = 1.0
        with pytest.raises(RegistryError, match=said):
            await model.log.lead()

    on_model(test)


def test_a_leader_that_changed_without_a_loss_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test(model: Model) -> None:
        model.write("a")
        await model.log.start()
        await model.follow()
        state = model.log.state
        for epoch in range(1, 4):
            model.kept.epoch = epoch
            model.write(f"in {epoch}")
            assert len(await model.modes()) == 1 + epoch
        assert model.log.state is state

    on_model(test)
    assert [row.message for row in caplog.records if row.levelname == "ERROR"] == []


def damage(model: Model, at: int) -> Entry:
    """Change a byte of a value: the CRC of the batch is wrong, but its records can be decoded."""
    entry = model.kept.entries[at]
    changed = bytearray(entry.data)
    changed[changed.index(b"READONLY")] = ord("W")
    entry.data = bytes(changed)
    return entry


def test_a_batch_with_a_wrong_crc_is_not_taken_in_and_nothing_is_written_until_it_can_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(model: Model) -> None:
        model.write("a")
        await model.log.start()
        await model.follow()
        model.write("b", "c", "d")
        whole = model.kept.entries[2].data
        entry = damage(model, 2)
        for _ in range(2):
            with pytest.raises(RegistryError, match="_schemas cannot be read at offset 2: CORRUPT_MESSAGE"):
                await model.log.sync()
        assert set(model.log.state.modes) == {"a", "b"}
        entry.data = whole  # another replica leads, whose disk is undamaged
        async with asyncio.timeout(30):
            async with model.log._moved:
                await model.log._moved.wait_for(lambda: len(model.log.state.modes) == 4)
        assert await model.modes() == {"a", "b", "c", "d"}

    on_model(test)
    said = [row.message for row in caplog.records if row.levelname == "ERROR"]
    assert len(said) == 1 and "nothing is registered until it can be read" in said[0]


def test_a_registry_does_not_start_with_a_log_that_cannot_be_read() -> None:
    async def test(model: Model) -> None:
        model.write("a", "b")
        damage(model, 1)
        with pytest.raises(Failure, match="_schemas cannot be read at offset 1"):
            await model.log.start()

    on_model(test)


def test_records_that_cannot_be_parsed_are_passed_over_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Confluent's registry skips these records too, and logs them."""
    others = [b"", b"no JSON", b"[]", b"{}", b'{"keytype": "MODE", "subject": [1]}', b'{"keytype": "SCHEMA"}']

    async def test(model: Model) -> None:
        model.write("a")
        for key in others:
            model.kept.append(build_batch([(key, b'{"mode": "x"}', 1)]), 1)
        model.write("b")
        await model.log.start()
        await model.follow()
        assert await model.modes() == {"a", "b"}
        assert model.log.state.unreadable == len(others)

    on_model(test)
    assert sum("cannot be read" in row.message for row in caplog.records) == len(others)


def test_a_place_is_read_back_and_what_is_none_is_none() -> None:
    place = LogPlace(bytes(range(16)), 2**40)
    assert place_from(place.text()) == place
    assert [
        place_from(text) for text in ("", "7", ":7", "x:7", "AAAAAAAAAAAAAAAAAAAAAA:", "AAAAAAAAAAAAAAAAAAAAAA:x")
    ] == [None] * 6
