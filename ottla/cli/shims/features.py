"""kafka-features: the feature levels of the cluster, and those that a release or a feature needs."""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple, NoReturn

from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import HelpfulParser, Unusable, connected, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    describe_features,
    update_features,
)
from ottla.client.failures import Failure
from ottla.protocol.features import FEATURES, METADATA_VERSIONS, default_levels, metadata_version_name
from ottla.protocol.releases import METADATA_VERSION


class Words(NamedTuple):
    """The words that an action prints about its results."""

    verb: str
    done: str


ACTIONS = {
    "upgrade": Words("upgrade", "upgraded"),
    "downgrade": Words("downgrade", "downgraded"),
    "disable": Words("disable", "disabled"),
}


class _Parser(HelpfulParser):
    def error(self, message: str) -> NoReturn:
        raise Unusable(f"Command line error: {self.translated(message)}. Type --help for help.")


def main(arguments: list[str]) -> int:
    try:
        options = _options(arguments)
        if options.command == "version-mapping":
            return version_mapping(options.release_version)
        if options.command == "feature-dependencies":
            return dependencies(options.feature)
        if options.bootstrap_server is None and options.bootstrap_controller is None:
            raise Unusable(
                "Command line error: You must specify either --bootstrap-controller or --bootstrap-server.. Type --help for help."
            )
        connected(options)
        if options.command == "describe":
            return with_cluster(options, describe)
        levels = _levels(options)
        return with_cluster(options, lambda cluster: update(cluster, options, levels))
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
    return 1


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser("kafka-features", "This tool manages feature flags in Kafka.")
    parser.add_bootstrap(required=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("describe", help="Describes the current active feature flags.")
    for name in ACTIONS:
        action = commands.add_parser(name, help=f"{name.capitalize()} one or more feature flags.")
        action.add_argument("--feature", action="append", default=[])
        action.add_argument("--dry-run", action="store_true")
        if name != "disable":
            action.add_argument("--metadata")
            action.add_argument("--release-version", "-r")
        if name != "upgrade":
            action.add_argument("--unsafe", action="store_true")
    mapping = commands.add_parser("version-mapping", help="Look up the feature levels of a release.")
    mapping.add_argument("--release-version", "-r")
    needs = commands.add_parser("feature-dependencies", help="Look up what features need.")
    needs.add_argument("--feature", action="append", default=[], required=True)
    return parser.parse_args(arguments)


async def describe(cluster: ClusterClient) -> int:
    epoch, found = await describe_features(cluster)
    for name, levels in found.items():
        low, high, final = (_shown(name, level) for level in levels)
        print(
            f"Feature: {name:<41} SupportedMinVersion: {low:<16} SupportedMaxVersion: {high:<16} "
            f"FinalizedVersionLevel: {final:<16} Epoch: {epoch}"
        )
    return 0


def _shown(name: str, level: int) -> str:
    return metadata_version_name(level) if name == METADATA_VERSION else str(level)


def version_mapping(release: str | None) -> int:
    level = default_levels()[METADATA_VERSION] if release is None else _metadata_level(release)
    levels = default_levels(level)
    print(f"{METADATA_VERSION}={level} ({release or metadata_version_name(level)})")
    for name in FEATURES:
        print(f"{name}={levels[name]}")
    return 0


def dependencies(features: list[str]) -> int:
    for name, level in _parsed(features).items():
        text = f"{name}={level}"
        needed = 0
        if name == METADATA_VERSION:
            text += f" ({metadata_version_name(level)})"
        elif name not in FEATURES:
            raise Unusable(f"Unknown feature: {name}")
        elif not 0 <= level <= len(FEATURES[name].needs):
            raise Unusable(f"No feature:{name} with feature level {level}")
        elif level:
            needed = FEATURES[name].needs[level - 1]
        if needed:
            print(f"{text} requires:\n    {METADATA_VERSION}={needed} ({metadata_version_name(needed)})")
        else:
            print(f"{text} has no dependencies.")
    return 0


def _metadata_level(text: str) -> int:
    """Return the level of "4.0-IV1". For "4.0" return the last level of the release."""
    levels = [version.level for version in METADATA_VERSIONS if text in (version.name, version.name.partition("-")[0])]
    if not levels:
        names = ", ".join(version.name for version in METADATA_VERSIONS)
        raise Unusable(f"Unknown metadata.version '{text}'. Supported metadata.version are: {names}")
    return levels[-1]


def _parsed(features: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in features:
        name, equals, level = text.partition("=")
        if not equals:
            raise Unusable(f"Can't parse feature=level string {text}: equals sign not found.")
        name = name.strip()
        try:
            number = int(level)
        except ValueError:
            wrong = f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short."
            raise Unusable(wrong) from None
        if name in found:
            raise Unusable(f"Feature {name} was specified more than once.")
        found[name] = number
    return found


def _levels(options: argparse.Namespace) -> dict[str, int]:
    """Return the levels that an action has to set."""
    if options.command == "disable":
        levels = dict.fromkeys(options.feature, 0)
    else:
        if options.release_version and (options.metadata or options.feature):
            raise Unusable("Can not specify `release-version` with other feature flags.")
        levels = _parsed(options.feature)
        if "" in levels:
            raise Unusable("Provided feature can not be empty.")
        if min(levels.values(), default=0) < 0:
            raise Unusable("Cannot specify a negative version level.")
        if options.metadata:
            print(" `metadata` flag is deprecated and may be removed in a future release.")
            levels[METADATA_VERSION] = _metadata_level(options.metadata)
        if options.release_version:
            levels = default_levels(_metadata_level(options.release_version))
    if not levels:
        raise Unusable(f"You must specify at least one feature to {options.command}")
    return levels


async def update(cluster: ClusterClient, options: argparse.Namespace, levels: dict[str, int]) -> int:
    kind = UPGRADE
    if options.command != "upgrade":
        kind = UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    words = ACTIONS[options.command]
    problem = None
    try:
        await update_features(cluster, levels, kind, dry_run=options.dry_run)
    except Failure as failure:
        problem = reason(failure)
    for name, level in sorted(levels.items()):
        to = "" if options.command == "disable" else f" to {level}"
        if problem is not None:
            print(f"{'Can' if options.dry_run else 'Could'} not {words.verb} {name}{to}. {problem}")
        else:
            print(f"{name} {'can be' if options.dry_run else 'was'} {words.done}{to}.")
    if problem is not None:
        raise Unusable(f"{len(levels)} out of {len(levels)} operation(s) failed.")
    return 0
