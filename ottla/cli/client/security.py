"""The client properties file of a command: how it reaches a cluster with TLS."""

from __future__ import annotations

from ottla.cli.errors import USAGE, CommandFailed
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.storage.files import Files


def read_security(path: str | None, files: Files) -> PeerSecurity:
    """Without a file: plaintext. Raises CommandFailed."""
    if path is None:
        return PLAINTEXT
    # Not at the top: most commands have no such file, and each module costs the start of a command.
    from ottla.server.config.errors import ConfigError
    from ottla.server.config.load import read_properties
    from ottla.server.security.client_properties import client_security

    data = files.read(path)
    if data is None:
        raise CommandFailed(f"there is no file {path}", "check --command-config, or OTTLA_CONFIG", USAGE)
    try:
        return client_security(read_properties(data, path), files)
    except ConfigError as error:
        raise CommandFailed(f"{path}: {error}", error.what_to_try or None, USAGE) from None
