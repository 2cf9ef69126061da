"""`python -m tests.chaos.token_keys`: the key of delegation tokens is replaced by nine rolling restarts of three nodes, as docs/SECURITY.md says."""

from __future__ import annotations

import asyncio
import tempfile
import time

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.sasl.delegation_tokens import hmac_of
from tests.clients.channels import channels
from tests.cluster.test_sasl import MECHANISM, Secured, started, until


async def rotate(secured: Secured) -> int:
    """Replace the key. At each moment every node accepts every token, whichever node has made it. Return the number of tokens
    that were made.
    """
    key, other = "delegation.token.secret.key", "ottla.delegation.token.other.secret.key"
    addresses = secured.bootstrap.split(",")
    tokens: list[CreateDelegationTokenResponse] = []
    secured.create("rotated")
    for keys in ({key: "planted-key", other: "planted-new"}, {key: "planted-new", other: "planted-key"}):
        for number, address in zip(secured.cluster.nodes, addresses, strict=True):
            secured.cluster._properties[number] |= keys
            secured.cluster.restart(number)
            secured.cluster.wait_isr("rotated")
            async with channels(address) as to:
                tokens.append(await to.plain("alice").request(CreateDelegationTokenRequest()))
                assert tokens[-1].error_code == ErrorCode.NONE
                for each in addresses:
                    assert all([await until(to, made, each, is_served=True) for made in tokens])
    for number in secured.cluster.nodes:
        del secured.cluster._properties[number][other]
        secured.cluster.restart(number)
        secured.cluster.wait_isr("rotated")
    async with channels(addresses[0]) as to:
        for made in tokens:
            is_new = made.hmac == hmac_of("planted-new", made.token_id)
            for address in addresses:
                assert await until(to, made, address, is_served=is_new)
                renewed = hmac_of("planted-new", made.token_id)
                await to.token(MECHANISM, made, renewed, address).request(MetadataRequest(topics=[]))
    return len(tokens)


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-token-keys-") as directory, started(directory) as secured:
        made = asyncio.run(rotate(secured))
    print(
        f"token keys: {made} tokens were valid on three nodes through two changes of the key, {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
