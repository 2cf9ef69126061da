"""Values kept in files: <VARIABLE>_FILE names a file (a Docker or Kubernetes secret) that has the variable's value."""

from __future__ import annotations

from ottla.container import bitnami
from ottla.container.kafka_dialect import CREDENTIAL_NAMES, NOT_PROPERTIES, property_name
from ottla.container.settings import ContainerError, Environment, ReadFile
from ottla.server.config.broker import key_of

SUFFIX = "_FILE"
#: Names that end in _FILE and are no reference to another variable.
PATHS = frozenset({"KAFKA_TLS_TRUSTSTORE_FILE"})


def expand(environment: Environment, read: ReadFile) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment with the files' contents, and for each such variable the file that it came from."""
    found = dict(environment)
    origins: dict[str, str] = {}
    for variable in sorted(environment):
        name, path = variable.removesuffix(SUFFIX), environment[variable]
        if not is_reference(variable) or not path:
            continue
        if name in environment:
            raise ContainerError(f"{name} and {variable} are both set", variable, "remove one of them")
        data = read(path)
        if data is None:
            raise ContainerError(
                f"there is no file {path} that can be read", variable, "mount the secret there, or set the path"
            )
        del found[variable]
        # The newline that editors put at the end is no part of a password.
        found[name] = data.decode("utf-8", "surrogateescape").rstrip("\r\n")
        origins[name] = f"{variable} ({path})"
    return found, origins


def is_reference(variable: str) -> bool:
    """Returns True if the variable names a file with the value of another one. sasl.oauthbearer.assertion.file is a property itself."""
    name = variable.removesuffix(SUFFIX)
    if name == variable or variable in PATHS:
        return False
    if name == "CLUSTER_ID" or name in bitnami.FILE_VARIABLES:
        return True
    if not name.startswith("KAFKA_") or name in NOT_PROPERTIES or name in CREDENTIAL_NAMES:
        return False
    if name.startswith(bitnami.PREFIX):
        return key_of(bitnami.property_name(variable)) is None
    return key_of(property_name(variable)) is None
