"""The roles of logins, and one table with the role that each form requires.

The roles are the console's own. Its connections to the cluster belong to one user, and all logins share samples and panels. If
each login were passed on to the cluster, each would need its own connections, samples and panels. No role can do more than the
console's user may do in the cluster.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Role(IntEnum):
    """A role includes the roles before it."""

    VIEWER = 1
    OPERATOR = 2
    ADMINISTRATOR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class ConsoleUser(NamedTuple):
    """The user of a page. The name is empty if no login is required."""

    name: str
    role: Role

    @property
    def shown(self) -> str:
        return self.name or "without a login"


CHANGE, ADMINISTER = Role.OPERATOR, Role.ADMINISTRATOR
#: The roles that forms require, by the path that they are posted to.
#: Whatever destroys records, offsets or topics, and permissions, are for an administrator. A query that is posted because of
#: its size changes nothing.
PERMISSIONS: dict[str, Role] = {
    "/topic-create": CHANGE,
    "/topics/{name}/produce": CHANGE,
    "/topics/{name}/set": CHANGE,
    "/topics/{name}/delete": ADMINISTER,
    "/topics/{name}/empty": ADMINISTER,
    "/group/reset": CHANGE,
    "/group/delete": ADMINISTER,
    "/schema/check": Role.VIEWER,
    "/schema/register": CHANGE,
    "/schema/level": CHANGE,
    "/transactions/abort": CHANGE,
    "/reassignments/plan": CHANGE,
    "/reassignments/cancel": CHANGE,
    "/reassignments/unthrottle": CHANGE,
    "/reassignments/elect": CHANGE,
    "/access/add": ADMINISTER,
    "/access/remove": ADMINISTER,
    "/access/users/set": ADMINISTER,
    "/access/users/remove": ADMINISTER,
    "/access/tokens/create": ADMINISTER,
    "/access/tokens/renew": ADMINISTER,
    "/access/tokens/expire": ADMINISTER,
    "/quotas/set": ADMINISTER,
}


def role_for(method: str, path: str) -> Role:
    """Return the role that a request requires. Each user may open each page.

    Raises:
        KeyError: a form has no row in the table, so it is not served.
    """
    return Role.VIEWER if method in ("GET", "HEAD") else PERMISSIONS[path]


def role_of(word: str) -> Role | None:
    """Return the role of a word in a file of logins, or None for another word."""
    return next((role for role in Role if role.word == word.strip().lower()), None)
