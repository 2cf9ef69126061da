"""The parts of compose files that determine how Ottla's image is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
#: These files need keys.
SECURE = [ROOT / "docker" / f"compose.{kind}.yml" for kind in ("tls", "sasl")]
OURS = sorted(set((ROOT / "docker").glob("compose*.yml")) - set(SECURE))
SEEDS = sorted((Path(__file__).parent / "composes").glob("*.yml"))


@dataclass(frozen=True)
class Service:
    name: str
    environment: dict[str, str]
    #: The published ports: the host's and the container's.
    ports: list[tuple[int, int]]
    raw: dict[str, Any]

    @property
    def hostname(self) -> str:
        return str(self.raw.get("hostname", self.name))

    @property
    def advertised(self) -> dict[str, str]:
        """Return the address that each listener advertises to clients, by the listener's name."""
        text = self.environment.get("KAFKA_ADVERTISED_LISTENERS") or self.environment.get(
            "KAFKA_CFG_ADVERTISED_LISTENERS", ""
        )
        return dict(entry.split("://") for entry in text.split(",")) if text else {}

    @property
    def mounts(self) -> dict[str, str]:
        """Return the paths of the host's files by their path in the container."""
        parts = [volume.split(":") for volume in self.raw.get("volumes", ()) if volume.startswith("./")]
        return {target: source for source, target, *_ in parts}

    def read(self, path: str) -> bytes | None:
        """Return a file as the container sees it, or None if it is not one of the repository."""
        source = ROOT / "docker" / self.mounts.get(path, "none")
        return source.read_bytes() if source.exists() else None


def load(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def services(path: Path, *, beside: bool = False) -> list[Service]:
    """Return the services that run a node: they have Ottla's image and no command of their own. With `beside` return those that
    run a command of `ottla` beside the nodes.
    """
    found = []
    for each in all_services(path):
        command = each.raw.get("command")
        if (
            (command is not None and command[0] == "ottla")
            if beside
            else (command is None and each.raw["image"] == "ottla")
        ):
            found.append(each)
    return found


def all_services(path: Path) -> list[Service]:
    found = []
    for name, raw in load(path)["services"].items():
        given = raw.get("environment", {})
        pairs = given.items() if isinstance(given, dict) else (entry.split("=", 1) for entry in given)
        ports = [tuple(map(int, str(port).split(":")[-2:])) for port in raw.get("ports", [])]
        environment = {str(key): "" if value is None else str(value) for key, value in pairs}
        found.append(Service(name, environment, [(host, inner) for host, inner in ports], raw))
    return found
