"""`make compat ARGS=deb`: the Debian package is built, installed, upgraded, removed and purged by this machine's dpkg.

dpkg works in a copy of this machine that is thrown away: an overlay over its files, with a network of its own that has no way out. So
nothing is left behind, and an installation that needs a network fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker.conftest import eventually
from tests.compat.librdkafka import Outcome
from tools import debian_package

ROOT = debian_package.ROOT
#: The programs and the language of a root shell, without variables of this process.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
NEEDED = ("python3", "python3-venv", "adduser")
COMMAND_S_MAX = 300
#: The overlay's files are in memory: a package of 90 MB, unpacked two times, and a virtual environment of 150 MB.
MOUNTS = """set -e
mount -t tmpfs -o size=2g none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for each in proc dev sys; do mount --rbind "/$each" "$1/root/$each"; done
ip link set lo up
echo ready
exec cat >/dev/null
"""
BOOTSTRAP, READY = "127.0.0.1:9092", "http://127.0.0.1:9644/readyz"
#: Writes a systemctl that records its arguments, and the folders of the program at that time.
STAND_IN = """printf '#!/bin/sh\necho "$@" with /opt/ottla* >> /root/calls\n' > /usr/bin/systemctl; chmod 755 /usr/bin/systemctl"""
EXEC_START = re.compile(r"^ExecStart=(.+)$", re.MULTILINE)


class Machine:
    """A copy of this machine with its own files and network, by the process that holds its namespaces."""

    def __init__(self, holder: int, root: Path) -> None:
        self._enter = ["nsenter", "--target", str(holder), "--mount", "--net", "chroot", str(root)]

    def command(self, *words: str) -> list[str]:
        return [*self._enter, "env", "-i", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), *words]

    def tried(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("sh", "-euc", f"cd /root; {script}"), capture_output=True, text=True, timeout=COMMAND_S_MAX
        )

    def run(self, script: str) -> str:
        """Run lines of a shell as root. Return their output."""
        done = self.tried(script)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def node(self, journal: Path) -> Iterator[None]:
        """Run the node as the unit starts it, and stop it by the signal of the unit."""
        found = EXEC_START.search(self.run("cat /usr/lib/systemd/system/ottla.service"))
        assert found is not None
        with journal.open("ab") as output:
            process = subprocess.Popen(
                self.command("runuser", "-u", "ottla", "--", *found[1].split()), stdout=output, stderr=output
            )
        try:
            eventually(lambda: self.tried(f"curl -sf {READY}").returncode == 0, f"the node to serve: {journal}", 60)
            yield
        finally:
            self.run("pkill --signal TERM --uid ottla --full 'ottla start' --ns $$ --nslist net")
            process.wait(60)


@contextmanager
def machine() -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp())
    holder = subprocess.Popen(
        ["unshare", "--mount", "--net", "sh", "-c", MOUNTS, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:
        if holder.stdout.readline() != "ready\n":
            raise OSError("the overlay could not be mounted")
        yield Machine(holder.pid, folder / "root")
    finally:
        holder.stdin.close()
        holder.wait()
        folder.rmdir()


def missing() -> str | None:
    """Return why the package cannot be built or installed here."""
    if reason := debian_package.missing():
        return reason
    tools = ("unshare", "nsenter", "runuser", "curl", "ip", "pkill", "dpkg")
    if lacking := [tool for tool in tools if shutil.which(tool) is None]:
        return f"{lacking[0]} is missing"
    if os.geteuid():
        return "it needs root"
    for name in NEEDED:
        if subprocess.run(["dpkg", "--status", name], capture_output=True).returncode:
            return f"the machine's package {name} is not installed"
    try:
        with machine():
            return None
    except OSError as error:
        return str(error)


def outcomes(logs: Path, report: Callable[[Outcome], Outcome]) -> Iterator[Outcome]:
    """Yield the outcome of each step. A step that fails ends the suite, because later steps go on with its results."""
    with tempfile.TemporaryDirectory() as folder, machine() as copy:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("build", lambda: build(Path(folder))),
            ("install", lambda: install(copy, Path(folder))),
            ("serve", lambda: serve(copy, logs)),
            ("upgrade", lambda: upgrade(copy, Path(folder), logs)),
            ("other-python", lambda: other_python(copy)),
            ("remove", lambda: remove(copy)),
            ("purge", lambda: purge(copy)),
            ("install-again", lambda: install_again(copy, Path(folder), logs)),
        ]
        for name, step in steps:
            begin, why = time.monotonic(), ""
            try:
                step()
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                why = f"{type(error).__name__}: {error}"
            yield report(Outcome(f"deb-{name}", "FAIL" if why else "PASS", time.monotonic() - begin, why))
            if why:
                return


def build(folder: Path) -> None:
    """Build the package twice with the same bytes, and a later version."""
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
    (folder / "wheels").mkdir()
    wheels = debian_package.downloaded(folder / "wheels", architecture)
    wheel = debian_package.own_wheel(folder)
    made = debian_package.build(folder, wheel, wheels, architecture)
    first = made.read_bytes()
    assert debian_package.build(folder, wheel, wheels, architecture).read_bytes() == first, "a second build differs"
    made.rename(folder / "ottla.deb")
    debian_package.build(folder, wheel, wheels, architecture, "99.0").rename(folder / "later.deb")


def install(copy: Machine, folder: Path) -> None:
    """Install the package without a network: the user, the folders, the program and each of its commands are there."""
    copy.run(f"dpkg --install {folder}/ottla.deb")
    assert copy.run("dpkg --verify ottla") == ""
    folders = copy.run("stat --format '%n %U:%G %a' /etc/ottla /var/lib/ottla /var/lib/ottla/data")
    assert folders.splitlines() == [
        "/etc/ottla root:ottla 750",
        "/var/lib/ottla ottla:ottla 700",
        "/var/lib/ottla/data ottla:ottla 700",
    ]
    assert copy.run("getent passwd ottla | cut -d: -f6,7") == "/var/lib/ottla:/usr/sbin/nologin\n"
    assert copy.run("runuser -u ottla -- ottla --version").startswith("ottla ")
    # Their paths are those of the final folder, not of the folder in which the program was made.
    assert "ottla.new" not in copy.run("cat /opt/ottla/bin/ottla /opt/ottla/pyvenv.cfg; ls -d /opt/ottla*")
    copy.run("/opt/ottla/bin/python -P -c 'import starlette, fastavro, re2, lz4'")
    # All modules are compiled: the service's user cannot write bytecode, and each start would compile them again.
    sources, compiled = (int(copy.run(f"find /opt/ottla/lib -name '{each}' | wc -l")) for each in ("*.py", "*.pyc"))
    assert 0 < sources <= compiled, f"{sources} modules, {compiled} files of bytecode"


def serve(copy: Machine, logs: Path) -> None:
    """Install a bundle of `ottla init` as it is, and start the node by the unit's command."""
    copy.run("ottla init cluster --nodes 127.0.0.1 && tar -xf cluster/nodes/127.0.0.1.tar && sh 127.0.0.1/install")
    with copy.node(logs / "journal"):
        copy.run(f"ottla topic create orders -b {BOOTSTRAP}; echo first | ottla produce orders -b {BOOTSTRAP}")


def upgrade(copy: Machine, folder: Path, logs: Path) -> None:
    """Upgrade while the node runs: its unit is stopped once the new program is made, and started again. Files and records are
    kept.

    There is no systemd in the copy: a stand-in records its calls and their times, and stops nothing.
    """
    copy.run("echo '# mine' >> /etc/sysctl.d/99-ottla.conf")
    copy.run(f"mkdir /run/systemd/system; mv /usr/bin/systemctl /usr/bin/systemctl.kept; {STAND_IN}")
    before = copy.run("sha256sum /etc/ottla/*")
    with copy.node(logs / "journal"):
        copy.run(f"dpkg --force-confold --install {folder}/later.deb")
        assert copy.run(f"ottla consume orders -b {BOOTSTRAP}") == "first\n"
    assert copy.run("cat calls").splitlines() == [
        "daemon-reload with /opt/ottla /opt/ottla.new",
        "is-active --quiet ottla.service with /opt/ottla /opt/ottla.new",
        "stop ottla.service with /opt/ottla /opt/ottla.new",
        "start --no-block ottla.service with /opt/ottla",
    ]
    copy.run("rmdir /run/systemd/system; mv /usr/bin/systemctl.kept /usr/bin/systemctl")
    assert copy.run("dpkg-query --show --showformat '${Version}' ottla") == "99.0"
    assert copy.run("sha256sum /etc/ottla/*") == before
    assert "# mine" in copy.run("cat /etc/sysctl.d/99-ottla.conf")


def other_python(copy: Machine) -> None:
    """Change the machine's Python: dpkg's trigger finds no packages for the new one, and makes the program again."""
    made = "stat --format %i /opt/ottla"
    kept = copy.run(made)
    trigger = "dpkg-trigger --by-package=python3-minimal --no-await /usr/bin/python3; dpkg --triggers-only --pending"
    copy.run(trigger)
    assert copy.run(made) == kept, "it was made again for the same Python"
    copy.run(f"mv /opt/ottla/lib/python3.* /opt/ottla/lib/python3.0; {trigger}")
    assert copy.run("ottla --version").startswith("ottla ")
    copy.run("test ! -e /opt/ottla/lib/python3.0")


def remove(copy: Machine) -> None:
    """Remove the package: its settings and the data of the program are kept."""
    copy.run("dpkg --remove ottla")
    assert copy.run("ls /opt | grep ottla || true; ls /usr/bin/ottla /usr/share/ottla 2>/dev/null || true") == ""
    copy.run("test -f /etc/sysctl.d/99-ottla.conf; test -f /etc/ottla/server.properties")


def purge(copy: Machine) -> None:
    """Purge the package: dpkg forgets it, and the records are kept."""
    said = copy.run("dpkg --purge ottla")
    assert "/var/lib/ottla is kept" in said and "/etc/ottla is kept" in said, said
    copy.run("test ! -e /etc/sysctl.d/99-ottla.conf; test -d /var/lib/ottla/data/orders-0")
    assert copy.tried("dpkg --status ottla").returncode != 0


def install_again(copy: Machine, folder: Path, logs: Path) -> None:
    """Install the package again: the node serves the records that it had."""
    copy.run(f"dpkg --install {folder}/ottla.deb")
    with copy.node(logs / "journal"):
        assert copy.run(f"ottla consume orders -b {BOOTSTRAP}") == "first\n"
    copy.run("dpkg --purge ottla")
