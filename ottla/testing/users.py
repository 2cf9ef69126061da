"""Users of a secure cluster, each with the access control entries that a test gives to it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence

from ottla.client.access import new_entry, read_principal
from ottla.local.secure_files import PASSWORD_BYTES
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.server.authorization.operations import ANY
from ottla.server.sasl.scram import salted_password
from ottla.testing.connection import ClusterConnection

SCRAM_SHA_512, DIGEST, ITERATIONS = 2, "sha512", 4096
SALT_BYTES = 16
ACLS_VERSION, SCRAM_VERSION = 3, 0
POLL_SECONDS, WAIT_SECONDS_MAX = 0.02, 30.0


def add(nodes: Sequence[Callable[[], ClusterConnection]], name: str, allowed: Sequence[str]) -> str:
    """Make the user, and wait until all nodes know it with its entries.

    Return its random password. `allowed` are operations on resources in the words of `ottla acl add`: "write topic:orders".

    Raises:
        Failure: a text of `allowed` names no operation or no resource.
        RuntimeError: the cluster has rejected it.
        TimeoutError: a node does not know it after 30 s.
    """
    entries = [_entry(name, text) for text in allowed]
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    salt = os.urandom(SALT_BYTES)
    salted = salted_password(DIGEST, password.encode(), salt, ITERATIONS)
    upsertion = ScramCredentialUpsertion(name, SCRAM_SHA_512, ITERATIONS, salt, salted)
    with nodes[0]() as node:
        made = node.request(
            AlterUserScramCredentialsRequest(upsertions=[upsertion]), ApiKey.ALTER_USER_SCRAM_CREDENTIALS, SCRAM_VERSION
        )
        created = node.request(CreateAclsRequest(entries), ApiKey.CREATE_ACLS, ACLS_VERSION)
    for result in [*made.results, *created.results]:
        if result.error_code != ErrorCode.NONE:
            raise RuntimeError(f"the user {name}: {ErrorCode(result.error_code).name}: {result.error_message}")
    began = time.monotonic()
    for connect in nodes:
        with connect() as node:
            while not _is_known(node, name, len(set(map(repr, entries)))):
                if time.monotonic() - began > WAIT_SECONDS_MAX:
                    raise TimeoutError(f"a node does not know the user {name} after {WAIT_SECONDS_MAX} s")
                time.sleep(POLL_SECONDS)
    return password


def _entry(user: str, text: str) -> AclCreation:
    operation, _, resource = text.partition(" ")
    return AclCreation(*new_entry(user, operation, resource.strip()))


def _is_known(node: ClusterConnection, user: str, entries: int) -> bool:
    """Return whether the node has replayed the user and all of its entries."""
    asked = DescribeUserScramCredentialsRequest([UserName(user)])
    found = node.request(asked, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, SCRAM_VERSION)
    if any(result.error_code != ErrorCode.NONE for result in found.results):
        return False
    wanted = DescribeAclsRequest(ANY, None, ANY, read_principal(user), None, ANY, ANY)
    rows = node.request(wanted, ApiKey.DESCRIBE_ACLS, ACLS_VERSION)
    return sum(len(resource.acls) for resource in rows.resources) >= entries
