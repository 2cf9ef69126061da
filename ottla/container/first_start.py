"""The steps of other images around the first start: users and voters are written when the directories are formatted, and topics
are created after the start.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from ottla.container.settings import ContainerSetting, User
from ottla.server.config.node_config import NodeConfig
from ottla.server.sasl.scram import HASHES, ITERATIONS_MIN, salted_password

SALT_BYTES = 32


class FirstStart(NamedTuple):
    """The work before and after the start of the node itself."""

    users: Sequence[User]
    initial_controllers: str | None
    topics: ContainerSetting | None
    #: A listener of the node without TLS and login, through which topics can be created.
    servers: str | None

    def notes(self) -> Iterator[str]:
        if self.topics is not None and self.servers is None:
            yield f"{self.topics.origin} is not honoured: every listener of this node wants TLS or a login"


def reachable(config: NodeConfig) -> str | None:
    """Return the address, inside the container, of a broker's listener without TLS and login."""
    for endpoint in config.broker_endpoints:
        if endpoint.security_protocol == "PLAINTEXT":
            host = "localhost" if endpoint.host in ("", "0.0.0.0", "::") else endpoint.host
            return f"{host}:{endpoint.port}"
    return None


def add_scram(users: Sequence[User], rng: Random) -> Iterator[str]:
    """Return the arguments of --add-scram for both mechanisms. They have salted passwords, whose characters need no quotes."""
    for user in users:
        for mechanism, digest in HASHES.items():
            salt = rng.randbytes(SALT_BYTES)
            salted = salted_password(digest, user.password.encode(), salt, ITERATIONS_MIN)
            options = {
                "name": user.name,
                "iterations": str(ITERATIONS_MIN),
                "salt": base64.b64encode(salt).decode(),
                "saltedpassword": base64.b64encode(salted).decode(),
            }
            pairs = ",".join(f'{name}="{value}"' for name, value in options.items())
            yield f"{mechanism}=[{pairs}]"
