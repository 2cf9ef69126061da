"""The commands of `ottla feature`: list, upgrade, downgrade (KIP-584)."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, LISTING, ConnectionOptions, ListingOptions, Yes, connect, run
from ottla.cli.commands.topic import split_settings
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import confirm, note, print_rows
from ottla.cli.shared_options import CheckOnly
from ottla.client.cluster_state import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    describe_features,
    update_features,
)
from ottla.client.failures import did_you_mean
from ottla.protocol.features import metadata_version_level, metadata_version_name
from ottla.protocol.releases import METADATA_VERSION

app = App("feature", "Features of the cluster: list, upgrade, downgrade.")

COLUMNS = ("feature", "level", "lowest", "highest")

Levels = Annotated[
    list[str],
    Parameter(help="NAME=LEVEL ...; metadata.version by level or release, such as 4.3."),
]

main = partial(run, app)


@app.named("list")
async def list_(*, listing: ListingOptions = LISTING, connection: ConnectionOptions = CONNECTION) -> None:
    """Show the features: the level that the cluster uses, and those that the broker supports."""
    async with connect(connection) as cluster:
        found = await describe_features(cluster)
    rows = [
        {
            "feature": name,
            "level": _shown(name, levels.finalized),
            "lowest": _shown(name, levels.lowest),
            "highest": _shown(name, levels.highest),
            "epoch": found.epoch,
        }
        for name, levels in found.levels.items()
    ]
    print_rows(rows, COLUMNS, listing.output)


@app.command
async def upgrade(levels: Levels, /, *, dry_run: CheckOnly = False, connection: ConnectionOptions = CONNECTION) -> None:
    """Raise the levels of features, all of them or none. All brokers and controllers must support them."""
    await _update(levels, UPGRADE, dry_run, connection)


@app.command
async def downgrade(
    levels: Levels,
    /,
    *,
    unsafe: Annotated[bool, Parameter(help="Though metadata is lost that the lower level cannot hold.")] = False,
    dry_run: CheckOnly = False,
    yes: Yes = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Lower the levels of features, for the way back to an older version."""
    if unsafe and not dry_run:
        confirm("an unsafe downgrade may lose metadata; go on?", yes)
    await _update(levels, UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE, dry_run, connection)


async def _update(texts: list[str], upgrade_type: int, dry_run: bool, connection: ConnectionOptions) -> None:
    wanted = {name: _level(name, text) for name, text in split_settings(texts, "group.version=1").items()}
    async with connect(connection) as cluster:
        known = (await describe_features(cluster)).levels
        for name in wanted:
            if name not in known:
                hint = did_you_mean(name, known) or "`ottla feature list` shows those that there are"
                raise CommandFailed(f"there is no feature {name!r}", hint, USAGE)
        await update_features(cluster, wanted, upgrade_type, dry_run=dry_run)
    changes = ", ".join(
        f"{name} {_shown(name, known[name].finalized)} -> {_shown(name, level)}" for name, level in wanted.items()
    )
    note(f"{changes}{' would be changed (--dry-run)' if dry_run else ''}")


def _level(name: str, text: str) -> int:
    try:
        return metadata_version_level(text) if name == METADATA_VERSION else int(text)
    except ValueError as fault:
        raise CommandFailed(f"{name}={text}: {fault}", "levels are numbers", USAGE) from None


def _shown(name: str, level: int) -> str:
    return metadata_version_name(level) if name == METADATA_VERSION else str(level)
