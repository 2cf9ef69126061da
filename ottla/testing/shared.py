"""One cluster for all workers of pytest-xdist: the process that starts the workers runs it, and sends them its address.

A worker asks through a Unix socket when its first test needs the cluster; the first worker waits for the start.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.failures import Failure
from ottla.testing.errors import WrongUse

if TYPE_CHECKING:
    from ottla.testing.attached import Attached
    from ottla.testing.cluster import Cluster


class WantedCluster(NamedTuple):
    """A cluster as a fixture describes it. Equal descriptions mean the same cluster."""

    fixture: str
    nodes: int
    properties: dict[str, str]
    secure: bool


class WantedUser(NamedTuple):
    """A user that a worker needs in a secure cluster."""

    name: str
    allowed: tuple[str, ...]


class SharedPlace(NamedTuple):
    """The address where workers ask. It is sent to them as a list."""

    address: str
    key: str


class SharedClusters:
    """The shared clusters, in the process that starts the workers."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="ottla-share-")
        key = os.urandom(16)
        self.place = SharedPlace(os.path.join(self._folder, "ask"), key.hex())
        self._listener = Listener(self.place.address, "AF_UNIX", authkey=key)
        self._lock = threading.Lock()
        self._clusters: dict[str, Cluster] = {}
        threading.Thread(target=self._serve, name="ottla shared clusters", daemon=True).start()

    def close(self, *, failed: bool) -> None:
        """End the clusters. Their logs stay if a test has failed."""
        from ottla.testing.node_logs import leave_logs

        self._listener.close()
        with self._lock:
            for cluster in self._clusters.values():
                cluster.close(kill=True)
                if failed:
                    leave_logs(cluster.directory)
                else:
                    shutil.rmtree(cluster.directory, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (EOFError, ConnectionError, AuthenticationError):  # a worker ended while it asked
                continue
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection, suppress(EOFError, OSError):
            wanted, parent, user = connection.recv()
            try:
                with self._lock:
                    cluster = self._clusters.get(repr(wanted)) or self._started(wanted, parent)
                    settings = None if user is None else cluster.add_user(user.name, *user.allowed)
            except Exception as failure:
                connection.send(failure if isinstance(failure, Failure | WrongUse) else RuntimeError(str(failure)))
                return
            if settings is not None:
                connection.send(settings)
                return
            secured = cluster.client_file if wanted.secure else None
            connection.send((cluster.bootstrap, cluster.client_settings, secured, cluster.log_files))

    def _started(self, wanted: WantedCluster, parent: str) -> Cluster:
        from ottla.testing.cluster import Cluster

        cluster = Cluster(
            wanted.nodes,
            directory=tempfile.mkdtemp(prefix="kafka-", dir=parent),
            secure=wanted.secure,
            per_node=dict.fromkeys(range(1, wanted.nodes + 1), wanted.properties),
        )
        self._clusters[repr(wanted)] = cluster
        try:
            cluster.start(*cluster.nodes)
        except BaseException:
            del self._clusters[repr(wanted)]
            cluster.close(kill=True)
            raise
        return cluster


def ask(place: tuple[str, str], wanted: WantedCluster, parent: str) -> Attached:
    """In a worker, ask for the cluster. It is started for the first worker that asks.

    Raises:
        RuntimeError: it did not start; the message says why.
    """
    from ottla.testing.attached import BY_WORKERS, Attached

    def add_user(name: str, *allowed: str) -> dict[str, str]:
        return dict(_answer(place, wanted, parent, WantedUser(name, allowed)))

    known = _answer(place, wanted, parent, None)
    return Attached(*known, whose=BY_WORKERS, add_user=add_user)


def _answer(place: tuple[str, str], wanted: WantedCluster, parent: str, user: WantedUser | None) -> Any:
    address, key = place
    with Client(address, "AF_UNIX", authkey=bytes.fromhex(key)) as connection:
        connection.send((wanted, parent, user))
        answer = connection.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer
