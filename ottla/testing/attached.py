"""A cluster that another process has started, or that all workers of pytest-xdist share.

It has the verbs of a client, but none that break nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

from ottla.testing.clients import Clients
from ottla.testing.errors import TO_BREAK, MadeOtherwise, SharedWithOthers

ELSEWHERE = "this process has not started this cluster"
BY_WORKERS = "this cluster is that of all workers of pytest-xdist"
#: The attributes of each cluster of this process beside its verbs.
FACTS = frozenset({"nodes", "directory"})


class UserMaker(Protocol):
    """Makes a user of the cluster, for `Clients.add_user`."""

    def __call__(self, name: str, /, *allowed: str) -> dict[str, str]: ...


class Attached(Clients):
    """A cluster of which only the address is known."""

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, str] | None = None,
        properties_file: str | None = None,
        log_files: Sequence[str] = (),
        *,
        whose: str = ELSEWHERE,
        add_user: UserMaker | None = None,
    ) -> None:
        """Take `settings` of confluent-kafka besides bootstrap.servers, and a file of client properties with Kafka's names.

        `whose` says who runs the cluster, for the errors of faults.
        """
        self._bootstrap = bootstrap
        self._settings = dict(settings or {})
        self._file = properties_file
        self._log_files = list(log_files)
        self._whose = whose
        self._add_user = add_user

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    @property
    def client_settings(self) -> dict[str, str]:
        return {"bootstrap.servers": self._bootstrap} | self._settings

    @property
    def log_files(self) -> list[str]:
        return self._log_files

    @property
    def _properties_file(self) -> str | None:
        return self._file

    def add_user(self, name: str, *allowed: str) -> dict[str, str]:
        if self._add_user is None:
            raise MadeOtherwise(
                f"{self._whose}, and its users are not known here",
                "make one with `ottla user create` and `ottla acl add`, or take factories.kafka_cluster(secure=True)",
            )
        return self._add_user(name, *allowed)

    def __getattr__(self, name: str) -> NoReturn:
        from ottla.testing.cluster import Cluster

        __tracebackhide__ = True
        # It is no AttributeError, which `hasattr` would hide: a test that breaks nodes has to fail if it may not do so.
        if not name.startswith("_") and (name in FACTS or hasattr(Cluster, name)):
            raise SharedWithOthers(f"{name}: {self._whose}", TO_BREAK)
        raise AttributeError(f"{type(self).__name__} has no {name}")
