"""The commands of `ottla acl`: list, add, remove, why."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter, option_group
from ottla.cli.application import CONNECTION, LISTING, ConnectionOptions, DryRun, ListingOptions, connect, run
from ottla.cli.errors import FAILED, CommandFailed
from ottla.cli.output import note, print_rows, would
from ottla.client.access import (
    NO_HOST,
    AclFilter,
    _resource_text,
    applying_to,
    create_acl,
    delete_acls,
    describe_acls,
    new_entry,
    read_operation,
    read_principal,
    read_resource,
    row_of,
    text_of,
)
from ottla.client.judgement import judge, reason_of
from ottla.server.authorization.operations import (
    ALLOW,
    ANY,
    DENY,
    LITERAL,
    OPERATIONS,
    PREFIXED,
)
from ottla.server.config.broker import ALLOW_EVERYONE, SUPER_USERS

app = App(
    "acl",
    "Who may do what: list, add, remove access control entries, and say why a request is allowed or denied.\n\n"
    "USER is a name, or Type:name. RESOURCE is topic:NAME, group:NAME, transactional-id:NAME, user:NAME or cluster; * stands for all.",
)

COLUMNS = ("permission", "user", "operation", "resource", "pattern", "host")


@option_group
class Form:
    """The form of an entry: whether it allows or denies, which names it is about, and the client's address."""

    deny: Annotated[bool, Parameter(help="Deny instead of allow.")] = False
    prefixed: Annotated[bool, Parameter(help="The name is the beginning of the names that are meant.")] = False
    host: Annotated[str, Parameter(help="An address, or a network such as 10.0.0.0/8; * for all.")] = "*"

    @property
    def pattern(self) -> int:
        return PREFIXED if self.prefixed else LITERAL

    @property
    def permission(self) -> int:
        return DENY if self.deny else ALLOW


FORM = Form()

main = partial(run, app)


@app.named("list")
async def list_(
    resource: str | None = None,
    /,
    *,
    user: Annotated[str | None, Parameter(help="Only entries of this user.")] = None,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show entries: all, or those that count for RESOURCE."""
    wanted = AclFilter() if resource is None else applying_to(*read_resource(resource))
    if user is not None:
        wanted = wanted._replace(principal=read_principal(user))
    async with connect(connection) as cluster:
        entries = await describe_acls(cluster, wanted)
    print_rows(map(row_of, entries), COLUMNS, listing.output)


@app.command
async def add(
    user: str,
    operation: str,
    resource: str,
    /,
    *,
    form: Form = FORM,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Allow (or deny) USER the OPERATION on RESOURCE."""
    entry = new_entry(user, operation, resource, prefixed=form.prefixed, host=form.host, deny=form.deny)
    async with connect(connection) as cluster:
        if dry_run:
            present = entry in await describe_acls(cluster, AclFilter(*entry[:3]))
            would(f"change nothing: {text_of(entry)} is there" if present else f"add: {text_of(entry)}")
            return
        await create_acl(cluster, entry)
    note(f"added: {text_of(entry)}")


@app.command
async def remove(
    user: str,
    operation: str,
    resource: str,
    /,
    *,
    form: Form = FORM,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Remove the entry that `ottla acl add` with the same words has added; `any` as OPERATION means all of them."""
    kind, name = read_resource(resource)
    code = ANY if operation.lower() == "any" else read_operation(operation)
    wanted = AclFilter(kind, name, form.pattern, read_principal(user), form.host, code, form.permission)
    async with connect(connection) as cluster:
        found = await describe_acls(cluster, wanted) if dry_run else []
        removed = len(found) if dry_run else await delete_acls(cluster, wanted)
    if not removed:
        raise CommandFailed("there is no such entry", f"`ottla acl list {resource}` shows what counts for it")
    if dry_run:
        would(f"remove: {'; '.join(map(text_of, found))}")
    else:
        note(f"{removed} removed")


@app.command
async def why(
    user: str,
    operation: str,
    resource: str,
    /,
    *,
    host: Annotated[str, Parameter(help="The address from which the user comes.")] = NO_HOST,
    connection: ConnectionOptions = CONNECTION,
) -> int:
    """Say whether USER may do OPERATION on RESOURCE, and which entry decides, or which one is missing. Exit code 1: denied.

    The broker that answers is asked for super.users and allow.everyone.if.no.acl.found of its file. Apache Kafka hides them:
    the answer then says what it does not know.
    """
    kind, name = read_resource(resource)
    principal, code = read_principal(user), read_operation(operation)
    async with connect(connection) as cluster:
        found, rules_are_known = await judge(cluster, principal, code, kind, name, host)
    print(f"{'allowed' if found.allowed else 'denied'}: {principal} {OPERATIONS[code]} {_resource_text(kind, name)}")
    print(f"by: {reason_of(found)}")
    if found.verdict is None or found.verdict.entry is not None:
        return 0 if found.allowed else FAILED
    if not found.allowed:
        print(f"missing: ottla acl add {principal} {OPERATIONS[code].lower()} {_resource_text(kind, name)}")
    if not rules_are_known:
        print(f"not known: whether the nodes' files have the user among {SUPER_USERS}, or set {ALLOW_EVERYONE}=true")
    return 0 if found.allowed else FAILED
