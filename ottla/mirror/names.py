"""Names of a mirror: the name of a topic in the target, the mirror's own topics, and topics that would be mirrored in a circle.

The two policies are those of Kafka's MirrorMaker 2 (KIP-382): DefaultReplicationPolicy puts the source's alias before the name, and
IdentityReplicationPolicy keeps the name. The names of internal topics are MirrorMaker's too, so that its tools read them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.client.failures import Failure, Kind

DEFAULT, IDENTITY = "default", "identity"
HEARTBEATS = "heartbeats"
#: The defaults of MirrorMaker's topics.exclude and groups.exclude.
TOPICS_EXCLUDED = (r".*[\-\.]internal", r".*\.replica", r"__.*")
GROUPS_EXCLUDED = (r"console-consumer-.*", r"connect-.*", r"__.*")
#: An alias becomes part of the names of topics.
ALIAS = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, slots=True)
class Policy:
    """The names in the cluster `target` for topics and groups from the cluster `source`."""

    source: str
    target: str
    kind: str = DEFAULT
    separator: str = "."

    def remote(self, topic: str) -> str:
        """Return the name of a source's topic in the target."""
        if self.kind == IDENTITY and not topic.endswith(HEARTBEATS):
            return topic
        return f"{self.source}{self.separator}{topic}"

    def origin(self, topic: str) -> str | None:
        """Return the alias of the cluster from which a topic was mirrored, by its name; None for a topic of the cluster itself."""
        alias, found, rest = topic.partition(self.separator)
        return alias if found and rest else None

    def upstream(self, topic: str) -> str:
        """Return the name of a mirrored topic in the cluster from which it was mirrored."""
        return topic.partition(self.separator)[2]

    def is_cycle(self, topic: str) -> bool:
        """Return whether the topic came from the target, also through other clusters: then it is not mirrored back."""
        if self.kind == IDENTITY and not topic.endswith(HEARTBEATS):
            return False
        while (alias := self.origin(topic)) is not None:
            if alias == self.target:
                return True
            topic = self.upstream(topic)
        return False

    def is_heartbeats(self, topic: str) -> bool:
        while self.origin(topic) is not None:
            topic = self.upstream(topic)
        return topic == HEARTBEATS

    # -- MirrorMaker's internal topics -----------------------------------------------------------------------------------

    @property
    def positions_topic(self) -> str:
        """Return the topic in the target with the position of each partition: the source's offset up to which it is mirrored
        (Connect's offset.storage.topic).
        """
        return f"mm2-offsets.{self.source}.internal"

    @property
    def checkpoints_topic(self) -> str:
        """Return the topic in the target with the translated offsets of groups."""
        return f"{self.source}.checkpoints.internal"

    def offset_syncs_topic(self, *, in_source: bool) -> str:
        """Return the topic with the pairs of offsets of the same record.

        It is in the source by default, or in the target (KIP-716).
        """
        return f"mm2-offset-syncs.{self.target if in_source else self.source}.internal"

    @property
    def group(self) -> str:
        """The group of the mirror's workers. It is in the target."""
        return f"ottla-mirror.{self.source}.{self.target}"

    def transactional_id(self, lane: int) -> str:
        return f"{self.group}.{lane}"


def is_internal(topic: str) -> bool:
    """Return whether a topic belongs to Kafka, to Connect or to a mirror."""
    return topic.startswith(("__", ".")) or topic.endswith(("-internal", ".internal"))


@dataclass(frozen=True)
class Selection:
    """Names that match one of `included` and none of `excluded`. The patterns match whole names."""

    included: Sequence[str] = (".*",)
    excluded: Sequence[str] = ()
    _patterns: tuple[re.Pattern[str], re.Pattern[str] | None] = field(init=False)

    def __post_init__(self) -> None:
        """Compile the patterns.

        Raises:
            Failure: a pattern is no regular expression.
        """
        object.__setattr__(self, "_patterns", (_compiled(self.included), _compiled(self.excluded, or_none=True)))

    def __contains__(self, name: str) -> bool:
        included, excluded = self._patterns
        return bool(included.fullmatch(name)) and not (excluded and excluded.fullmatch(name))


def _compiled(patterns: Sequence[str], *, or_none: bool = False) -> re.Pattern[str] | None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as fault:
            raise Failure(
                f"{pattern!r} is no regular expression: {fault}", "for example 'orders\\..*'", Kind.WRONG
            ) from None
    return None if or_none and not patterns else re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def check_alias(alias: str) -> str:
    """Return the alias.

    Raises:
        Failure: the alias cannot be part of a topic's name, or contains the separator.
    """
    if not ALIAS.fullmatch(alias):
        raise Failure(
            f"{alias!r} is no alias of a cluster", "letters, digits, _ and -: it begins topics' names", Kind.WRONG
        )
    return alias
