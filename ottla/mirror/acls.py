"""The access control entries of the source's topics are copied to their counterparts in the target, by MirrorMaker's rules
(sync.topic.acls.enabled).

    ALLOW WRITE                only the mirror writes to a mirrored topic: not copied
    ALLOW ALL                  becomes ALLOW READ
    prefixed and wildcard      also apply to topics that are not mirrored: not copied

Entries are added and never removed: an operator of the target may have entries of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.client.access import AclFilter, create_acl, describe_acls
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.mirror.names import Policy
from ottla.protocol.errors import ErrorCode
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.operations import ALL, ALLOW, LITERAL, READ, TOPIC, WILDCARD, WRITE

OF_TOPICS = AclFilter(TOPIC, None, LITERAL)


class AclCopy:
    """The entries of a mirror's topics. A cluster without an authorizer has none."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        policy: Policy,
        is_mirrored: Callable[[str], bool],
        say: Callable[[str], None],
    ) -> None:
        self._source, self._target = source, target
        self._policy = policy
        self._is_mirrored = is_mirrored
        self._say = say
        self._said: set[str] = set()

    async def copy(self) -> None:
        """Add the missing entries to the target.

        A missing permission to read or to add entries is reported once, and does not stop the mirror.
        """
        try:
            wanted = mirrored_entries(await describe_acls(self._source, OF_TOPICS), self._policy, self._is_mirrored)
            missing = wanted - set(await describe_acls(self._target, OF_TOPICS)) if wanted else set()
            for entry in sorted(missing):
                await create_acl(self._target, entry)
        except Failure as fault:
            if fault.code != ErrorCode.SECURITY_DISABLED and str(fault) not in self._said:
                self._said.add(str(fault))
                self._say(f"access control entries are not copied: {fault}")


def mirrored_entries(
    entries: Iterable[AccessControlEntry], policy: Policy, is_mirrored: Callable[[str], bool]
) -> set[AccessControlEntry]:
    """Return the entries of the target that follow from those of the source."""
    found = set()
    for entry in entries:
        if entry.resource_type != TOPIC or entry.pattern_type != LITERAL or entry.resource_name == WILDCARD:
            continue
        if not is_mirrored(entry.resource_name) or (entry.permission_type, entry.operation) == (ALLOW, WRITE):
            continue
        operation = READ if (entry.permission_type, entry.operation) == (ALLOW, ALL) else entry.operation
        found.add(entry._replace(resource_name=policy.remote(entry.resource_name), operation=operation))
    return found
