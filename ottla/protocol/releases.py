"""Releases of Apache Kafka: a node advertises exactly the APIs and features of one release, so that clients and tools know what
to expect.

The tables of the project (`api.py`, `features.py`, `server/config`) are those of the newest release here. Of each earlier release
`release_tables` has a text with what that release has: the versions of its APIs by kind of listener, the levels of its features, and its
configurations as far as they differ. They are made from the release's own jars by `python -m tools.releases`, and read when a node asks
for them. Which one a node advertises is `ottla.advertised.release`, and Kafka's own properties `unstable.api.versions.enable` and
`unstable.feature.versions.enable` add what that release has and calls unstable.

What an older release has is for clients. Nodes of Ottla know each other by the name of their software (KIP-511), and have all versions
that are here among themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.protocol.api import APIS, Api, ApiKey

#: The kinds of listeners, and of configured resources.
BROKER, CONTROLLER = "broker", "controller"
METADATA_VERSION = "metadata.version"
#: The lowest metadata.version of a cluster with a quorum.
METADATA_VERSION_MIN = 7
#: APIs of controllers that brokers of clusters with ZooKeeper advertise in these versions, but do not serve. The versions of
#: releases before 4.0 are not served either.
BETWEEN_NODES = (ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS)
#: The software of a node, by which it knows others. Commands have another one, and are clients.
NODE_SOFTWARE, COMMAND_SOFTWARE = "ottla-node", "ottla"


class ReleaseConfig(NamedTuple):
    """A configuration that only a release has, or has with another type or default; `default` None: it has none."""

    type: str
    default: str | None


class Release(NamedTuple):
    """A release of Apache Kafka. `metadata_version`: the level of new clusters, and the highest; `unstable_metadata_version` with unstable features."""

    name: str
    metadata_version: int
    unstable_metadata_version: int
    #: The lowest and the highest stable version by API key, for each kind of listener. Clusters with ZooKeeper have no listeners of controllers.
    apis: Mapping[str, Mapping[int, tuple[int, int]]] = {}
    #: The highest version by API key where that is an unstable one.
    unstable_apis: Mapping[int, int] = {}
    #: The levels of features that ApiVersions shows.
    features: Mapping[str, tuple[int, int]] = {}
    #: The configurations that came later, by kind of resource, and those that differ.
    lacks: Mapping[str, frozenset[str]] = {}
    configs: Mapping[str, Mapping[str, ReleaseConfig]] = {}
    #: The brokers' configurations that can be changed while a broker runs there, and not in the newest release; and the reverse.
    dynamic_configs: frozenset[str] = frozenset()
    static_configs: frozenset[str] = frozenset()

    @property
    def is_newest(self) -> bool:
        return self.name == NEWEST

    @property
    def has_zookeeper(self) -> bool:
        """Return True if the release's clusters have ZooKeeper and no quorum."""
        return not self.is_newest and not self.features

    def lacks_configs(self, kind: str) -> frozenset[str]:
        """Return the names of brokers', topics' or groups' configurations that are here, and that the release has not."""
        return self.lacks.get(kind, frozenset())

    def own_configs(self, kind: str) -> Mapping[str, ReleaseConfig]:
        """Return the configurations that only the release has, or has with another type or default."""
        return self.configs.get(kind, {})


NEWEST = "4.4.0"
KAFKA_4_4 = Release(NEWEST, metadata_version=33, unstable_metadata_version=34)
_NAMES = (
    NEWEST, "4.3.1", "4.2.0", "4.1.1", "4.0.2", "3.9.1", "3.7.2", "3.5.2", "3.3.2", "3.0.2", "2.8.2", "2.4.1", "2.1.1",
)  # fmt: skip

#: The releases by the names that users give them, the oldest first.
KAFKA_VERSIONS = tuple(name.rpartition(".")[0] for name in reversed(_NAMES))


