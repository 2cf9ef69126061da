"""The commands of `ottla mirror`: run a worker; show how far the mirror is; show the offsets of groups in the target."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated, Literal

from ottla.cli.app import App, Parameter, option_group
from ottla.cli.application import (
    CONNECTION,
    LISTING,
    ConnectionOptions,
    DryRun,
    ListingOptions,
    Output,
    connect,
    repeat,
    run,
)
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_rows, would
from ottla.cli.progress import ProgressLine
from ottla.cli.shared_options import TARGET, CreatedReplicas, TargetOptions, read_address
from ottla.cli.units import duration_text, size_text
from ottla.client.cluster import ClusterClient
from ottla.client.errors import NO_SUCH_TOPIC, ClusterError
from ottla.client.failures import counted, did_you_mean
from ottla.mirror.catalogue import Catalogue
from ottla.mirror.checkpoints import CheckpointLog, apply_checkpoints
from ottla.mirror.formats import Checkpoint
from ottla.mirror.names import DEFAULT, GROUPS_EXCLUDED, IDENTITY, TOPICS_EXCLUDED, Policy, Selection, check_alias
from ottla.mirror.options import Clusters, MirrorOptions
from ottla.mirror.positions import Positions
from ottla.mirror.progress import families, lag_rows
from ottla.mirror.worker import Worker
from ottla.server.address import Address
from ottla.server.admin import AdminServer, Check
from ottla.server.loop_watch import watched
from ottla.server.metrics import Registry
from ottla.server.world import World

app = App(
    "mirror",
    "Mirror topics, records, offsets of groups and ACLs of one cluster in another: run, status, offsets.",
)

main = partial(run, app)

PROGRESS_S = 0.5
#: A worker with a shorter interval would ask both clusters without a pause.
SECONDS_MIN = 0.1
STATUS_COLUMNS = ("topic", "partition", "target_topic", "position", "end", "lag")
OFFSET_COLUMNS = ("group", "topic", "partition", "source", "offset")
CLIENT_ID = "ottla-mirror"


@option_group
class TopicOptions:
    """Which topics are mirrored, and their names in the target."""

    topics: Annotated[
        list[str] | None,
        Parameter(help="Names or regular expressions of the topics to mirror; default: all but internal ones."),
    ] = None
    exclude: Annotated[
        list[str] | None, Parameter(help="Of these, not to mirror. Default: MirrorMaker's topics.exclude.")
    ] = None
    policy: Annotated[
        Literal["default", "identity"],
        Parameter(help="Names in the target: SOURCE.topic, or the same as in the source."),
    ] = "default"

    def selection(self) -> Selection:
        return Selection(self.topics or (".*",), TOPICS_EXCLUDED if self.exclude is None else self.exclude)

    def names(self, source: str, target: str) -> Policy:
        """Return the names of the mirror.

        Raises:
            CommandFailed: a text cannot be an alias, or both are the same.
        """
        if source == target:
            raise CommandFailed(f"{source} cannot be mirrored to itself", "the aliases are of two clusters", USAGE)
        return Policy(check_alias(source), check_alias(target), IDENTITY if self.policy == "identity" else DEFAULT)


@option_group
class GroupOptions:
    """The groups whose offsets are translated."""

    offset_syncs: Annotated[
        Literal["source", "target", "none"],
        Parameter(help="The cluster that keeps the pairs of offsets by which offsets of groups are translated."),
    ] = "source"
    groups: Annotated[
        list[str] | None,
        Parameter(help="Names or regular expressions of the groups whose offsets are translated; default: all."),
    ] = None
    exclude_groups: Annotated[
        list[str] | None,
        Parameter(help="Of these, not to translate. Default: MirrorMaker's groups.exclude."),
    ] = None
    checkpoint_every: Annotated[float, Parameter(help="Seconds between two translations of the groups' offsets.")] = (
        60.0
    )
    sync_group_offsets: Annotated[
        bool, Parameter(help="Set them in the target, for groups that have no members there.")
    ] = False

    def selection(self) -> Selection:
        return Selection(
            self.groups or (".*",), GROUPS_EXCLUDED if self.exclude_groups is None else self.exclude_groups
        )


TOPICS, GROUPS = TopicOptions(), GroupOptions()


@app.named("run")
async def run_worker(
    source: str,
    target: str,
    /,
    *,
    to: TargetOptions = TARGET,
    chosen: TopicOptions = TOPICS,
    begin: Annotated[
        Literal["earliest", "latest"], Parameter(help="Where partitions begin that were never mirrored.")
    ] = "earliest",
    delivery: Annotated[
        Literal["exactly-once", "at-least-once"], Parameter(help="With transactions in the target, or without.")
    ] = "exactly-once",
    throttle: Annotated[float | None, Parameter(help="Bytes per second that this worker reads.")] = None,
    replication_factor: CreatedReplicas = -1,
    settings: Annotated[bool, Parameter(help="Leave the settings of the target's topics alone.")] = True,
    refresh: Annotated[float, Parameter(help="Seconds between two looks for topics, partitions and settings.")] = 30.0,
    session_timeout_ms: Annotated[
        int, Parameter(help="A worker that is silent for so long loses its partitions to the others.")
    ] = 10_000,
    groups: GroupOptions = GROUPS,
    acls: Annotated[bool, Parameter(help="Give readers of the source's topics no permission in the target.")] = True,
    metrics: Annotated[
        str | None, Parameter(help="HOST:PORT of /metrics for Prometheus, and of /readyz; port 0 takes a free one.")
    ] = None,
    heartbeats: Annotated[bool, Parameter(help="Neither write MirrorMaker's heartbeats nor mirror them.")] = True,
    once: Annotated[bool, Parameter(help="End when all is mirrored that is there now.")] = False,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Run a worker from SOURCE to TARGET, until it is interrupted. More of them share the partitions.

    SOURCE and TARGET are the aliases of the clusters, which begin the names of topics. The source's brokers are those of --bootstrap,
    and the target's those of --to; without either, the aliases are the names of contexts.
    """
    if throttle is not None and throttle <= 0:
        raise CommandFailed(f"--throttle {throttle:g} is not above 0", None, USAGE)
    for option, seconds in (("--refresh", refresh), ("--checkpoint-every", groups.checkpoint_every)):
        if seconds < SECONDS_MIN:
            raise CommandFailed(f"{option} {seconds:g} is below {SECONDS_MIN:g}", None, USAGE)
    if not 0 < session_timeout_ms < 2**31:
        raise CommandFailed(f"--session-timeout-ms {session_timeout_ms} is no time", None, USAGE)
    metrics_at = None if metrics is None else read_address("--metrics", metrics, is_own=True)
    options = MirrorOptions(
        chosen.names(source, target),
        chosen.selection(),
        from_latest=begin == "latest",
        exactly_once=delivery == "exactly-once",
        bytes_per_s=throttle,
        replication_factor=replication_factor,
        copy_settings=settings,
        copy_acls=acls,
        refresh_s=refresh,
        offset_syncs=groups.offset_syncs,
        groups=groups.selection(),
        checkpoint_s=groups.checkpoint_every,
        set_group_offsets=groups.sync_group_offsets,
        heartbeats=heartbeats,
        session_ms=session_timeout_ms,
    )
    one, other = _sides(source, target, connection, to)
    async with _clusters(one, other) as clusters:
        worker = Worker(clusters, options, lambda text: note(f"mirror {source} to {target}: {text}"))
        if dry_run:
            await worker.look()
            _show_plan(worker)
            return
        await worker.start()
        async with _metrics(worker, metrics_at, clusters.source.world):
            await _run(worker, once)


@app.command
def status(
    source: str,
    target: str,
    /,
    *,
    to: TargetOptions = TARGET,
    chosen: TopicOptions = TOPICS,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show how far the mirror from SOURCE to TARGET is: of each partition the position in the source, its end, and the lag."""
    one, other = _sides(source, target, connection, to)
    naming, selection = chosen.names(source, target), chosen.selection()

    async def look() -> None:
        async with _clusters(one, other, limited=True) as clusters:
            catalogue = Catalogue(clusters.source, clusters.target, naming, selection, note)
            positions = Positions(clusters.positions, naming.positions_topic, source)
            rows = await lag_rows(clusters, catalogue, positions)
        for row in rows:
            if row["recreated"]:
                note(
                    f"{row['topic']}-{row['partition']}: its topic was deleted and created again, and is mirrored from its beginning"
                )
        lags = [row["lag"] for row in rows if isinstance(row["lag"], int)]
        if listing.output == "table":
            note(
                f"{source} to {target}: {counted(sum(lags), 'record')} behind in {counted(len(rows), 'partition')}, {len(rows) - len(lags)} without a position"
            )
        print_rows(rows, STATUS_COLUMNS, listing.output)

    repeat(look, listing)


@app.command
async def offsets(
    source: str,
    groups: Annotated[list[str] | None, Parameter(help="Groups; default: all.")] = None,
    /,
    *,
    set_them: Annotated[
        bool,
        Parameter(name="--set", help="Set them in the target, for groups that have no members there."),
    ] = False,
    dry_run: DryRun = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show what the offsets of SOURCE's groups are in the target, which --bootstrap names. The source is not needed."""
    naming = Policy(check_alias(source), "")
    async with connect(connection) as cluster:
        try:
            known = await CheckpointLog(cluster, naming.checkpoints_topic).read()
        except ClusterError as fault:
            if fault.code not in NO_SUCH_TOPIC:
                raise
            remedy = f"`ottla mirror run {source} TARGET` does so, if it is the alias of the source"
            raise CommandFailed(f"no mirror from {source} has translated offsets in this cluster", remedy) from None
        wanted = sorted(known) if groups is None else groups
        for group in wanted:
            if group not in known:
                hint = did_you_mean(group, known) or f"`ottla mirror run {source} TARGET` translates them"
                raise CommandFailed(f"group {group} has no checkpoint from {source}", hint)
        rows = [_offset_row(row) for group in wanted for _, row in sorted(known[group].items())]
        print_rows(rows, OFFSET_COLUMNS, output)
        if set_them and dry_run:
            would(f"set {counted(len(rows), 'offset')} of {counted(len(wanted), 'group')}")
        elif set_them:
            for group in wanted:
                done = await apply_checkpoints(cluster, group, known[group])
                for text in done.texts:
                    note(text)
                note(f"group {group}: set {len(done.offsets)} of {counted(len(known[group]), 'offset')}")


def _offset_row(row: Checkpoint) -> dict[str, object]:
    name, index = row.place
    return {"group": row.group, "topic": name, "partition": index, "source": row.upstream, "offset": row.downstream}


async def _run(worker: Worker, once: bool) -> None:
    loop, clock = asyncio.get_running_loop(), worker.clock
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, worker.stop)
    began_ms = clock.mono_ms()
    policy = worker.options.policy
    running = asyncio.ensure_future(worker.run())
    ending = asyncio.ensure_future(worker.wait_until_mirrored()) if once else None
    try:
        with ProgressLine(f"mirroring {policy.source} to {policy.target}", None, "records", began_ms) as progress:
            while not running.done():
                await asyncio.wait(
                    {running} | ({ending} if ending else set()), timeout=PROGRESS_S, return_when=asyncio.FIRST_COMPLETED
                )
                progress.update(
                    worker.counts.records, clock.mono_ms(), worker.counts.records + sum(worker.lags.values())
                )
                if ending is not None and ending.done():
                    ending.result()
                    worker.stop()
                    break
            await running
    finally:
        if ending is not None:
            ending.cancel()
    counts, left = worker.counts, sum(worker.lags.values())
    took = duration_text((clock.mono_ms() - began_ms) / 1000)
    note(f"{counted(counts.records, 'record')} ({size_text(counts.bytes)}) mirrored in {took}, {left} are left")
    missing = [f"{name}-{index}: {why}" for (name, index), why in sorted(worker.stopped.items())]
    missing += [f"{name}: {why}" for name, why in sorted(worker.catalogue.refused.items())]
    if once and missing:
        raise CommandFailed(f"not mirrored: {'; '.join(missing)}", "the same command goes on where this one ended")


