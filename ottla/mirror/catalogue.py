"""The topics of a mirror: the mirrored topics of the source, and their counterparts in the target, which are created and kept
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.configs import OWN_PREFIX, alter_configs, describe_many
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition
from ottla.mirror.formats import TopicIds
from ottla.mirror.names import IDENTITY, Policy, Selection, is_internal
from ottla.mirror.opposite import Brings, circles, opposite_mirrors
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult
from ottla.protocol.messages.metadata import MetadataResponse

#: MirrorMaker's config.properties.exclude, and the settings of remote storage: they depend on the brokers of one cluster, or would change
#: timestamps. A target without remote storage would refuse the topic; one that has some keeps what its administrator has set.
SETTINGS_EXCLUDED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "local.retention.ms",
        "local.retention.bytes",
    }
)
#: The source that DescribeConfigs names for a value that was set for the topic itself.
TOPIC_SOURCE = 1
TOPICS_AT_ONCE = 200
#: A message names at most this many topics.
NAMED_MAX = 5
REPLICAS_MAX = 3
COMPACTED = {"cleanup.policy": "compact"}
#: A new broker may not know the topic yet, or another worker has created it.
PASSING = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)

Say = Callable[[str], None]


class Catalogue:
    """The topics of both sides, as the last `look` has found them."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        policy: Policy,
        selection: Selection,
        say: Say,
        replication_factor: int = topics.BROKER_DEFAULT,
        *,
        heartbeats: bool = True,
    ) -> None:
        """Begin without any topics. With `heartbeats` the source's heartbeats are mirrored, whatever the selection says."""
        self.policy = policy
        self.selection = selection
        #: Partitions of the source that have a counterpart in the target.
        self.places: set[TopicPartition] = set()
        self.cycles: list[str] = []
        #: The ids of the topics in the source, and of all topics in the target.
        self.topic_ids: dict[str, bytes] = {}
        self._target_ids: dict[str, bytes] = {}
        #: The cluster ids that `check_clusters` has found; empty before that.
        self.cluster_ids = ("", "")
        #: The topics of the source that the target refuses to create, with the reason.
        self.refused: dict[str, str] = {}
        self._source = source
        self._target = target
        self._say = say
        self._replication_factor = replication_factor
        self._heartbeats = heartbeats
        self._source_counts: dict[str, int] = {}
        self._target_counts: dict[str, int] = {}
        self._said: set[str] = set()
        self._opposite: dict[str, list[Brings]] = {}
        #: The topics that this worker mirrors. A circle that appears later does not stop them.
        self._begun: set[str] = set()

    async def check_clusters(self) -> None:
        """Check that these are two clusters.

        Raises:
            Failure: both are the same one.
        """
        source, target = await self._source.metadata([]), await self._target.metadata([])
        if source.cluster_id is not None and source.cluster_id == target.cluster_id:
            raise Failure(
                f"{self.policy.source} and {self.policy.target} are the same cluster, {source.cluster_id}",
                "-b names the source, and --to the target; `ottla topic copy` copies within a cluster",
            )
        self.cluster_ids = (source.cluster_id or "", target.cluster_id or "")

    async def look(self) -> None:
        """Read the topics of both sides."""
        self._source.doing = "listing the topics of the source"
        response = await self._source.metadata(None)
        counts = _counts(response)
        self.topic_ids = _ids(response)
        if self.policy.kind == IDENTITY and self.cluster_ids[1]:
            self._opposite = await opposite_mirrors(self._source, self.cluster_ids[1], counts)
        self.cycles = sorted(name for name in counts if name in self.selection and self._is_cycle(name))
        self._source_counts = {name: count for name, count in sorted(counts.items()) if self.is_mirrored(name)}
        self._target.doing = "listing the topics of the target"
        response = await self._target.metadata(None)
        self._target_counts, self._target_ids = _counts(response), _ids(response)
        self.places = {
            (name, index)
            for name, count in self._source_counts.items()
            for index in range(min(count, self._target_counts.get(self.policy.remote(name), 0)))
        }

    @property
    def seen_ids(self) -> dict[str, TopicIds]:
        """The ids, at the last look, of the mirrored topics that have a counterpart, and of the counterparts."""
        return self._pairs_of_ids(self._source_counts, self.topic_ids, self._target_ids)

    async def ids_now(self, names: Iterable[str]) -> dict[str, TopicIds]:
        """Return the present ids of topics of the source and of their counterparts. Topics that one side lacks are left out.

        Raises:
            Failure: a cluster does not answer.
        """
        wanted = sorted(names)
        if not wanted:
            return {}
        source = _ids(await self._source.metadata(wanted))
        return self._pairs_of_ids(
            wanted, source, _ids(await self._target.metadata(list(map(self.policy.remote, wanted))))
        )

    async def target_ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the present ids of the counterparts of the source's topics, by the source's names.

        Raises:
            Failure: the target does not answer.
        """
        remotes = {self.policy.remote(name): name for name in names}
        found = _ids(await self._target.metadata(sorted(remotes)))
        return {name: found[remote] for remote, name in remotes.items() if remote in found}

    def _pairs_of_ids(
        self, names: Iterable[str], source: Mapping[str, bytes], target: Mapping[str, bytes]
    ) -> dict[str, TopicIds]:
        return {
            name: TopicIds(source[name], target[remote])
            for name in names
            if name in source and (remote := self.policy.remote(name)) in target
        }

    def is_mirrored(self, name: str) -> bool:
        wanted = name in self.selection or (self._heartbeats and self.policy.is_heartbeats(name))
        return wanted and not is_internal(name) and not self._is_cycle(name)

    def begin(self) -> None:
        """Begin to mirror the topics of the last look. From now on a circle with another mirror does not stop them."""
        self._begun |= set(self._source_counts)

    @property
    def circling(self) -> list[str]:
        """Topics that are mirrored although another mirror brings them back."""
        return circles(sorted(self._begun & self._source_counts.keys()), self._opposite)

    def _is_cycle(self, name: str) -> bool:
        if self.policy.is_cycle(name):
            return True
        return not is_internal(name) and name not in self._begun and bool(circles([name], self._opposite))

    @property
    def why_cycles(self) -> str:
        """Return the reason why `cycles` are not mirrored."""
        if self.policy.kind == IDENTITY:
            return f"a mirror from {self.policy.target} to {self.policy.source} runs that would bring them back (stop one of both)"
        return f"they came from {self.policy.target}"

    def check_circles(self) -> None:
        """Check that no running mirror brings topics of this one back.

        Raises:
            Failure: a mirror does, and the topics' names do not show it.
        """
        if self.policy.kind == IDENTITY and self.cycles:
            groups = sorted(group for group, rows in self._opposite.items() if rows)
            names = ", ".join(self.cycles[:NAMED_MAX]) + (" ..." if len(self.cycles) > NAMED_MAX else "")
            raise Failure(
                f"{names} would go round in a circle: a mirror from {self.policy.target} to {self.policy.source} runs, "
                f"of the group {', '.join(groups)}",
                "with --policy identity mirror each topic in one direction: --topics, --exclude, or stop that mirror first",
            )

    @property
    def source_places(self) -> set[TopicPartition]:
        """The mirrored partitions of the source, also those that the target lacks."""
        return {(name, index) for name, count in self._source_counts.items() for index in range(count)}

    @property
    def topics(self) -> list[str]:
        """The mirrored topics of the source."""
        return list(self._source_counts)

    @property
    def remote_topics(self) -> list[str]:
        """Return the existing counterparts of the topics."""
        return [remote for name in self._source_counts if (remote := self.policy.remote(name)) in self._target_counts]

    def missing(self) -> dict[str, int]:
        """Return the topics of the source that the target lacks, or has with fewer partitions, and the number of partitions
        that each needs.
        """
        return {
            name: count
            for name, count in self._source_counts.items()
            if self._target_counts.get(self.policy.remote(name), 0) < count
        }

    async def create(self) -> None:
        """Create the missing topics and partitions. If the target refuses one, that is reported, and the others go on."""
        for name, count in self.missing().items():
            remote = self.policy.remote(name)
            try:
                if remote in self._target_counts:
                    await topics.add_partitions(self._target, remote, count)
                    self._say(f"{remote} has {count} partitions now, as {name}")
                else:
                    await self._create(name, remote, count)
                self._target_counts[remote] = count
                self.refused.pop(name, None)
            except Failure as fault:
                if fault.code not in PASSING:
                    self.refused[name] = str(fault)
                    self._say_once(f"{remote} cannot be made in the target: {fault}")
        await self.look()

    async def internal_id(self, cluster: ClusterClient, name: str) -> bytes | None:
        """Return the present id of one of the mirror's own topics, or None if the broker that answers does not know the topic."""
        return _ids(await cluster.metadata([name])).get(name)

    async def create_internal(self, cluster: ClusterClient, name: str) -> bool:
        """Create one of the mirror's own topics, compacted and with one partition. Return False if it existed already.

        Raises:
            Failure: it cannot be created.
        """
        if await self.internal_id(cluster, name) is not None:
            return False
        replicas = min(REPLICAS_MAX, max(1, len(cluster.brokers)))
        try:
            await topics.create_topic(cluster, name, 1, replicas, COMPACTED)
        except Failure as fault:
            if fault.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    async def create_positions(self, name: str) -> bytes | None:
        """Create the topic of positions if it does not exist, and report the topics of the target that are then mirrored again.

        Return its id, or None if that is not known yet.
        """
        if await self.create_internal(self._target, name) and self.remote_topics:
            there = ", ".join(self.remote_topics[:NAMED_MAX])
            self._say(
                f"{name} is new: nothing is known of how far these are mirrored, which the target has already: {there}"
            )
        return await self.internal_id(self._target, name)

    async def _create(self, name: str, remote: str, count: int) -> None:
        described = await describe_many(self._source, [("topic", name)])
        settings = own_settings(described[0].configs) if described else {}
        try:
            await topics.create_topic(self._target, remote, count, self._replication_factor, settings)
        except Failure as fault:
            if fault.code != ErrorCode.INVALID_CONFIG:
                raise
            self._say(f"{remote} is made without the settings of {name}: {fault}")
            await topics.create_topic(self._target, remote, count, self._replication_factor, {})
        self._say(f"created {remote} with {count} partitions")

    async def copy_settings(self) -> None:
        """Make the settings of the target's topics equal to those of the source's."""
        names = [name for name in self._source_counts if self.policy.remote(name) in self._target_counts]
        for first in range(0, len(names), TOPICS_AT_ONCE):
            part = names[first : first + TOPICS_AT_ONCE]
            ours = await _settings(self._source, part)
            theirs = await _settings(self._target, [self.policy.remote(name) for name in part])
            for name in part:
                remote = self.policy.remote(name)
                if name in ours and remote in theirs and (changes := _changes(ours[name], theirs[remote])):
                    await self._alter(remote, changes)

    async def _alter(self, remote: str, changes: dict[str, str | None]) -> None:
        try:
            await alter_configs(self._target, "topic", remote, changes)
        except Failure as fault:
            self._say_once(f"settings of {remote}: {fault}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


def own_settings(entries: Iterable[DescribeConfigsResourceResult]) -> dict[str, str]:
    """Return the settings that are set on a topic itself and fit another cluster."""
    return {
        entry.name: entry.value
        for entry in entries
        if entry.config_source == TOPIC_SOURCE
        and entry.value is not None
        and not entry.is_sensitive
        and not entry.read_only
        and entry.name not in SETTINGS_EXCLUDED
        and not str(entry.name).startswith(OWN_PREFIX)
    }


def _changes(ours: dict[str, str], theirs: dict[str, str]) -> dict[str, str | None]:
    """Return the changes that make `theirs` equal to `ours`."""
    changes: dict[str, str | None] = {name: value for name, value in ours.items() if theirs.get(name) != value}
    return changes | dict.fromkeys(theirs.keys() - ours.keys())


async def _settings(cluster: ClusterClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    found: list[DescribeConfigsResult] = await describe_many(cluster, [("topic", name) for name in names])
    return {row.resource_name: own_settings(row.configs) for row in found}


def _ids(response: MetadataResponse) -> dict[str, bytes]:
    return {topic.name or "": topic.topic_id for topic in response.topics if not topic.error_code}


def _counts(response: MetadataResponse) -> dict[str, int]:
    return {topic.name or "": len(topic.partitions) for topic in response.topics if not topic.error_code}
