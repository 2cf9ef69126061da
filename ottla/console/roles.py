"""Who may do what on the pages: the roles of logins, and one table of what each route asks for.

The roles are the console's own. Its connections to the cluster are those of one user, and a sample or a panel is shared by all who look: to
pass each login on to the cluster, each would need connections, samples and panels of its own. What the console's user may do in the
cluster still bounds them all.
"""

from __future__ import annotations

from collections.abc import Iterable
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


LOOK, CHANGE, ADMINISTER = Role.VIEWER, Role.OPERATOR, Role.ADMINISTRATOR
#: The roles that routes ask for, by method and path. What destroys records, offsets or topics, and who may do what, is an
#: administrator's.
PERMISSIONS: dict[tuple[str, str], Role] = {
    ("GET", "/"): LOOK,
    ("GET", "/timeline"): LOOK,
    ("GET", "/chart"): LOOK,
    ("GET", "/healthz"): LOOK,
    ("GET", "/topics"): LOOK,
    ("GET", "/topic-create"): LOOK,
    ("POST", "/topic-create"): CHANGE,
    ("GET", "/topics/{name}"): LOOK,
    ("GET", "/topics/{name}/groups"): LOOK,
    ("GET", "/topics/{name}/story"): LOOK,
    ("GET", "/topics/{name}/records"): LOOK,
    ("GET", "/topics/{name}/stream"): LOOK,
    ("GET", "/topics/{name}/download"): LOOK,
    ("GET", "/topics/{name}/produce"): LOOK,
    ("POST", "/topics/{name}/produce"): CHANGE,
    ("GET", "/topics/{name}/settings"): LOOK,
    ("POST", "/topics/{name}/set"): CHANGE,
    ("POST", "/topics/{name}/delete"): ADMINISTER,
    ("POST", "/topics/{name}/empty"): ADMINISTER,
    ("GET", "/groups"): LOOK,
    ("GET", "/group"): LOOK,
    ("GET", "/group/reset"): LOOK,
    ("POST", "/group/reset"): CHANGE,
    ("POST", "/group/delete"): ADMINISTER,
    ("GET", "/schemas"): LOOK,
    ("GET", "/schema"): LOOK,
    ("GET", "/schema/diff"): LOOK,
    ("POST", "/schema/check"): LOOK,
    ("POST", "/schema/register"): CHANGE,
    ("POST", "/schema/level"): CHANGE,
    ("GET", "/tables"): LOOK,
    ("GET", "/transactions"): LOOK,
    ("POST", "/transactions/abort"): CHANGE,
    ("GET", "/reassignments"): LOOK,
    ("GET", "/reassignments/plan"): LOOK,
    ("POST", "/reassignments/plan"): CHANGE,
    ("POST", "/reassignments/cancel"): CHANGE,
    ("POST", "/reassignments/unthrottle"): CHANGE,
    ("POST", "/reassignments/elect"): CHANGE,
    ("GET", "/access"): LOOK,
    ("POST", "/access/add"): ADMINISTER,
    ("POST", "/access/remove"): ADMINISTER,
    ("GET", "/access/users"): LOOK,
    ("POST", "/access/users/set"): ADMINISTER,
    ("POST", "/access/users/remove"): ADMINISTER,
    ("GET", "/access/tokens"): LOOK,
    ("POST", "/access/tokens/create"): ADMINISTER,
    ("POST", "/access/tokens/renew"): ADMINISTER,
    ("POST", "/access/tokens/expire"): ADMINISTER,
    ("GET", "/quotas"): LOOK,
    ("POST", "/quotas/set"): ADMINISTER,
}


def roles_of(path: str, methods: Iterable[str]) -> dict[str, Role]:
    """Return the role that each method of a route asks for.

    Raises:
        KeyError: the table has no row for it: a route without a role is not served.
    """
    return {method: PERMISSIONS["GET" if method == "HEAD" else method, path] for method in methods}


def role_of(word: str) -> Role | None:
    """Return the role of a word in a file of logins, None for another word."""
    return next((role for role in Role if role.word == word.strip().lower()), None)
