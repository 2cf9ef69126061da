"""Installs a client into the user's cache, once for each version, and returns the command that runs its program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.compat.ecosystem.clients import Client
from tools.apache_kafka.jars import CACHE

PROGRAMS = Path(__file__).parent / "programs"
INSTALL_SECONDS_MAX = 900
#: The programs that the sources need on the PATH.
NEEDS = {"pip": sys.executable, "npm": "npm", "go": "go"}


class NotInstalled(Exception):
    """The client cannot be installed here, for the reason in the text."""


def command(client: Client) -> list[str]:
    """Return the command of the client's program, without its arguments.

    Raises:
        NotInstalled: a tool is missing, or the packages cannot be fetched.
    """
    if client.source == "deb":
        if shutil.which(client.packages[0]) is None:
            raise NotInstalled(f"no {client.packages[0]} on PATH")
        return [sys.executable, str(PROGRAMS / client.program)]
    if shutil.which(NEEDS[client.source]) is None:
        raise NotInstalled(f"no {NEEDS[client.source]} on PATH")
    home = CACHE / "ecosystem" / f"{client.name.replace('/', '-').strip('@')}-{client.version}"
    ready = home / "ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        try:
            INSTALLERS[client.source](client, home)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
            said = getattr(failure, "stderr", None) or b""
            raise NotInstalled(f"{failure.cmd[0]} failed: {said.decode(errors='replace').strip()[-300:]}") from None
        ready.touch()
    if client.source == "pip":
        return [str(home / "bin" / "python"), str(PROGRAMS / client.program)]
    if client.source == "npm":
        # node looks for modules beside the program only
        shutil.copy(PROGRAMS / client.program, home)
        return ["node", str(home / client.program)]
    return [_built(client, home)]


def _run(*words: str, cwd: Path) -> None:
    subprocess.run(words, cwd=cwd, check=True, capture_output=True, timeout=INSTALL_SECONDS_MAX)


def _install_pip(client: Client, home: Path) -> None:
    _run(sys.executable, "-m", "venv", str(home), cwd=home)
    _run(str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *client.packages, cwd=home)


def _install_npm(client: Client, home: Path) -> None:
    _run("npm", "install", "--silent", "--no-audit", "--no-fund", *client.packages, cwd=home)


def _install_go(client: Client, home: Path) -> None:
    _run("go", "mod", "init", "ecosystem", cwd=home)
    _run("go", "get", *client.packages, cwd=home)


def _built(client: Client, home: Path) -> str:
    """Build the program of a Go client, if it is new."""
    source, binary = home / "main.go", home / "program"
    text = (PROGRAMS / client.program).read_bytes()
    if not binary.exists() or source.read_bytes() != text:
        source.write_bytes(text)
        try:
            _run("go", "mod", "tidy", cwd=home)
            _run("go", "build", "-o", str(binary), ".", cwd=home)
        except subprocess.CalledProcessError as failure:
            raise NotInstalled(f"go build failed: {failure.stderr.decode(errors='replace')[-500:]}") from None
    return str(binary)


INSTALLERS = {"pip": _install_pip, "npm": _install_npm, "go": _install_go}
