"""The command `ottla topic copy`."""

from __future__ import annotations

import asyncio
from typing import Annotated

from ottla.cli.app import Parameter
from ottla.cli.application import CONNECTION, ConnectionOptions, DryRun, connect
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, would
from ottla.cli.progress import ProgressLine
from ottla.cli.shared_options import TARGET, Compression, CreatedReplicas, TargetOptions
from ottla.cli.topic_copy import TopicCopy
from ottla.cli.units import duration_text
from ottla.client.cluster import ClusterClient


async def copy(
    source: str,
    target: str,
    /,
    *,
    to: TargetOptions = TARGET,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), help="Go on with what comes later, until Ctrl-C.")
    ] = False,
    replication_factor: CreatedReplicas = -1,
    compression: Compression = "none",
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Copy a topic to another one, which is created if it is missing: partitions, offsets, timestamps, keys, values, headers.

    Without --to, --to-config and --to-context the target is in the same cluster.

    A copy that was stopped goes on where it was. Records of transactions that are open or were aborted are not copied.
    """
    elsewhere = to.connection(connection)
    if source == target and elsewhere is None:
        raise CommandFailed(f"{source} cannot be copied to itself", "--to names another cluster", USAGE)
    async with connect(connection, limited=False) as one, connect(elsewhere or connection, limited=False) as other:
        copying = TopicCopy(one, source, other, target, compression=compression)
        await copying.look()
        if dry_run:
            async with other.limit():
                missing = await copying.create_target(replication_factor, validate_only=True)
            if not missing:
                await copying.start()
            would(f"{'create' if missing else 'go on with'} {target} and copy {copying.left} records")
            return
        async with other.limit():
            if await copying.create_target(replication_factor, validate_only=False):
                note(f"created topic {target}")
        await copying.start()
        await _run(copying, other, follow)


async def _run(copying: TopicCopy, cluster: ClusterClient, follow: bool) -> None:
    clock = cluster.world.clock
    began_ms, left = clock.mono_ms(), copying.left
    what = f"copying {copying.source_topic} to {copying.target_topic}"
    try:
        with ProgressLine(what, None if follow else left, "records", began_ms) as progress:
            await copying.run(lambda copied: progress.update(copied, clock.mono_ms()), follow=follow)
    except asyncio.CancelledError:
        note(f"stopped after {copying.copied} records; the same command goes on there")
        raise
    took = duration_text((clock.mono_ms() - began_ms) / 1000)
    note(
        f"{copying.copied} records copied in {took}; {copying.target_topic} has all {sum(copying.next.values())} offsets"
    )
