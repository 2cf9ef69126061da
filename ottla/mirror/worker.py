"""One worker of a mirror: the lanes that the group assigns to it, the reader for them, and the settings and other state that it
keeps equal.

membership --> lanes <-- batches <-- reader          the catalogue says which partitions there are
                 |
                 +--> transactions in the target, with the positions
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.client.cluster import TRANSACTION_KEY_TYPE, Leaders
from ottla.client.configs import describe_many
from ottla.client.consumer import READ_COMMITTED
from ottla.client.errors import NO_SUCH_TOPIC, failure
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition
from ottla.client.topics import LATEST, list_offsets
from ottla.mirror.acls import AclCopy
from ottla.mirror.beginnings import Beginnings, Losses, PlaceBegin
from ottla.mirror.catalogue import NAMED_MAX, Catalogue, Say
from ottla.mirror.lane import Done, Lane
from ottla.mirror.membership import Membership
from ottla.mirror.opposite import Brings
from ottla.mirror.options import Clusters, MirrorOptions
from ottla.mirror.positions import MirrorPosition, Positions, PositionsLost
from ottla.mirror.reader import ReadThrottle, SourceReader
from ottla.mirror.scheduled import MirrorTasks
from ottla.mirror.shares import lane_of
from ottla.mirror.transaction import LaneProducer
from ottla.protocol.errors import ErrorCode, KafkaError

#: The worker with this lane does what only one worker may do: creating topics, settings, ACLs, checkpoints.
FIRST_LANE = 0
MAX_MESSAGE_BYTES = "max.message.bytes"
#: The time between two checks for room or for a lane, and between two attempts to read after a failure.
LOOK_S, RETRY_S = 0.1, 1.0
#: The bytes that a worker may have read and not committed: they bound its memory while many partitions catch up.
READ_BYTES_MAX = 128 * 1024 * 1024
#: The time between two messages about the same lasting failure.
SAY_AGAIN_MS = 60_000
#: A worker that stops gives transactions in progress this much time.
END_S_MAX = 15.0


@dataclass(slots=True)
class Counts:
    """The counts of what this worker has mirrored since its start."""

    records: int = 0
    bytes: int = 0
    transactions: int = 0
    fenced: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)


class Worker:
    """A worker: call `start`, then `run` until `stop`."""

    def __init__(self, clusters: Clusters, options: MirrorOptions, say: Say) -> None:
        policy = options.policy
        self.options, self.source, self.clock = options, policy.source, clusters.source.world.clock
        self.counts = Counts()
        self.lanes: dict[int, Lane] = {}
        self.catalogue = Catalogue(
            clusters.source,
            clusters.target,
            policy,
            options.topics,
            say,
            options.replication_factor,
            heartbeats=options.heartbeats,
        )
        self.positions = Positions(clusters.positions, policy.positions_topic, policy.source)
        self.leaders = Leaders(clusters.target, [], all_exist=False)
        self.say = say
        self._clusters = clusters
        self._reader = SourceReader(clusters.reading, self._has_room, self._rejected, self._look_up_again)
        self._beginnings = Beginnings(clusters.source, self._reader.known_ends, say)
        self._acls = AclCopy(clusters.source, clusters.target, policy, self.catalogue.is_mirrored, say)
        self._membership = Membership(
            clusters.group,
            policy.group,
            self._weights,
            self._take_lanes,
            self.say_seldom,
            lambda: Brings(self.catalogue.cluster_ids[0], policy.source, policy.kind, options.topics),
            lambda: options.shared(self.catalogue.cluster_ids[0]),
            options.session_ms,
        )
        self.scheduled = MirrorTasks(clusters, options, self.catalogue, self.positions, self.say_seldom, self._is_first)
        self._throttle = ReadThrottle(options.bytes_per_s, self.clock.mono_ms())
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: Exception | None = None
        self._said_ms: dict[str, int] = {}
        self._is_full = False
        self._stopping = asyncio.Event()
        self._said_cycles: list[str] = []
        self._first_look = asyncio.Event()
        self._has_lanes = asyncio.Event()

    async def look(self) -> None:
        """Check both clusters, and find the topics to mirror. Nothing is changed.

        Raises:
            Failure: both are the same cluster, or cannot be reached.
            TimeoutError: the time limit of the command is over.
        """
        async with self._clusters.source.limit(), self._clusters.target.limit():
            await self.catalogue.check_clusters()
            await self.catalogue.look()

    async def start(self) -> None:
        """Find the topics to mirror, and create the mirror's own topics.

        Raises:
            Failure: as with `look`; or there is a mirror in the opposite direction, or no permission for the group or the
                transactions, or a topic cannot be created.
            TimeoutError: the time limit of the command is over.
        """
        await self.look()
        self.catalogue.check_circles()
        target, policy = self._clusters.target, self.options.policy
        async with target.limit():
            await target.coordinator(policy.group)
            if self.options.exactly_once:
                await target.coordinator(policy.transactional_id(FIRST_LANE), TRANSACTION_KEY_TYPE)
            await self.scheduled.keep_topics()

    async def run(self) -> None:
        """Mirror until `stop`. Records that have been read by then are committed, and the other workers get the lanes at once."""
        tasks = [
            asyncio.ensure_future(work)
            for work in (
                self._membership.run(),
                self._look_again(),
                self._read(),
                self.scheduled.run(),
                self._stopping.wait(),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                if not task.done():
                    task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            await self._end_lanes()
            await self.scheduled.end()
            await self._membership.leave()
        for outcome in (*outcomes, self._fault):
            if isinstance(outcome, Exception):
                raise outcome

    def stop(self) -> None:
        self._stopping.set()

    @property
    def places(self) -> set[TopicPartition]:
        """The partitions of this worker."""
        return {place for place in self.catalogue.places if lane_of(place) in self.lanes}

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """Return for each partition of this worker how many offsets are not committed in the target yet."""
        ends = self._reader.known_ends
        return {
            place: max(0, ends.get(place, position.next_offset) - position.next_offset)
            for lane in self.lanes.values()
            for place, position in lane.positions.items()
        }

    @property
    def stopped(self) -> dict[TopicPartition, str]:
        """The partitions that the target rejects, with the reason."""
        return {place: why for lane in self.lanes.values() for place, why in lane.stopped.items()}

    @property
    def losses(self) -> Losses:
        """Return the records that the source no longer had when they were to be mirrored."""
        return self._beginnings.losses

    async def wait_until_mirrored(self) -> None:
        """Wait until all present records of this worker's partitions in the source are committed in the target."""
        await self._first_look.wait()
        ends = await self._ends(self.catalogue.topics)
        looked_ms = self.clock.mono_ms()
        while True:
            lanes = list(self.lanes.values())
            waits = self.catalogue.missing().keys() - self.catalogue.refused.keys()
            if self._has_lanes.is_set() and not waits and all(lane.is_idle for lane in lanes):
                at = {place: row.next_offset for lane in lanes for place, row in lane.positions.items()}
                answered = self._reader.known_ends
                left = {
                    place
                    for place in self.places & ends.keys() - self.stopped.keys()
                    # A position behind the end may be one that the source no longer has.
                    if at.get(place, -1) < ends[place] or (at[place] > ends[place] and place not in answered)
                }
                if not left:
                    return
                if (
                    self.clock.mono_ms() - looked_ms > RETRY_S * 1000
                ):  # a topic may have been created again with fewer records
                    now = await self._ends({name for name, _ in left} & set(self.catalogue.topics))
                    ends |= {place: min(ends[place], now.get(place, 0)) for place in left}
                    looked_ms = self.clock.mono_ms()
            await asyncio.sleep(LOOK_S)

    async def _ends(self, names: Iterable[str]) -> dict[TopicPartition, int]:
        """Return the ends of the committed records of these topics. Topics that no longer exist are left out."""
        ends: dict[TopicPartition, int] = {}
        for name in names:
            try:
                found = await list_offsets(self._clusters.source, name, LATEST, None, READ_COMMITTED)
            except Failure as fault:
                if fault.code not in NO_SUCH_TOPIC:
                    raise
                continue
            ends |= {(name, index): offset for index, offset in found.items()}
        return ends

    # -- What lanes need (lane.Surroundings) -------------------------------------------------------------------------------

    def target_of(self, place: TopicPartition) -> TopicPartition:
        return self.options.policy.remote(place[0]), place[1]

    def restart_at(self, begins: Mapping[TopicPartition, PlaceBegin]) -> None:
        self._reader.begin(begins)

    async def begins_of(
        self, places: Iterable[TopicPartition], found: Mapping[TopicPartition, MirrorPosition]
    ) -> dict[TopicPartition, PlaceBegin]:
        async with self._clusters.source.limit():
            return await self._beginnings.of(places, found)

    async def latest_of(
        self, lane: int, found: Iterable[TopicPartition]
    ) -> dict[TopicPartition, MirrorPosition] | None:
        if not self.options.from_latest or lane in self.positions.begun:
            return None
        places = {place for place in self.catalogue.source_places if lane_of(place) == lane} - set(found)
        async with self._clusters.source.limit():
            return await self._beginnings.latest(places)

    async def batch_bytes_max(self, topic: str) -> int:
        (row,) = await describe_many(self._clusters.target, [("topic", topic)])
        return next(int(entry.value or 0) for entry in row.configs if entry.name == MAX_MESSAGE_BYTES)

    async def confirm(self) -> None:
        self.counts.fenced += 1
        await self._membership.confirm()

    def say_seldom(self, text: str) -> None:
        now_ms = self.clock.mono_ms()
        if now_ms - self._said_ms.get(text, -SAY_AGAIN_MS) >= SAY_AGAIN_MS:
            self._said_ms[text] = now_ms
            self.say(text)

    def committed(self, lane: Lane, done: Done) -> None:
        self.counts.records += done.records
        self.counts.bytes += done.bytes
        self.counts.transactions += 1
        self.scheduled.take(done.pairs)

    # -- Lanes -------------------------------------------------------------------------------------------------------------

    def _weights(self) -> Mapping[int, int]:
        return Counter(map(lane_of, self.catalogue.places))

    def _take_lanes(self, numbers: set[int]) -> None:
        for number in self.lanes.keys() - numbers:
            self.lanes.pop(number).end()
        for number in sorted(numbers - self.lanes.keys()):
            transactional_id = self.options.policy.transactional_id(number) if self.options.exactly_once else None
            lane = Lane(number, LaneProducer(self._clusters.target, self.leaders, transactional_id), self)
            self.lanes[number] = lane
            task = asyncio.ensure_future(lane.run())
            self._tasks.add(task)
            task.add_done_callback(self._lane_ended)
        self._has_lanes.set()
        self._spread()

    def _is_first(self) -> bool:
        """Return whether this worker has the tasks that only one worker has."""
        return FIRST_LANE in self.lanes

    def _lane_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            defect = Failure(f"a lane has ended: {fault!r}", "this is a defect of the mirror")
            self._fault = fault if isinstance(fault, PositionsLost) else defect
            self.stop()

    def _spread(self) -> None:
        """Assign the partitions to the lanes."""
        by_lane: dict[int, list[TopicPartition]] = {number: [] for number in self.lanes}
        for place in self.catalogue.places:
            if (number := lane_of(place)) in by_lane:
                by_lane[number].append(place)
        for number, places in by_lane.items():
            self.lanes[number].mirror(places)

    async def _end_lanes(self) -> None:
        for lane in self.lanes.values():
            lane.end()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=END_S_MAX)
            for task in late:
                task.cancel()

    # -- Reading -----------------------------------------------------------------------------------------------------------

    def _has_room(self, place: TopicPartition) -> bool:
        lane = self.lanes.get(lane_of(place))
        return lane is not None and not self._is_full and lane.has_room(place)

    async def _read(self) -> None:
        while True:
            self._is_full = sum(lane.bytes for lane in self.lanes.values()) >= READ_BYTES_MAX
            if not self._reader.is_wanting:
                await asyncio.sleep(LOOK_S / 10)
                continue
            try:
                fetched = await self._reader.poll_batches()
            except (Failure, KafkaError, TimeoutError) as fault:
                self.say_seldom(f"reading from {self.source}: {fault or 'time is up'}; it is tried again")
                await asyncio.sleep(RETRY_S)
                continue
            taken = 0
            for row in fetched:
                if (reading := self.lanes.get(lane_of(row[:2]))) is not None:
                    reading.put(row)
                taken += sum(batch.size for batch in row.batches)
            if wait_s := self._throttle.wait_s(taken, self.clock.mono_ms()):
                await asyncio.sleep(wait_s)

    def _rejected(self, place: TopicPartition, code: int) -> None:
        """Handle a partition that cannot be read. If its position is not in the log, look up where it goes on; otherwise wait."""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._beginnings.out_of_range.add(place)
            self._reader.drop(place)
            self._look_up_again(place)
            return
        fault = failure(f"partition {place[0]}-{place[1]}", code)
        self.say_seldom(f"reading from {self.source}: {fault}; it is tried again")
        self._reader.hold(place, int(RETRY_S * 1000))

    def _look_up_again(self, place: TopicPartition) -> None:
        if (lane := self.lanes.get(lane_of(place))) is not None:
            lane.look_again(place)

    # -- Topics --------------------------------------------------------------------------------------------------------------

    async def _look_again(self) -> None:
        while True:
            try:
                await self._look()
                self._first_look.set()
            except (Failure, TimeoutError) as fault:
                if isinstance(fault, PositionsLost):
                    raise
                self.say_seldom(f"looking for topics: {fault or 'time is up'}; it is tried again")
            waits = bool(self.catalogue.missing().keys() - self.catalogue.refused.keys())
            waits |= any(lane.waits_for_source for lane in self.lanes.values())
            await asyncio.sleep(RETRY_S if waits else self.options.refresh_s)

    async def _look(self) -> None:
        """Look the topics up again. The worker with the first lane creates and changes those of the target."""
        await self._has_lanes.wait()
        async with self._clusters.source.limit(), self._clusters.target.limit():
            await self.catalogue.look()
            await self.scheduled.keep_topics()
        if self._is_first():
            if self.catalogue.missing():
                await self.catalogue.create()
                for lane in self.lanes.values():
                    lane.retry()
            if self.options.copy_settings:
                await self.catalogue.copy_settings()
            if self.options.copy_acls:
                await self._acls.copy()
        if self.catalogue.cycles != self._said_cycles:
            self._said_cycles = self.catalogue.cycles
            self.say(f"not mirrored, because {self.catalogue.why_cycles}: {', '.join(self._said_cycles)}")
        if circling := self.catalogue.circling:
            names = ", ".join(circling[:NAMED_MAX])
            self.say_seldom(
                f"{len(circling)} topics may go round in a circle, {names}: {self.catalogue.why_cycles}; they are mirrored on"
            )
        self.catalogue.begin()
        self._reader.follow(self.catalogue.topics)
        self.leaders.topics = [*self.catalogue.remote_topics, self.positions.topic]
        await self.leaders.refresh()
        self._spread()