class _Releases(Mapping[str, Release]):
    """The releases by their names, the newest first; a table is read when it is asked for."""

    def __init__(self) -> None:
        self._known = {NEWEST: KAFKA_4_4}

    def __getitem__(self, name: str) -> Release:
        if name not in self._known:
            if name not in _NAMES:
                raise KeyError(name)
            self._known[name] = _read(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


#: The releases by the values of ottla.advertised.release; the default is the first.
RELEASES: Mapping[str, Release] = _Releases()


class UnknownRelease(ValueError):
    """There is no table of a release; the message names those that there are."""


def release_name(text: str) -> str:
    """Return the full name of a release: "2.8.2" of "2.8" and of "2.8.2". Raises UnknownRelease."""
    for name in _NAMES:
        if text.strip() in (name, name.rpartition(".")[0]):
            return name
    raise UnknownRelease(f"{text!r} is no release of Apache Kafka that is known here: {', '.join(KAFKA_VERSIONS)}")


def _read(name: str) -> Release:
    from ottla.protocol.release_tables import TABLES  # 90 KB, of no use to a node that advertises the newest release

    heads = re.split(r"^\[(.+)\]$", TABLES[name], flags=re.MULTILINE)[1:]
    sections = dict(zip(heads[::2], heads[1::2], strict=True))

    def ranges(section: str) -> dict[str, tuple[int, int]]:
        pairs = (each.rpartition(":") for each in sections.get(section, "").split())
        return {of: (int(low), int(high)) for of, _, text in pairs for low, _, high in [text.partition("-")]}

    features = ranges("features")
    level = features[METADATA_VERSION][1] if features else KAFKA_4_4.metadata_version
    return Release(
        name,
        metadata_version=level,
        unstable_metadata_version=max(level, ranges("unstable features").get(METADATA_VERSION, (0, 0))[1]),
        apis={
            listener: {int(key): versions for key, versions in ranges(f"{listener} apis").items()}
            for listener in (BROKER, CONTROLLER)
        },
        unstable_apis={int(key): high for key, (_, high) in ranges("unstable apis").items()},
        features=features,
        lacks={kind: frozenset(sections.get(f"{kind} lacks", "").split()) for kind in ("broker", "topic", "group")},
        configs={kind: _configs(sections.get(f"{kind} rows", "")) for kind in ("broker", "topic", "group")},
        dynamic_configs=frozenset(sections.get("broker dynamic", "").split()),
        static_configs=frozenset(sections.get("broker static", "").split()),
    )


def _configs(section: str) -> dict[str, ReleaseConfig]:
    """Read lines of a name, a type, and `=` with the default, or a word for none."""
    rows = (line.split(" ", 2) for line in section.strip().splitlines())
    return {name: ReleaseConfig(kind, text[1:] if text.startswith("=") else None) for name, kind, text in rows}


class Advertised(NamedTuple):
    """The release that a node advertises and serves, with or without its unstable parts."""

    release: Release = KAFKA_4_4
    unstable_apis: bool = False
    unstable_features: bool = False

    def served(self, api: Api) -> tuple[int, int]:
        """Return the lowest and highest version of an API that this node has for other nodes, and for clients if the release is the newest."""
        highest = api.max_version - 1 if api.latest_unstable and not self.unstable_apis else api.max_version
        return api.min_version if self.release.is_newest else api.oldest, highest

    def limits(self, listener: str) -> dict[int, tuple[int, int]] | None:
        """Return the versions that clients are served at a kind of listener, by API key: those of the release that Ottla has,
        too. None stands for all that Ottla has.
        """
        if self.release.is_newest:
            return None
        apis = self.release.apis[BROKER if self.release.has_zookeeper else listener]
        return {key: versions for key, versions in self._with_unstable(apis) if versions[0] <= versions[1]}

    def _with_unstable(self, apis: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
        unstable = self.release.unstable_apis if self.unstable_apis else {}
        for key in sorted(apis.keys() | unstable.keys()):
            low, high = apis.get(key, (0, -1))
            if key in APIS and key not in BETWEEN_NODES:
                api = APIS[ApiKey(key)]
                low, high = max(low, api.oldest), min(max(high, unstable.get(key, -1)), api.max_version)
            yield key, (low, high)

    @property
    def metadata_version(self) -> int:
        """The highest metadata.version, which is also that of a new cluster."""
        return self.release.unstable_metadata_version if self.unstable_features else self.release.metadata_version


#: The levels that a node supports if no release is configured.
DEFAULT = Advertised()
