"""Containers without an engine and without root: a loopback address for each (127.77.0.x), which replaces names and "all
addresses" in its environment; published ports are forwarded from 127.0.0.1. It is used like NamespaceHarness, but is less like
real containers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.docker.compose_file import Service
from tests.docker.harness import ContainerHarness

ADMIN_PORT = 9644
LISTENERS = ("KAFKA_LISTENERS", "KAFKA_CFG_LISTENERS")


class LoopbackHarness(ContainerHarness):
    def address(self, service: Service) -> str:
        return f"127.77.0.{11 + self.services.index(service)}"

    def environment(self, service: Service) -> dict[str, str]:
        own = self.address(service)
        changed = {name: self.with_addresses(text) for name, text in service.environment.items()}
        for name in LISTENERS:
            if name in changed:
                changed[name] = re.sub(r"://(0\.0\.0\.0)?:", f"://{own}:", changed[name])
        return changed | {"OTTLA_ADMIN_LISTENER": f"{own}:{ADMIN_PORT}"}

    def with_addresses(self, text: str) -> str:
        for service in self.services:
            for name in {service.name, service.hostname}:
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?=:\d)", self.address(service), text)
        return text

    def placed(self, where: str, command: Sequence[str]) -> list[str]:
        """Return the command for this machine, because containers have no place of their own here; names in its arguments
        become addresses.
        """
        return [self.with_addresses(word) for word in command]

    def forwarded(self) -> list[Service]:
        """Return the services with listeners. One without listeners of its own listens at all addresses, and is already reached
        at 127.0.0.1.
        """
        return [s for s in self.services if any(name in s.environment for name in LISTENERS)]
