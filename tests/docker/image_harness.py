"""Containers of built images without an engine: buildah runs each with its own files in a network namespace of its own.

buildah builds the images as the compose file says; the base image is Debian as debootstrap makes it, because a registry may not be
reached. What only an engine does is not here: restarts, and limits by cgroups.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.docker.compose_file import Service, load
from tests.docker.harness import STOP_SECONDS_MAX
from tests.docker.namespace_harness import NamespaceHarness, available

BASE = "docker.io/library/debian:bookworm-slim"
RELEASE, ARCHIVE = "bookworm", "http://deb.debian.org/debian"
#: What a step of the build trusts beside its own authorities: those of this machine, whose network may have some of its own.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
TRUSTED = "/etc/authorities-of-the-machine.crt"
ISOLATED = ("--isolation", "chroot", "--network", "host")
HEALTHY_S_MAX = 180
BESIDE = " beside"
#: The variables of a compose file: ${NAME:-default}.
VARIABLE = re.compile(r"\$\{\w+:-(\w*)\}")


def missing() -> str | None:
    """Return why no image can be built or run here."""
    if lacking := [tool for tool in ("buildah", "unshare") if shutil.which(tool) is None]:
        return f"{lacking[0]} is missing"
    if not available():
        return "network namespaces cannot be made here: it needs root and ip"
    if not _has(BASE) and shutil.which("debootstrap") is None:
        return "debootstrap is missing"
    return None


def buildah(*arguments: str | Path) -> str:
    done = subprocess.run(["buildah", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"buildah {' '.join(map(str, arguments))[:300]}: {done.stderr[-2000:]}")
    return done.stdout.strip()


def _has(image: str) -> bool:
    return subprocess.run(["buildah", "images", image], capture_output=True).returncode == 0


def make_base(folder: Path) -> None:
    """Make the image from which ours begin, if it is not there."""
    if _has(BASE):
        return
    root = folder / "base"
    command = ["debootstrap", "--variant=minbase", RELEASE, str(root), ARCHIVE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"debootstrap: {done.stdout[-500:]}{done.stderr[-500:]}")
    container = buildah("from", "scratch")
    buildah("add", container, root, "/")
    buildah("commit", "--rm", container, BASE)
    shutil.rmtree(root)


def build(path: Path, folder: Path) -> list[str]:
    """Build each image of a compose file that says how. Return the names of those that it does not say of, and that cannot be had."""
    make_base(folder)
    pip = folder / "pip.conf"
    pip.write_text(f"[global]\ncert = {TRUSTED}\n")
    mounts = [f"--volume={AUTHORITIES}:{TRUSTED}:ro", f"--volume={pip}:/etc/pip.conf:ro"] * AUTHORITIES.exists()
    found: dict[str, dict[str, str] | None] = {}
    for raw in load(path)["services"].values():
        found[raw["image"]] = raw.get("build") or found.get(raw["image"])
    others = []
    for image, how in found.items():
        if how is not None:
            context = path.parent / how["context"]
            options = [f"--target={how['target']}"] if "target" in how else []
            file = context / how["dockerfile"]
            buildah("bud", *ISOLATED, "--pull-never", "--layers", *mounts, *options, "-f", file, "-t", image, context)
        elif not _has(image) and subprocess.run(["buildah", "pull", image], capture_output=True, timeout=60).returncode:
            others.append(image)
    return others


@dataclass
class ImageHarness(NamespaceHarness):
    #: More mounts, by the name of the service: "host's path:container's path:ro".
    extra: dict[str, list[str]] = field(default_factory=dict)
    _containers: dict[str, str] = field(default_factory=dict)

    def container(self, service: Service, part: str = "") -> str:
        name = service.name + part
        if name not in self._containers:
            self._containers[name] = buildah("from", "--pull-never", service.raw["image"])
        return self._containers[name]

    def inside(self, service: Service, command: Sequence[str], part: str = BESIDE) -> list[str]:
        """Return the words that run `command` with the environment, volumes and network of a service.

        Its files are those of a second container of the image: buildah runs one command at a time in a container.
        """
        named = VARIABLE.sub(lambda found: found[1], service.raw.get("user", ""))
        user = [f"--user={named}"] if named else []
        given = [f"--env={name}={value}" for name, value in service.environment.items()]
        mounts = [f"--volume={mount}" for mount in self._mounts(service)]
        return self.placed(
            service.name,
            [
                "buildah",
                "run",
                *ISOLATED,
                f"--hostname={service.hostname}",
                *user,
                *given,
                *mounts,
                self.container(service, part),
                "--",
                *command,
            ],
        )

    def start(self, service: Service) -> None:
        command = service.raw.get("command") or self._configuration(service)["Cmd"]
        self.processes[service.name] = subprocess.Popen(
            self.inside(service, command, ""),
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / f"{service.name}.log").open("ab"),
            stderr=subprocess.STDOUT,
        )

    def start_all(self, services: Sequence[Service]) -> None:
        """Start services in the order of an engine: a service starts when the services that it depends on have started, or are healthy."""
        started: list[Service] = []
        while left := [each for each in services if each not in started]:
            for service in left:
                needed = service.raw.get("depends_on", {})
                if set(needed) <= {each.name for each in started}:
                    for each in started:
                        if isinstance(needed, dict) and each.name in needed:
                            self.wait_until_healthy(each)
                    self.start(service)
                    started.append(service)

    def wait_until_healthy(self, service: Service) -> None:
        """Run the health check of the compose file in the container until it passes."""
        deadline = time.monotonic() + HEALTHY_S_MAX
        _, *command = service.raw["healthcheck"]["test"]
        while (done := subprocess.run(self.inside(service, command), capture_output=True, text=True)).returncode:
            said = f"{service.name}: {done.stdout}{done.stderr}{self.log(service)[-3000:]}"
            assert self.processes[service.name].poll() is None, f"ended: {said}"
            assert time.monotonic() < deadline, f"not healthy: {said}"
            time.sleep(1)

    def stop(self, service: Service) -> None:
        """Send SIGTERM to the first process of a container, as `docker stop` does, and wait. buildah itself would kill it."""
        process, signalled = self.processes.pop(service.name), set[int]()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while process.poll() is None and time.monotonic() < deadline:
            for pid in self._first_processes(service) - signalled:  # one that has just begun may not be there yet
                os.kill(pid, signal.SIGTERM)
                signalled.add(pid)
            time.sleep(0.1)
        for pid in self._first_processes(service):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()

    def _first_processes(self, service: Service) -> set[int]:
        found = subprocess.run(["ip", "netns", "pids", self.namespace(service.name)], capture_output=True, text=True)
        first = set()
        for pid in found.stdout.split():
            with suppress(OSError):  # it has ended meanwhile
                parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                if Path(f"/proc/{parent}/cmdline").read_bytes().startswith(b"buildah-chroot-exec"):
                    first.add(int(pid))
        return first

    def close(self) -> None:
        for service in self.services:
            if service.name in self.processes:
                self.stop(service)
        super().close()
        for container in self._containers.values():
            buildah("rm", container)

    def _mounts(self, service: Service) -> list[str]:
        """Return the mounts of a service, with a folder of the host for each volume that has a name."""
        found = []
        for text in [*service.raw.get("volumes", ()), *self.extra.get(service.name, ())]:
            source, target, *mode = text.split(":")
            if source.startswith("./"):
                source = str(self.beside / source)
            elif not source.startswith("/"):
                volume = self.folder / "volumes" / source
                if not volume.exists():
                    self._like_in_the_image(service, target, volume)
                source = str(volume)
            found.append(":".join([source, target, *mode]))
        return found

    def _like_in_the_image(self, service: Service, path: str, volume: Path) -> None:
        """Make an empty volume with owner and mode of the image's own folder, as an engine does."""
        volume.mkdir(parents=True)
        root = Path(buildah("mount", self.container(service)))
        try:
            status = (root / path[1:]).stat()
            os.chown(volume, status.st_uid, status.st_gid)
            volume.chmod(status.st_mode & 0o7777)
        finally:
            buildah("umount", self.container(service))

    def _configuration(self, service: Service) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", service.raw["image"]))
        configuration: dict[str, Any] = found["OCIv1"]["config"]
        return configuration
