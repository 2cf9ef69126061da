"""The option `--story` of `group describe`, `topic describe` and `txn describe`: the last decisions from all nodes that
respond.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from ottla.cli.app import Parameter, option_group
from ottla.cli.application import Admin
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.client.admin_listeners import Story
from ottla.client.cluster import ClusterClient
from ottla.client.values import time_text

COLUMNS = ("time", "node", "cause", "client", "decision")


@option_group
class StoryOptions(Admin):
    """Whether the story is shown, and the admin listeners that have it."""

    story: Annotated[
        bool,
        Parameter(name="--story", help="Show the last decisions instead, and why: of the admin listeners."),
    ] = False


NO_STORY = StoryOptions()


async def listeners_of(cluster: ClusterClient, admin: Admin) -> dict[int, str]:
    """Return the addresses of the brokers' admin listeners.

    Raises:
        CommandFailed: no address is known.
    """
    await cluster.metadata([])
    found = admin.addresses(cluster)
    if not found:
        raise CommandFailed(
            "no admin listener is known, and only these have stories",
            "set ottla.admin.listener in the brokers' files, and pass --admin-port PORT, or --admin ID@HOST:PORT",
            USAGE,
        )
    return found


async def show_story(
    cluster: ClusterClient,
    admin: Admin,
    ask: Callable[[Mapping[int, str]], Awaitable[Story]],
    look: Callable[[], Awaitable[object]],
    output: str,
) -> None:
    """Show the story that `ask` gets from the admin listeners. Fail if none of them responds.

    A group or topic that was deleted may still have a story. If there is no story, `look` asks the cluster for the group or
    topic itself, and fails if it does not exist.
    """
    listeners = await listeners_of(cluster, admin)
    story = await ask(listeners)
    if len(story.failures) == len(listeners):
        raise next(iter(story.failures.values()))
    for node, fault in story.failures.items():
        note(f"node {node}: {fault.text()}")
    if not story.entries:
        await look()
        note("no node that answers remembers a decision about it: a story ends with the process of its node")
    rows = [
        {
            "time": time_text(entry.line.time_ms),
            "node": entry.node,
            "cause": entry.line.cause,
            "client": entry.asker,
            "decision": entry.decision,
        }
        | {"time_ms": entry.line.time_ms, "first_ms": entry.line.first_ms, "times": entry.line.times}
        for entry in story.entries
    ]
    print_rows(rows, COLUMNS, output)
