"""The commands of docs/OPERATIONS.md, from an empty machine: run as root and as the user of the service.

Each line of a block is run unchanged, but with the folders, the host, the ports and the user of this test, or is listed with
the reason why it is not run. A new line of the page is in neither list, and fails the first test.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import pytest

from tests.another_user import OTHER_USER, as_other_user, skip_without_another_user, write_program
from tests.broker.conftest import eventually
from tests.ottla.conftest import run_here
from tests.ports import free_ports
from tests.rules.sources import ROOT

HOST = "127.0.0.1"
STOP_SECONDS_MAX = 60
BLOCKS = [line[4:] for line in (ROOT / "docs" / "OPERATIONS.md").read_text().splitlines() if line.startswith("    ")]
SYSTEMCTL = "there is no systemd here: the test runs the line for machines without it, and stops it by its signal"
START = next(line for line in BLOCKS if line.endswith(" start /etc/ottla/server.properties"))
PACKAGES = "tests/plain installs the wheel in an empty environment"
STORY = (
    "tests/cluster/test_stories.py asks for stories of groups and transactions, which do not exist on an empty machine"
)
FOURTH = "it needs a fourth machine; tests/ottla/cli/commands/test_move.py moves partitions"
FEATURES = "all features of a new cluster have their newest level"
APT = "`make compat ARGS=deb` installs and upgrades the package in a copy of this machine"
#: By line: the reason why it is not run here.
NOT_RUN = {
    "useradd --system --home-dir /var/lib/ottla --shell /usr/sbin/nologin ottla": "a test makes no users: it takes one that is there",
    "apt install ./dist/ottla_*.deb && sysctl --system": APT,
    "apt install ./dist/ottla_*.deb": APT,
    "python3 -m venv /opt/ottla": PACKAGES,
    "/opt/ottla/bin/python -m pip install dist/ottla-*.whl": PACKAGES,
    "ln -s /opt/ottla/bin/ottla /usr/local/bin/": PACKAGES,
    "install -D -m 644 -t /etc/systemd/system deploy/systemd/ottla.service": SYSTEMCTL,
    "install -D -m 644 -t /etc/sysctl.d deploy/systemd/99-ottla.conf && sysctl --system": "it would change this machine's kernel",
    "systemctl enable --now ottla": SYSTEMCTL,
    "systemctl start ottla": SYSTEMCTL,
    "systemctl stop ottla": SYSTEMCTL,
    "ottla group describe shop --story --admin-port 9644": STORY,
    "ottla txn describe billing-0 --story --admin 1@broker-1:9644 --admin 2@broker-2:9644": STORY,
    "ottla feature upgrade metadata.version=LEVEL --dry-run": FEATURES,
    "ottla feature upgrade metadata.version=LEVEL": FEATURES,
    "ottla move run orders:0 orders:1 --to 4,1,2": FOURTH,
}
#: Lines that copy from another machine. Here a local copy stands in.
BY_SCP = {
    "scp cluster/nodes/kafka-1.tar root@kafka-1:": "cp cluster/nodes/kafka-1.tar .",
    "scp -r kafka-1:/var/lib/ottla/data /var/lib/ottla/": "cp -r /backup/data /var/lib/ottla/",
}
#: The beginning of lines that show output and are no commands.
PRINTED = re.compile(r"TIME  |\d{4}-\d\d-\d\dT")


class Machine:
    """A machine in a folder: root's shell, and the node as the service runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        for name in ("opt", "backup"):
            (folder / name).mkdir()
        write_program(folder / "opt" / "ottla")
        self.port, self.controller_port, self.admin_port = free_ports(3)
        self.initial_controllers = ""
        self.node: subprocess.Popen[bytes] | None = None

    def here(self, line: str) -> str:
        """Return a line of the page as it is run here."""
        for there, here in (
            ("/opt/ottla/bin/ottla", f"{self.folder}/opt/ottla"),
            ("/etc/ottla", f"{self.folder}/etc"),
            ("/var/lib/ottla", f"{self.folder}/var"),
            ("/backup", f"{self.folder}/backup"),
            ("kafka-1,kafka-2,kafka-3", HOST),
            ("kafka-1", HOST),
            ("9644", str(self.admin_port)),
            ("LIST", self.initial_controllers),
            ("-u ottla", f"-u {OTHER_USER}"),
            ("--reuid=ottla --regid=ottla", f"--reuid={OTHER_USER} --regid=$(id -gn {OTHER_USER})"),
            ("-o ottla -g ottla", f"-o {OTHER_USER} -g $(id -gn {OTHER_USER})"),
            ("-g ottla", f"-g $(id -gn {OTHER_USER})"),
            ("ottla:ottla", f"{OTHER_USER}:$(id -gn {OTHER_USER})"),
        ):
            line = line.replace(there, here)
        return line

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}/opt:{os.environ['PATH']}",
            "OTTLA_USER": OTHER_USER,
            "OTTLA": f"{self.folder}/opt/ottla",
            "OTTLA_BOOTSTRAP": f"{HOST}:{self.port}",
            "OTTLA_CONFIG": f"{self.folder}/cluster/clients/admin.properties",
        }

    def run(self, *lines: str, options: str = "") -> str:
        """Run these lines of the page as root, and return their output. Each must be on the page."""
        out = []
        for line in lines:
            assert line in BLOCKS, f"OPERATIONS.md has no line {line}"
            command = self.here(BY_SCP.get(line, line).partition("  #")[0]) + options
            done = subprocess.run(
                ["sh", "-c", command],
                env={**os.environ, **self.environment()},
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            out.append(done.stdout + done.stderr)
        return "".join(out)

    def ask(self, line: str) -> str:
        """Run a line of the page that only calls `ottla`, in this process. Return its output."""
        assert line in BLOCKS, f"OPERATIONS.md has no line {line}"
        program, *words = shlex.split(self.here(line))
        assert program == "ottla"
        with patch.dict(os.environ, self.environment()):
            done = run_here(*words)
        assert done.code == 0, f"{line}\n{done.out}{done.err}"
        return done.out + done.err

    def start(self) -> None:
        """Start the node as a supervisor does: as its user, without the environment of root."""
        with (self.folder / "journal").open("ab") as journal:
            self.node = subprocess.Popen(["sh", "-c", self.here(START)], cwd="/", stdout=journal, stderr=journal)
        ready = f"http://127.0.0.1:{self.admin_port}/readyz"
        eventually(
            lambda: subprocess.run(["curl", "-sf", ready], capture_output=True).returncode == 0, self.journal(), 60
        )

    def stop(self) -> None:
        if self.node is None:
            return
        self.node.terminate()
        assert self.node.wait(STOP_SECONDS_MAX) == 0, self.journal()
        self.node = None

    def journal(self) -> str:
        return f"the node to serve: {self.folder / 'journal'}"


@pytest.fixture
def machine() -> Iterator[Machine]:
    skip_without_another_user()
    made = Machine(Path(mkdtemp()))
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(made.folder)


def test_each_line_of_the_page_is_run_or_says_why_not() -> None:
    text = Path(__file__).read_text()
    missing = [
        line for line in BLOCKS if not PRINTED.match(line) and line not in (*NOT_RUN, START) and f'"{line}"' not in text
    ]
    assert not missing, "run these lines in this file, or give them a reason in NOT_RUN:\n" + "\n".join(missing)
    assert not [line for line in NOT_RUN if line not in BLOCKS], "the page does not have these any more"


@pytest.mark.timeout(300)
def test_a_node_from_an_empty_machine_to_the_loss_of_its_disk(machine: Machine) -> None:
    machine.run("install -d -o root -g ottla -m 750 /etc/ottla")
    machine.run("install -d -o ottla -g ottla -m 700 /var/lib/ottla /var/lib/ottla/data")
    folders = machine.here(" --etc /etc/ottla --data /var/lib/ottla/data")
    machine.run("ottla init cluster --nodes kafka-1,kafka-2,kafka-3 --secure --user alice", options=folders)
    machine.run("scp cluster/nodes/kafka-1.tar root@kafka-1:", "tar -xf kafka-1.tar")
    with_ports(machine)
    machine.run("sh kafka-1/install", "rm -r kafka-1 kafka-1.tar")
    machine.start()
    machine.run("curl -s http://127.0.0.1:9644/readyz")
    assert HOST in machine.ask("ottla cluster info")
    assert "healthy" in machine.ask("ottla cluster health")
    for line in ("ottla broker list", "ottla feature list", "ottla partition elect"):
        machine.ask(line)
    create_orders(machine)
    machine.ask("ottla topic describe orders --story --partition 3 --admin-port 9644")

    # These are the steps of an upgrade. The user of the node may not read root's OTTLA_CONFIG; it has no effect beside the
    # node's file.
    stop = "runuser -u ottla -- /opt/ottla/bin/ottla cluster may-stop /etc/ottla/server.properties --wait 600"
    assert "may stop" in machine.run(stop)
    machine.run("cp -a /var/lib/ottla/data /backup/data", "cp -a /etc/ottla /backup/etc")
    machine.stop()

    # Now the disk is lost. A member of a larger quorum would join it again; this quorum has only the backup.
    data = machine.folder / "var" / "data"
    empty(data)
    machine.run("runuser -u ottla -- /opt/ottla/bin/ottla format /etc/ottla/server.properties --no-initial-controllers")
    assert (data / "meta.properties").exists() and not (data / "__cluster_metadata-0").exists()
    empty(data)
    machine.run(
        "runuser -u ottla -- /opt/ottla/bin/ottla format /etc/ottla/server.properties --initial-controllers LIST",
        "mv /var/lib/ottla/data/meta.properties /var/lib/ottla/",
        "rm -r /var/lib/ottla/data",
        "scp -r kafka-1:/var/lib/ottla/data /var/lib/ottla/",
        "mv /var/lib/ottla/meta.properties /var/lib/ottla/data/",
        "rm /var/lib/ottla/data/__cluster_metadata-0/quorum-state",
        "chown -R ottla:ottla /var/lib/ottla/data",
    )
    machine.start()
    machine.run("curl -sf http://127.0.0.1:9644/readyz        # until it succeeds: the replicas are in sync again")
    assert "Leader orders-3" in machine.ask("ottla topic describe orders --story --partition 3 --admin-port 9644")


def with_ports(machine: Machine) -> None:
    """Give the node of the bundle free ports, and switch stories on, which are off in a cluster with an authorizer."""
    bundle = machine.folder / HOST
    for file in (bundle / "install", bundle / "server.properties"):
        text = file.read_text()
        for port, own in ((9092, machine.port), (9093, machine.controller_port), (9644, machine.admin_port)):
            text = text.replace(f":{port}", f":{own}")
        file.write_text(text + ("ottla.admin.story=local\n" if file.suffix == ".properties" else ""))
    found = re.search(r"--initial-controllers (\S+)", (bundle / "install").read_text())
    assert found is not None
    machine.initial_controllers = found[1]


def create_orders(machine: Machine) -> None:
    with patch.dict(os.environ, machine.environment()):
        done = run_here("topic", "create", "orders", "-p", "4")
    assert done.code == 0, done.err


def empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir(mode=0o700)
    shutil.chown(directory, OTHER_USER)
    assert as_other_user("test", "-w", str(directory)).returncode == 0
