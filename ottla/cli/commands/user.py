"""The commands of `ottla user`: SCRAM credentials (KIP-554): list, create, passwd, delete."""

from __future__ import annotations

import secrets
import sys
from functools import partial
from typing import Annotated, Literal

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, LISTING, ConnectionOptions, DryRun, ListingOptions, Yes, connect, run
from ottla.cli.errors import FAILED, USAGE, CommandFailed
from ottla.cli.output import confirm, note, print_rows, would
from ottla.client.access import NewPassword, alter_scram_user, describe_scram_users
from ottla.client.failures import did_you_mean
from ottla.server.sasl.scram import ITERATIONS_MIN

app = App(
    "user",
    "Users that log in by SCRAM: list, create, change the password, delete.\n\n"
    "The password is asked for at a terminal, else it is the first line of standard input; --generate makes one and prints it.",
)

COLUMNS = ("user", "mechanism", "iterations")
PASSWORD_BYTES = 18

Mechanism = Annotated[Literal["SCRAM-SHA-256", "SCRAM-SHA-512"], Parameter(name=("--mechanism", "-m"))]
Iterations = Annotated[int, Parameter(help="Of the hash: more cost the server and a thief of the metadata more.")]
Generate = Annotated[bool, Parameter(help="Make a random password and print it.")]

main = partial(run, app)


@app.named("list")
async def list_(
    names: list[str] | None = None,
    /,
    *,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show the users that have SCRAM credentials. Passwords are not kept anywhere, only their salted hashes."""
    async with connect(connection) as cluster:
        found = await describe_scram_users(cluster, names)
    if names and (missing := sorted(set(names) - found.keys())):
        raise CommandFailed(f"user {missing[0]} has no SCRAM credentials", None, FAILED)
    rows = [
        {"user": user, "mechanism": mechanism, "iterations": iterations}
        for user, credentials in sorted(found.items())
        for mechanism, iterations in sorted(credentials.items())
    ]
    print_rows(rows, COLUMNS, listing.output)


@app.command
async def create(
    name: str,
    /,
    *,
    mechanism: Mechanism = "SCRAM-SHA-512",
    iterations: Iterations = ITERATIONS_MIN,
    generate: Generate = False,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Create a user. What it may do is for `ottla acl add`."""
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            if mechanism in (await describe_scram_users(cluster, [name])).get(name, {}):
                raise CommandFailed(f"user {name} exists already", f"`ottla user passwd {name}` changes the password")
        if dry_run:
            would(f"create user {name} with {mechanism}")
            return
        password = _password(generate)
        async with cluster.limit():
            await alter_scram_user(cluster, name, {mechanism: NewPassword(password, iterations)})
    note(f"user {name} can log in by {mechanism}")


@app.command
async def passwd(
    name: str,
    /,
    *,
    mechanism: Annotated[
        Literal["SCRAM-SHA-256", "SCRAM-SHA-512"] | None,
        Parameter(name=("--mechanism", "-m"), help="Default: all that the user has."),
    ] = None,
    generate: Generate = False,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Change the password of a user. Connections that are open stay; the next login needs the new one."""
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            present = (await describe_scram_users(cluster)).get(name, {})
            known = present.keys() if mechanism is None else present.keys() & {mechanism}
            if not known:
                await _refuse(name, list(await describe_scram_users(cluster)))
        if dry_run:
            would(f"change the password of user {name} for {', '.join(sorted(known))}")
            return
        password = _password(generate)
        # One request for each user: Kafka rejects a request that alters a user twice.
        for each in sorted(known):
            async with cluster.limit():
                await alter_scram_user(cluster, name, {each: NewPassword(password, present[each])})
    note(f"user {name} has a new password for {', '.join(sorted(known))}")


@app.command
async def delete(
    name: str, /, *, dry_run: DryRun = False, yes: Yes = False, connection: ConnectionOptions = CONNECTION
) -> None:
    """Delete all SCRAM credentials of a user. Its ACLs stay: `ottla acl list --user` shows them."""
    async with connect(connection) as cluster:
        users = await describe_scram_users(cluster)
        if name not in users:
            await _refuse(name, list(users))
        if dry_run:
            would(f"delete user {name} ({', '.join(sorted(users[name]))})")
            return
        confirm(f"delete user {name}?", yes)
        for each in sorted(users[name]):
            await alter_scram_user(cluster, name, {}, [each])
    note(f"deleted user {name}")


async def _refuse(name: str, known: list[str]) -> None:
    hint = did_you_mean(name, known) or "`ottla user list` shows those that there are"
    raise CommandFailed(f"user {name} has no SCRAM credentials", hint)


def _password(generate: bool) -> str:
    """Return a password: a random one, which is printed, or one that is read from the terminal or standard input."""
    if generate:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        print(password)
        return password
    if sys.stdin.isatty():
        from getpass import getpass

        password = getpass("password: ")
        if getpass("once more: ") != password:
            raise CommandFailed("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandFailed("there is no password", "write it to standard input, or pass --generate", USAGE)
    return password
