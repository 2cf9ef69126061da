"""Who may do what on the pages: the roles of logins, and one table of what each form asks for.

The roles are the console's own. Its connections to the cluster are those of one user, and a sample or a panel is shared by all who look: to
pass each login on to the cluster, each would need connections, samples and panels of its own. What the console's user may do in the
cluster still bounds them all.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Role(IntEnum):
    """A role may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMINISTRATOR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class ConsoleUser(NamedTuple):
    """Who looks at a page. The name is empty where no login is asked for."""

    name: str
    role: Role

    @property
    def shown(self) -> str:
        return self.name or "without a login"


CHANGE, ADMINISTER = Role.OPERATOR, Role.ADMINISTRATOR
#: The roles that forms ask for, by the path that they are posted to. What destroys records, offsets or topics, and who may do what, is
#: an administrator's. A question that is posted because of its size changes nothing.
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
    """Return the role that a request asks for: all who may look may look at each page.

    Raises:
        KeyError: a form has no row in the table: it is not served.
    """
    return Role.VIEWER if method in ("GET", "HEAD") else PERMISSIONS[path]


def role_of(word: str) -> Role | None:
    """Return the role of a word in a file of logins, None for another word."""
    return next((role for role in Role if role.word == word.strip().lower()), None)
