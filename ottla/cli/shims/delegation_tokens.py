"""kafka-delegation-tokens: create, renew, expire and describe delegation tokens (KIP-48)."""

from __future__ import annotations

import argparse
import base64
import binascii
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

from ottla.cli.shims.exceptions import exception
from ottla.cli.shims.tool import ToolParser, Unusable, with_cluster
from ottla.client.access import create_token, describe_tokens, expire_token, renew_token
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure

ACTIONS = ("create", "renew", "expire", "describe")
REQUIRED = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}
FORBIDDEN = {
    "create": ("hmac", "renew-time-period", "expiry-time-period"),
    "renew": ("renewer-principal", "max-life-time-period", "expiry-time-period", "owner-principal"),
    "expire": ("renew", "max-life-time-period", "renew-time-period", "owner-principal"),
    "describe": ("renew-time-period", "max-life-time-period", "hmac", "expiry-time-period"),
}
COLUMNS = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
WIDTHS = (15, 30, 15, 15, 25, 15, 15, 15)


def main(arguments: list[str]) -> int:
    parser = ToolParser(
        "kafka-delegation-tokens", "This tool helps to create, renew, expire, or describe delegation tokens."
    )
    parser.add_bootstrap()
    parser.flags(*ACTIONS)
    parser.lists("owner-principal", "renewer-principal")
    parser.numbers("max-life-time-period", "renew-time-period", "expiry-time-period")
    parser.texts("hmac")
    options = parser.parse(arguments, bootstrap=False)
    actions = [name for name in ACTIONS if getattr(options, name)]
    if len(actions) != 1:
        parser.usage_error("Command must include exactly one action: --create, --renew, --expire or --describe")
    parser.require(options, "bootstrap-server", "command-config", *REQUIRED[actions[0]])
    parser.forbid(options, actions[0], *FORBIDDEN[actions[0]])
    parser.connect(options)
    try:
        for principal in (*options.owner_principal, *options.renewer_principal):
            if ":" not in principal:
                raise Unusable(f"expected a string in format principalType:principalName but got {principal}")
        return with_cluster(options, lambda cluster: RUN[actions[0]](cluster, options))
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        print(exception(failure), file=sys.stderr)
    return 1


def _list(principals: Iterable[str]) -> str:
    return f"[{', '.join(principals)}]"


def _minute(timestamp_ms: int) -> str:
    """Return the time in the zone of this machine, as Kafka's tool does."""
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%dT%H:%M")


def _row(cells: Sequence[object]) -> str:
    return " ".join(str(cell).ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def _hmac(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Unusable("Illegal base64 character in the HMAC") from None


async def _create(cluster: ClusterClient, options: argparse.Namespace) -> int:
    renewers, period = options.renewer_principal, options.max_life_time_period
    print(f"Calling create token operation with renewers :{_list(renewers)} , max-life-time-period :{period}")
    owner = options.owner_principal[0] if options.owner_principal else None
    token = await create_token(cluster, owner, renewers, period)
    print(f"Created delegation token with tokenId : {token.token_id}")
    who = f"{token.principal_type}:{token.principal_name}"
    requester = f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
    times = map(_minute, (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms))
    secret = base64.b64encode(token.hmac).decode()
    print(f"\n{_row(COLUMNS)}")
    print(f"\n{_row((token.token_id, secret, who, requester, _list(renewers), *times))}")
    return 0


async def _change(cluster: ClusterClient, options: argparse.Namespace) -> int:
    """Change the expiry time of a token, for --renew and --expire."""
    verb, change, period = "renew", renew_token, options.renew_time_period
    if options.expire:
        verb, change, period = "expire", expire_token, options.expiry_time_period
    print(f"Calling {verb} token operation with hmac :{options.hmac} , {verb}-time-period :{period}")
    expiry_ms = await change(cluster, _hmac(options.hmac), period)
    print(f"Completed {verb} operation. New expiry date : {_minute(expiry_ms)}", end="")
    return 0


async def _describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    owners = options.owner_principal
    print(
        f"Calling describe token operation for owners: {_list(owners)}"
        if owners
        else "Calling describe token operation for current user."
    )
    tokens = await describe_tokens(cluster, owners or None)
    print(f"Total number of tokens : {len(tokens)}", end="")
    print(f"\n{_row(COLUMNS)}")
    for token in tokens:
        who = f"{token.principal_type}:{token.principal_name}"
        requester = f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
        renewers = _list(f"{row.principal_type}:{row.principal_name}" for row in token.renewers)
        times = map(_minute, (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp))
        secret = base64.b64encode(token.hmac).decode()
        print(f"\n{_row((token.token_id, secret, who, requester, renewers, *times))}")
    return 0


RUN = {"create": _create, "renew": _change, "expire": _change, "describe": _describe}
