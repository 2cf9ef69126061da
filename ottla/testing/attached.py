"""A cluster that runs already: elsewhere, or for all workers of pytest-xdist. It has a client's verbs, and none that break nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from ottla.testing.clients import Clients

#: Verbs of `Cluster` that other tests would notice.
BREAKING = frozenset(
    {
        *(
            "start",
            "kill",
            "stop",
            "restart",
            "pause",
            "resume",
            "partition",
            "isolate",
            "heal",
            "latency",
            "bandwidth",
        ),
        *("advance", "skew_clock", "disk_full", "slow_disk", "fail_next", "delay", "versions", "snapshot"),
    }
)


class Attached(Clients):
    """A cluster of which the address is all that is known."""

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, str] | None = None,
        properties_file: str | None = None,
        log_files: Sequence[str] = (),
    ) -> None:
        """Take `settings` of confluent-kafka besides bootstrap.servers, and a file of client properties with Kafka's names."""
        self._bootstrap = bootstrap
        self._settings = dict(settings or {})
        self._file = properties_file
        self._log_files = list(log_files)

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

    def __getattr__(self, name: str) -> NoReturn:
        if name in BREAKING:
            raise AttributeError(
                f"{name}: this cluster is shared with other tests. One to break is factories.kafka_cluster(scope='function'), or shared=False"
            )
        raise AttributeError(f"{type(self).__name__} has no {name}")
