"""The commands of `ottla mirror`: run a worker, and show how far a mirror is."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated, Literal

from cyclopts import App, Parameter

from ottla.cli.application import CONNECTION, Connection, DryRun, connect, run
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note
from ottla.cli.progress import Progress, duration_text, size_text
from ottla.mirror.names import DEFAULT, IDENTITY, TOPICS_EXCLUDED, Policy, Selection, check_alias
from ottla.mirror.worker import Clusters, Options, Worker

app = App(
    name="mirror",
    version_flags=[],
    help="Mirror topics, records, offsets of groups and ACLs of one cluster in another.",
)

main = partial(run, app)

PROGRESS_S = 0.5
CLIENT_ID = "ottla-mirror"

Topics = Annotated[
    list[str] | None,
    Parameter(
        negative="", help="Names or regular expressions of the topics to mirror; default: all but internal ones."
    ),
]
Exclude = Annotated[
    list[str] | None, Parameter(negative="", help="Of these, not to mirror. Default: MirrorMaker's topics.exclude.")
]
To = Annotated[str | None, Parameter(help="Brokers of the target.")]
ToConfig = Annotated[str | None, Parameter(help="Client properties for the target.")]
ToContext = Annotated[str | None, Parameter(help="The target, as `ottla context set` named it.")]
Naming = Annotated[
    Literal["default", "identity"], Parameter(help="Names in the target: SOURCE.topic, or the same as in the source.")
]


@app.command(name="run")
async def run_worker(
    source: str,
    target: str,
    /,
    *,
    to: To = None,
    to_config: ToConfig = None,
    to_context: ToContext = None,
    topics: Topics = None,
    exclude: Exclude = None,
    policy: Naming = "default",
    begin: Annotated[
        Literal["earliest", "latest"], Parameter(help="Where partitions begin that were never mirrored.")
    ] = "earliest",
    delivery: Annotated[
        Literal["exactly-once", "at-least-once"], Parameter(help="With transactions in the target, or without.")
    ] = "exactly-once",
    throttle: Annotated[float | None, Parameter(help="Bytes per second that this worker reads.")] = None,
    replication_factor: Annotated[
        int, Parameter(name=["--replication-factor", "-r"], help="Of topics that are created; -1: the brokers'.")
    ] = -1,
    settings: Annotated[bool, Parameter(help="Keep the settings of topics alike.")] = True,
    refresh: Annotated[float, Parameter(help="Seconds between two looks for topics, partitions and settings.")] = 30.0,
    session_timeout_ms: Annotated[
        int, Parameter(help="A worker that is silent for so long loses its partitions to the others.")
    ] = 10_000,
    once: Annotated[bool, Parameter(negative="", help="End when all is mirrored that is there now.")] = False,
    dry_run: DryRun = False,
    connection: Connection = CONNECTION,
) -> None:
    """Run a worker from SOURCE to TARGET, until it is interrupted. More of them share the partitions.

    SOURCE and TARGET are the aliases of the clusters, which begin the names of topics. The source's brokers are those of --bootstrap,
    and the target's those of --to; without either, the aliases are the names of contexts.
    """
    if throttle is not None and throttle <= 0:
        raise CommandFailed(f"--throttle {throttle:g} is not above 0", None, USAGE)
    if not 0 < session_timeout_ms < 2**31:
        raise CommandFailed(f"--session-timeout-ms {session_timeout_ms} is no time", None, USAGE)
    options = Options(
        Policy(check_alias(source), check_alias(target), IDENTITY if policy == "identity" else DEFAULT),
        Selection(topics or (".*",), exclude if exclude is not None else TOPICS_EXCLUDED),
        from_latest=begin == "latest",
        exactly_once=delivery == "exactly-once",
        bytes_per_s=throttle,
        replication_factor=replication_factor,
        copy_settings=settings,
        refresh_s=refresh,
        session_ms=session_timeout_ms,
    )
    if source == target:
        raise CommandFailed(f"{source} cannot be mirrored to itself", "the aliases are of two clusters", USAGE)
    one, other = _sides(source, target, connection, Connection(to, to_config, to_context, connection.timeout))
    async with _clusters(one, other) as clusters:
        worker = Worker(clusters, options, lambda text: note(f"mirror {source} to {target}: {text}"))
        if dry_run:
            await worker.look()
            _show_plan(worker)
            return
        await worker.start()
        await _run(worker, once)


async def _run(worker: Worker, once: bool) -> None:
    loop, clock = asyncio.get_running_loop(), worker.clock
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, worker.stop)
    began_ms = clock.mono_ms()
    policy = worker.options.policy
    running = asyncio.ensure_future(worker.run())
    ending = asyncio.ensure_future(worker.wait_until_mirrored()) if once else None
    try:
        with Progress(f"mirroring {policy.source} to {policy.target}", None, "records", began_ms) as progress:
            while not running.done():
                await asyncio.wait(
                    {running} | ({ending} if ending else set()), timeout=PROGRESS_S, return_when=asyncio.FIRST_COMPLETED
                )
                progress.update(worker.counts.records, clock.mono_ms(), worker.counts.records + worker.lag)
                if ending is not None and ending.done():
                    ending.result()
                    worker.stop()
                    break
            await running
    finally:
        if ending is not None:
            ending.cancel()
    counts = worker.counts
    took = duration_text((clock.mono_ms() - began_ms) / 1000)
    note(f"{counts.records} records ({size_text(counts.bytes)}) mirrored in {took}, {worker.lag} are left")
    for (name, index), why in sorted(worker.stopped.items()):
        note(f"{name}-{index} is not mirrored: {why}")


def _show_plan(worker: Worker) -> None:
    catalogue, policy = worker.catalogue, worker.options.policy
    missing = catalogue.missing()
    for name in catalogue.topics:
        note(f"would mirror {name} to {policy.remote(name)}{', which it would create' if name in missing else ''}")
    for name in catalogue.cycles:
        note(f"would not mirror {name}: it came from {policy.target}")
    note("nothing was changed (--dry-run)")


def _sides(source: str, target: str, one: Connection, other: Connection) -> tuple[Connection, Connection]:
    """Return the connections to both clusters; an alias without an address is the name of a context."""
    if one.bootstrap is None and one.config is None and one.context is None:
        one = Connection(None, None, source, one.timeout)
    if other.bootstrap is None and other.config is None and other.context is None:
        other = Connection(None, None, target, other.timeout)
    return one, other


@asynccontextmanager
async def _clusters(source: Connection, target: Connection) -> AsyncIterator[Clusters]:
    async with AsyncExitStack() as stack:
        made: list[ClusterClient] = [
            await stack.enter_async_context(connect(side, limited=False, client_id=CLIENT_ID))
            for side in (source, source, target, target, target)
        ]
        yield Clusters(*made)
