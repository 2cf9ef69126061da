"""The commands of `ottla token`: delegation tokens (KIP-48): list, create, renew, expire."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, LISTING, ConnectionOptions, DryRun, ListingOptions, Output, connect, run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_rows, would
from ottla.client.access import BROKER_DEFAULT_MS, create_token, describe_tokens, expire_token, renew_token
from ottla.client.cluster import ClusterClient
from ottla.client.values import time_text
from ottla.protocol.messages.shared_structs import TokenPrincipal

app = App(
    "token",
    "Delegation tokens: list, create, renew, expire. HMAC is what `create` prints: the secret of the token.",
)

COLUMNS = ("token_id", "owner", "renewers", "issued", "expires", "ends")
HOUR_MS = 3_600_000

Hours = Annotated[float | None, Parameter(help="Default: the broker's setting.")]

main = partial(run, app)


@app.named("list")
async def list_(
    *,
    owner: Annotated[list[str] | None, Parameter(help="Only tokens of these users.")] = None,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show the tokens that you own or may renew; those of others need a permission. HMACs are not shown."""
    async with connect(connection) as cluster:
        tokens = await describe_tokens(cluster, owner)
    rows = [
        {
            "token_id": token.token_id,
            "owner": f"{token.principal_type}:{token.principal_name}",
            "renewers": _names(token.renewers),
            "issued": time_text(token.issue_timestamp),
            "expires": time_text(token.expiry_timestamp),
            "ends": time_text(token.max_timestamp),
        }
        for token in sorted(tokens, key=lambda token: token.token_id)
    ]
    print_rows(rows, COLUMNS, listing.output)


@app.command
async def create(
    *,
    owner: Annotated[str | None, Parameter(help="Another user, who then owns the token.")] = None,
    renewer: Annotated[list[str] | None, Parameter(help="Who may renew it besides.")] = None,
    hours: Hours = None,
    dry_run: DryRun = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Create a token. A client logs in by SCRAM with its id as the name, its HMAC as the password and tokenauth=true."""
    lifetime_ms = _ms(hours)
    async with connect(connection) as cluster:
        if dry_run:
            await describe_tokens(cluster)  # fails as creating would: no login, no delegation.token.secret.key
            would(f"create a token of {owner or 'this user'}")
            return
        made = await create_token(cluster, owner, renewer or [], lifetime_ms)
    row = {
        "token_id": made.token_id,
        "hmac": b64encode(made.hmac).decode(),
        "owner": f"{made.principal_type}:{made.principal_name}",
        "expires": time_text(made.expiry_timestamp_ms),
        "ends": time_text(made.max_timestamp_ms),
    }
    print_rows([row], tuple(row), output)


@app.command
async def renew(
    hmac: str, /, *, hours: Hours = None, dry_run: DryRun = False, connection: ConnectionOptions = CONNECTION
) -> None:
    """Let a token live longer, up to the end that it was created with."""
    async with connect(connection) as cluster:
        if dry_run:
            would(f"renew the token {await _token_id(cluster, hmac)}")
            return
        expires = await renew_token(cluster, _secret(hmac), _ms(hours))
    note(f"the token expires at {time_text(expires)}")


@app.command
async def expire(
    hmac: str,
    /,
    *,
    hours: Annotated[float | None, Parameter(help="Default: at once.")] = None,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """End a token."""
    async with connect(connection) as cluster:
        if dry_run:
            would(f"end the token {await _token_id(cluster, hmac)}")
            return
        expires = await expire_token(cluster, _secret(hmac), _ms(hours))
    note(f"the token ends at {time_text(expires)}" if hours else "the token has ended")


async def _token_id(cluster: ClusterClient, hmac: str) -> str:
    """Return the id of the token that has this HMAC.

    Raises:
        CommandFailed: there is no such token, or this user may not see it.
    """
    secret = _secret(hmac)
    for token in await describe_tokens(cluster):
        if token.hmac == secret:
            return token.token_id
    raise CommandFailed("no token of those that you may see has this HMAC", "`ottla token list` shows them")


def _ms(hours: float | None) -> int:
    if hours is not None and hours <= 0:
        raise CommandFailed(f"--hours {hours:g} is not above 0", None, USAGE)
    return BROKER_DEFAULT_MS if hours is None else int(hours * HOUR_MS)


def _secret(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise CommandFailed("the HMAC is not base64", "it is what `ottla token create` printed", USAGE) from None


def _names(principals: Sequence[TokenPrincipal]) -> list[str]:
    return [f"{each.principal_type}:{each.principal_name}" for each in principals]