def _show_plan(worker: Worker) -> None:
    catalogue, policy = worker.catalogue, worker.options.policy
    missing = catalogue.missing()
    for name in catalogue.topics:
        note(f"would mirror {name} to {policy.remote(name)}{', which it would create' if name in missing else ''}")
    for name in catalogue.cycles:
        note(f"would not mirror {name}, because {catalogue.why_cycles}")
    note("nothing was changed (--dry-run)")


def _sides(
    source: str, target: str, one: ConnectionOptions, to: TargetOptions
) -> tuple[ConnectionOptions, ConnectionOptions]:
    """Return the connections to both clusters; an alias without an address is the name of a context."""
    other = to.connection(one) or ConnectionOptions(None, None, target, one.timeout)
    if one.bootstrap is None and one.config is None and one.context is None:
        one = ConnectionOptions(None, None, source, one.timeout)
    return one, other


@asynccontextmanager
async def _metrics(worker: Worker, address: Address | None, world: World) -> AsyncIterator[None]:
    if address is None:
        with watched():
            yield
        return
    host, port = address
    registry = Registry()
    registry.add(lambda: families(worker))

    def checks() -> list[Check]:
        stopped = sorted(f"{name}-{index}" for name, index in worker.stopped)
        return [Check("partitions", not stopped, f"not taken by the target: {', '.join(stopped)}" if stopped else "")]

    server = AdminServer(world, host, port, registry, list, checks)
    await server.start()
    note(f"metrics at http://{host or 'localhost'}:{server.port}/metrics")
    try:
        with watched() as watch:
            registry.add(watch)
            yield
    finally:
        await server.stop()


@asynccontextmanager
async def _clusters(
    source: ConnectionOptions, target: ConnectionOptions, *, limited: bool = False
) -> AsyncIterator[Clusters]:
    async with AsyncExitStack() as stack:
        made: list[ClusterClient] = [
            await stack.enter_async_context(connect(side, limited=limited, client_id=CLIENT_ID))
            for side in (source, source, target, target, target)
        ]
        yield Clusters(*made)
