"""`ottla acl`: list, add, remove, why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli import application
from ottla.cli.application import CONNECTION, Connection, Output, connect
from ottla.cli.client.acls import AclFilter, applying_to, create_acl, delete_acls, describe_acls
from ottla.cli.errors import FAILED, USAGE, CommandFailed, did_you_mean
from ottla.cli.output import note, print_rows
from ottla.server.security.acl import AccessControlEntry, AclIndex, Decision
from ottla.server.security.hosts import java_host
from ottla.server.security.operations import (
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
)

app = App(
    name="acl",
    version_flags=[],
    help="Who may do what: list, add, remove access control entries, and say why a request is allowed or denied.\n\n"
    "USER is a name, or Type:name. RESOURCE is topic:NAME, group:NAME, transactional-id:NAME, user:NAME or cluster; * stands for all.",
)

COLUMNS = ("permission", "user", "operation", "resource", "pattern", "host")
#: An address that no client has: only entries for all hosts apply to it.
NO_HOST = "0.0.0.0"


@Parameter(name="*")
@dataclass(frozen=True)
class Form:
    """The form of an entry: what it does, which names it is about, and the client's address."""

    deny: Annotated[bool, Parameter(negative="", help="Deny instead of allow.")] = False
    prefixed: Annotated[bool, Parameter(negative="", help="The name is the beginning of the names that are meant.")] = (
        False
    )
    host: Annotated[str, Parameter(help="An address, or a network such as 10.0.0.0/8; * for all.")] = "*"

    @property
    def pattern(self) -> int:
        return PREFIXED if self.prefixed else LITERAL

    @property
    def permission(self) -> int:
        return DENY if self.deny else ALLOW


FORM = Form()


def main(arguments: Sequence[str]) -> int:
    return application.run(app, arguments)


@app.command(name="list")
async def list_(
    resource: str | None = None,
    /,
    *,
    user: Annotated[str | None, Parameter(help="Only entries of this user.")] = None,
    output: Output = "table",
    connection: Connection = CONNECTION,
) -> None:
    """Show entries: all, or those that count for RESOURCE."""
    wanted = AclFilter() if resource is None else applying_to(*read_resource(resource))
    if user is not None:
        wanted = wanted._replace(principal=read_principal(user))
    async with connect(connection) as cluster:
        entries = await describe_acls(cluster, wanted)
    print_rows(map(_row, entries), COLUMNS, output)


@app.command
async def add(
    user: str,
    operation: str,
    resource: str,
    /,
    *,
    form: Form = FORM,
    connection: Connection = CONNECTION,
) -> None:
    """Allow (or deny) USER the OPERATION on RESOURCE."""
    kind, name = read_resource(resource)
    principal, code = read_principal(user), read_operation(operation)
    entry = AccessControlEntry(kind, name, form.pattern, principal, form.host, code, form.permission)
    async with connect(connection) as cluster:
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
    connection: Connection = CONNECTION,
) -> None:
    """Remove the entry that `ottla acl add` with the same words has added; `any` as OPERATION means all of them."""
    kind, name = read_resource(resource)
    code = ANY if operation.lower() == "any" else read_operation(operation)
    wanted = AclFilter(kind, name, form.pattern, read_principal(user), form.host, code, form.permission)
    async with connect(connection) as cluster:
        removed = await delete_acls(cluster, wanted)
    if not removed:
        raise CommandFailed("there is no such entry", f"`ottla acl list {resource}` shows what counts for it")
    note(f"{removed} removed")


@app.command
async def why(
    user: str,
    operation: str,
    resource: str,
    /,
    *,
    host: Annotated[str, Parameter(help="The address from which the user comes.")] = NO_HOST,
    connection: Connection = CONNECTION,
) -> int:
    """Say whether USER may do OPERATION on RESOURCE, and which entry decides, or which one is missing. Exit code 1: denied.

    What stands in the nodes' files is not seen: super.users may do everything, and allow.everyone.if.no.acl.found counts where no
    entry is about the resource.
    """
    kind, name = read_resource(resource)
    principal, code = read_principal(user), read_operation(operation)
    index = AclIndex()
    async with connect(connection) as cluster:
        for entry in await describe_acls(cluster, applying_to(kind, name)):
            index.add(entry)
    decision, decided_by = index.decide(principal, java_host(host), code, kind, name)
    asked = f"{principal} {OPERATIONS[code]} {_resource_text(kind, name)}"
    if decided_by is not None:
        print(f"{'allowed' if decision is Decision.ALLOWED else 'denied'}: {asked}\nby: {text_of(decided_by)}")
    else:
        no_entry = "no entry is about it" if decision is Decision.NO_ACL else "none of its entries matches"
        add_it = f"ottla acl add {principal} {OPERATIONS[code].lower()} {_resource_text(kind, name)}"
        print(f"denied: {asked}\nby: {no_entry}\nmissing: {add_it}")
    return 0 if decision is Decision.ALLOWED else FAILED


def read_principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def read_operation(text: str) -> int:
    name = text.upper().replace("-", "_")
    code = next((code for code, known in OPERATIONS.items() if known == name and code > ANY), None)
    if code is None:
        names = [known.lower().replace("_", "-") for code, known in OPERATIONS.items() if code > ANY]
        raise CommandFailed(f"there is no operation {text!r}", did_you_mean(text, names) or ", ".join(names), USAGE)
    return code


def read_resource(text: str) -> tuple[int, str]:
    kind, colon, name = text.partition(":")
    if kind == "cluster" and not colon:
        return CLUSTER, CLUSTER_NAME
    code = next((code for code in RESOURCE_TYPES if code > ANY and _kind_text(code) == kind), None)
    if code is None or not name:
        kinds = ", ".join(f"{_kind_text(code)}:NAME" for code in RESOURCE_TYPES if code > ANY and code != CLUSTER)
        raise CommandFailed(f"{text!r} is no resource", f"cluster, or one of {kinds}", USAGE)
    return code, name


def text_of(entry: AccessControlEntry) -> str:
    row = _row(entry)
    starting = "names that begin with " if entry.pattern_type == PREFIXED else ""
    return f"{row['permission']} {row['user']} {row['operation']} on {starting}{row['resource']} from {row['host']}"


def _row(entry: AccessControlEntry) -> dict[str, object]:
    return {
        "permission": PERMISSIONS[entry.permission_type].lower(),
        "user": entry.principal,
        "operation": OPERATIONS[entry.operation].lower(),
        "resource": _resource_text(entry.resource_type, entry.resource_name),
        "pattern": PATTERN_TYPES[entry.pattern_type].lower(),
        "host": entry.host,
    }


def _resource_text(kind: int, name: str) -> str:
    return "cluster" if kind == CLUSTER else f"{_kind_text(kind)}:{name}"


def _kind_text(code: int) -> str:
    return RESOURCE_TYPES[code].lower().replace("_", "-")
