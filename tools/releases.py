"""Makes the tables of ottla/protocol/release_tables from the releases of Apache Kafka themselves: run on each release's own jars.

    python -m tools.releases            all of them
    python -m tools.releases 2.8.2      one

The jars come by Maven into the user's cache, 100 MB a release. `apache_kafka/ReleaseFacts.java` prints what a release says of its APIs,
configurations and levels; a table keeps of the configurations what differs from the newest release.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from ottla.protocol.releases import NEWEST, RELEASES
from tools.apache_kafka.jars import HERE
from tools.apache_kafka.programs import compiled, java_command

TABLES = Path(__file__).parent.parent / "ottla" / "protocol" / "release_tables"
WIDTH = 118
#: Releases whose clusters had ZooKeeper; KRaft is ready for production since 3.3 (KIP-833).
ZOOKEEPER = ("2.1.1", "2.4.1", "2.8.2", "3.0.2")
#: Features were finalized from this lowest metadata.version before 4.0 (KIP-584, KIP-1013).
LOWEST_BEFORE_4 = 1
LOWEST = 7
KINDS = ("broker", "topic", "group")


class Config(NamedTuple):
    """A configuration: type, importance, whether it is internal, and `null`, `REQUIRED` or `=` with the default's text."""

    type: str
    importance: str
    internal: bool
    default: str


class Facts(NamedTuple):
    """The output for one release: lines of APIs, configurations by kind and name, the line of its metadata.version,
    features, and names of the broker's configurations that can be changed while it runs.
    """

    apis: list[list[str]]
    configs: dict[str, dict[str, Config]]
    metadata_versions: list[tuple[int, bool]]
    features: dict[str, int]
    dynamic: set[str]


def facts_of(release: str) -> Facts:
    """Run the program on the jars of a release. Raises OracleUnavailable, or CalledProcessError if it fails."""
    source = HERE / "ReleaseFacts.java"
    command = java_command(source.stem, extra_classpath=str(compiled(source, version=release)), version=release)
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    facts = Facts([], {kind: {} for kind in KINDS}, [], {}, set())
    for line in printed.splitlines():
        kind, *words = line.split(" ")
        if kind == "api":
            facts.apis.append(words)
        elif kind == "config":
            of, name, type_name, importance, internal, *default = words
            facts.configs[of][name] = Config(type_name, importance, internal == "true", " ".join(default))
        elif kind == "metadata":
            facts.metadata_versions.append((int(words[0]), words[-1] == "latest"))
        elif kind == "feature":
            facts.features[words[0]] = int(words[1])
        elif kind == "dynamic":
            facts.dynamic.add(words[0])
    return facts


def ranges(facts: Facts, *listeners: str) -> list[str]:
    """Return the stable versions of each API at these listeners, as key:low-high."""
    rows = []
    for key, _, versions, at, *_ in facts.apis:
        stable = versions.partition("/")[0]
        low, high = stable.split("-", 1)
        if set(at.split(",")) & set(listeners) and int(low) <= int(high):
            rows.append((int(key), f"{key}:{stable}"))
    return [text for _, text in sorted(rows)]


def unstable(facts: Facts) -> list[str]:
    return [
        f"{words[0]}:{high}-{high}"
        for words in facts.apis
        if words[-1] == "unstable"
        for high in [words[2].partition("/")[2]]
    ]


def table(release: str, facts: Facts, newest: Facts) -> str:
    """Return the text of a release's table; releases.py reads it."""
    is_zookeeper = release in ZOOKEEPER
    sections = {
        "broker apis": ranges(facts, "ZK_BROKER") if is_zookeeper else ranges(facts, "BROKER"),
        "controller apis": [] if is_zookeeper else ranges(facts, "CONTROLLER"),
        "unstable apis": unstable(facts),
        "features": [] if is_zookeeper else features(release, facts),
        "unstable features": [] if is_zookeeper else unstable_features(facts),
        "broker dynamic": sorted((facts.dynamic - newest.dynamic) & facts.configs["broker"].keys()),
        "broker static": sorted((newest.dynamic - facts.dynamic) & facts.configs["broker"].keys()),
    }
    rows: dict[str, list[str]] = {}
    for kind in KINDS:
        own, base = facts.configs[kind], newest.configs[kind]
        sections[f"{kind} lacks"] = sorted(
            name for name, config in base.items() if name not in own or (own[name].internal and not config.internal)
        )
        rows[f"{kind} rows"] = [
            f"{name} {config.type} {config.default}"
            for name, config in sorted(own.items())
            if not config.internal and differs(config, base.get(name))
        ]
    lines = []
    for name, words in sections.items():
        if words:
            text = fill(" ".join(words), WIDTH, break_long_words=False, break_on_hyphens=False)
            lines += [f"[{name}]", text]
    for name, texts in rows.items():
        if texts:
            lines += [f"[{name}]", *texts]
    return "\n".join(lines)


def module_of(name: str) -> str:
    """Return the name of the module with a release's table: "v2_8" of "2.8.2"."""
    return "v" + name.rpartition(".")[0].replace(".", "_")


def differs(config: Config, other: Config | None) -> bool:
    return other is None or other.internal or (config.type, config.default) != (other.type, other.default)


def features(release: str, facts: Facts) -> list[str]:
    """Return the ranges of features as name:low-high: the highest metadata.version is the one for production."""
    lowest = LOWEST_BEFORE_4 if release < "4" else LOWEST
    levels = [f"{name}:0-{level}" for name, level in sorted(facts.features.items()) if level > 0]
    return [f"metadata.version:{lowest}-{highest_production(facts)}", *levels]


def unstable_features(facts: Facts) -> list[str]:
    """Return the metadata.version above the one for production, for releases that have a property for it."""
    highest = max(level for level, _ in facts.metadata_versions)
    has = "unstable.feature.versions.enable" in facts.configs["broker"] and highest > highest_production(facts)
    return [f"metadata.version:{highest}-{highest}"] if has else []


def highest_production(facts: Facts) -> int:
    return next(level for level, is_latest in facts.metadata_versions if is_latest)


def main() -> None:
    wanted = sys.argv[1:] or [name for name in RELEASES if name != NEWEST]
    newest = facts_of(NEWEST)
    for release in wanted:
        text = table(release, facts_of(release), newest)
        file = TABLES / f"{module_of(release)}.py"
        head = f'"""Apache Kafka {release}: its APIs, features and configurations, made by `python -m tools.releases {release}`."""'
        file.write_text(f'{head}\n\nTABLE = """\n{text}\n"""\n')
        print(file.name, len(text))


if __name__ == "__main__":
    main()
