"""The image without an engine: the instructions of the Dockerfile, the scripts that it installs, and an estimate of its
layers.
"""

from __future__ import annotations

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from ottla.cli.shims.__main__ import TOOLS
from tests.docker.compose_file import ROOT
from tests.ports import free_ports

DOCKERFILE = ROOT / "docker" / "Dockerfile"
DOCKERFILES = (DOCKERFILE, ROOT / "docker" / "pipeline.Dockerfile")
IMAGE_MB_MAX = 158
WHEEL_MB_MAX = 3
#: The uncompressed size, in Debian 12, of the slim base image, and the Installed-Size of python3, netcat-openbsd and their
#: dependencies.
BASE_MB = 75
PYTHON_MB = 33
#: The share that `strip` leaves of a distribution's extension modules, as measured: uvloop's 14 MB become 1.6, xxhash's 2.1
#: become 0.16. Other modules are stripped already, or small.
STRIPPED_SHARES = {
    "uvloop": 0.12,
    "cryptography": 0.81,
    "xxhash": 0.08,
    "google-re2": 0.76,
    "pyyaml": 0.14,
    "fastcrc": 0.91,
    "zstandard": 0.09,
    "lz4": 0.11,
}
#: pycparser is only needed to compile with cffi, and is uninstalled.
UNINSTALLED = frozenset({"pycparser"})
#: Files that the Dockerfile deletes: 8 MB of lexers, with which rich would colour program text; zstandard's second
#: implementation; sources of extension modules.
DELETED = re.compile(
    r"pygments/lexers/([a-z][^/]*|_[a-z0-9_]+_builtins)\.py$|zstandard/[^/]*cffi[^/]*$|\.(pyx|pxd|pyi)$"
)
DELETIONS = (
    "-path '*/pygments/lexers/[a-z]*.py' -delete",
    "-path '*/zstandard/*cffi*' -delete",
    r"-regex '.*\.\(pyx\|pxd\|pyi\)' -delete",
)


def instructions(path: Path = DOCKERFILE) -> list[tuple[str, str]]:
    text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text()).replace("\\\n", " ")
    return [
        (word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word
    ]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage of the Dockerfile by its name. The last stage, which is built by default, has the
    name "".
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for word, text in instructions():
        if word == "FROM":
            rows = found[text.partition(" AS ")[2]] = []
        rows.append((word, text))
    return found


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_is_built_of_known_instructions(path: Path) -> None:
    known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "CMD"}
    assert {word for word, _ in instructions(path)} <= known
    assert instructions(path)[0][0] == "FROM"
    assert {text for word, text in instructions(path) if word == "USER"} == {"appuser"}


def test_the_registrys_image_starts_by_the_script_of_cp_schema_registry_and_can_run_what_it_copies() -> None:
    rows = stages()["registry"]
    assert ("CMD", '["/etc/confluent/docker/run"]') in rows
    copied = dict(text.split() for word, text in rows if word == "COPY" and "--from" not in text)
    assert set(copied.values()) == {"/usr/local/bin/curl", "/etc/confluent/docker/run"}
    # COPY keeps the mode of a file. Without the executable bit the health check could not run curl.
    assert all(os.access(ROOT / source, os.X_OK) for source in copied)


def test_it_ends_as_another_user_with_a_health_check() -> None:
    final = stages()[""]
    assert [text for word, text in final if word == "USER"] == ["appuser"]
    assert any(word == "HEALTHCHECK" and "ottla-health" in text for word, text in final)
    assert ("CMD", '["/etc/kafka/docker/run"]') in final


def test_an_image_is_made_of_stages_without_tools_for_building() -> None:
    found = stages()
    assert found.keys() == {"build", "build-registry", "base", "registry", ""}
    tools = [
        name for name, rows in found.items() if any(re.search(r"pip\b.* install|binutils", text) for _, text in rows)
    ]
    assert tools == ["build", "build-registry"]
    assert [rows[0][1] for rows in found.values()][2:] == ["debian:bookworm-slim AS base", "base AS registry", "base"]
    assert [text for word, text in found["registry"] if word == "USER"] == ["appuser"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_package_lists_do_not_stay_in_a_layer(path: Path) -> None:
    for word, text in instructions(path):
        if word == "RUN" and "apt-get update" in text:
            assert "--no-install-recommends" in text
            assert "rm -rf /var/lib/apt/lists/*" in text


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_it_copies_is_there_and_not_ignored(path: Path) -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for word, text in instructions(path):
        if word == "COPY" and "--from" not in text:
            for source in text.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(f"{source.rstrip('/')}/".startswith(f"{path}/") for path in allowed), source


@pytest.mark.parametrize("path", sorted((ROOT / "docker").glob("*requirements.txt")), ids=lambda path: path.name)
def test_each_pinned_package_has_a_hash(path: Path) -> None:
    head, *pins = re.split(r"(?m)^(?=[a-z])", path.read_text())
    assert head == "", "pip-compile has written an option of its machine, such as --find-links"
    assert pins and all(" \\\n    --hash=sha256:" in pin for pin in pins)
    assert f"--require-hashes -r {path.name}" in DOCKERFILE.read_text()


def test_the_pinned_packages_are_what_the_project_asks_for() -> None:
    names = r"(?m)^([a-z0-9][a-z0-9.-]*)==(\S+)"
    pinned = dict(re.findall(names, (ROOT / "docker" / "requirements.txt").read_text()))
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = asked["optional-dependencies"]
    for requirement in (*asked["dependencies"], *extras["regex"], *extras["lz4"]):
        name, _, least = requirement.partition(";")[0].partition(">=")
        version = pinned[name.lower().replace("_", "-")]
        assert [int(n) for n in re.findall(r"\d+", version)] >= [int(n) for n in least.split(".")], requirement


IMAGE_ENVIRONMENT = {**os.environ, "OTTLA_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files that install.sh puts into the image."""
    prefix = tmp_path_factory.mktemp("image")
    subprocess.run(
        ["sh", str(ROOT / "docker/image/install.sh")], env=IMAGE_ENVIRONMENT | {"PREFIX": str(prefix)}, check=True
    )
    return prefix


@pytest.mark.parametrize(
    "path",
    [
        "etc/kafka/docker/run",
        "etc/confluent/docker/configure",
        "etc/confluent/docker/launch",
        "etc/confluent/docker/run",
        "etc/confluent/docker/bash-config",
        "opt/bitnami/scripts/kafka/entrypoint.sh",
        "opt/bitnami/scripts/kafka/run.sh",
        "opt/kafka/bin/kafka-topics.sh",
        "opt/bitnami/scripts/kafka/setup.sh",
        "etc/confluent/docker/ensure",
        "usr/bin/start-kafka.sh",
        "usr/bin/create-topics.sh",
        "usr/local/bin/cub",
        "usr/local/bin/ottla-health",
    ],
)
def test_scripts_are_where_three_images_have_them(path: str, installed: Path) -> None:
    script = installed / path
    assert os.access(script, os.X_OK)
    shell = "bash" if "bash" in script.read_text().splitlines()[0] else "sh"
    subprocess.run([shell, "-n", str(script)], check=True)


def test_every_tool_has_every_spelling(installed: Path) -> None:
    for name in (*(TOOLS.keys() - {"create-topics"}), "kafka-run-class", "connect-standalone"):
        assert (installed / f"opt/kafka/bin/{name}.sh").exists()
        assert (installed / f"opt/bitnami/kafka/bin/{name}.sh").is_symlink()
        assert (installed / f"usr/bin/{name}").is_symlink()


def run_in(installed: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [f"{installed}/{words[0]}", *words[1:]], env=IMAGE_ENVIRONMENT, capture_output=True, text=True
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_a_tool_is_found_by_its_name_and_by_its_class(installed: Path) -> None:
    for words in (
        ["kafka-storage.sh", "random-uuid"],
        ["kafka-run-class.sh", "kafka.tools.StorageTool", "random-uuid"],
    ):
        code, said, error = run_in(installed, f"opt/kafka/bin/{words[0]}", *words[1:])
        assert (code, len(said)) == (0, 22), error


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["opt/kafka/bin/kafka-run-class.sh", "kafka.tools.JmxTool"], "this image has no JVM"),
        (["opt/kafka/bin/connect-standalone.sh", "x"], "run its own image against this broker"),
        (["opt/kafka/bin/zookeeper-shell.sh"], "there is no ZooKeeper here"),
        (["usr/local/bin/cub", "zk-ready", "localhost:1", "0"], "nothing listens on localhost:1"),
        (["usr/local/bin/cub", "sr-ready"], "kafka-ready and zk-ready are known here"),
        (["opt/bitnami/scripts/libkafka.sh"], "use the tools in /opt/bitnami/kafka/bin"),
    ],
)
def test_what_is_not_in_the_image_says_so_in_one_line(command: list[str], said: str, installed: Path) -> None:
    words = command if "libkafka" not in command[0] else ["bin/sh", *command]
    if words is not command:  # a script that is sourced has no first line of its own
        done = subprocess.run(["sh", f"{installed}/{command[0]}"], capture_output=True, text=True)
        code, error = done.returncode, done.stderr.strip()
    else:
        code, _, error = run_in(installed, *command)
    assert code == 1 and said in error and "\n" not in error


def test_curl_of_a_health_check_gets_the_body_or_the_code_of_the_real_one(installed: Path) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/readyz" else 503)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *arguments: object) -> None:
            pass

    def curl(*words: str) -> tuple[int, str]:
        program = [sys.executable, f"{installed}/usr/local/bin/curl", *words]
        done = subprocess.run(program, capture_output=True, text=True)
        return done.returncode, done.stdout

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert curl("-f", f"{address}/readyz") == (0, "ok")
            assert curl("-fsS", f"{address}/else") == (22, "")
            assert curl("-X", "POST", address)[0] == 2
        finally:
            server.shutdown()
    assert curl("-sf", address)[0] == 7


def test_the_file_of_kafka_server_start_is_the_packaged_node(tmp_path: Path) -> None:
    written = tmp_path / "server.properties"
    command = [sys.executable, "-m", "ottla", "container", "configure", "--properties", str(written), "--check"]
    assert "ottla container configure --properties /opt/kafka/config/server.properties" in DOCKERFILE.read_text()
    given = {"PYTHONPATH": str(ROOT), "KAFKA_LOG_DIRS": str(tmp_path), "OTTLA_ADMIN_LISTENER": ""}
    ports = dict(zip(("PLAINTEXT", "CONTROLLER"), free_ports(2), strict=True))
    given |= {
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_NODE_ID": "1",
        "KAFKA_LISTENERS": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    }
    subprocess.run(command, env=given, check=True, capture_output=True)
    assert "process.roles=broker,controller" in written.read_text()


def core_distributions() -> set[str]:
    """Return Ottla's own dependencies and their dependencies, without extras."""
    found: set[str] = set()
    todo = [re.split(r"[ ;<>=!~\[]", line)[0] for line in re.findall(r'^    "([^"]+)",$', _dependencies(), re.M)]
    while todo:
        name = todo.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        needed = (r for r in metadata.requires(name) or [] if "extra ==" not in r and "sys_platform" not in r)
        todo.extend(re.split(r"[ ;<>=!~\[(]", requirement)[0] for requirement in needed)
    return found


def _dependencies() -> str:
    text = (ROOT / "pyproject.toml").read_text()
    return text[text.index("\ndependencies = [") : text.index("]", text.index("\ndependencies = ["))]


def test_the_layers_stay_below_158_mb() -> None:
    own = sum(file.stat().st_size for file in (ROOT / "ottla").rglob("*.py"))
    total = own * 2.0  # with the compiled files
    for name in {*core_distributions(), "google-re2", "lz4"} - UNINSTALLED:
        for file in metadata.files(name) or []:
            path = Path(str(file.locate()))
            if path.exists() and path.suffix != ".pyc" and not DELETED.search(str(path)):
                share = {".so": STRIPPED_SHARES.get(name, 1.0), ".py": 2.0}.get(path.suffix, 1.0)
                total += path.stat().st_size * share
    layers = {"debian:bookworm-slim": BASE_MB, "python3, nc": PYTHON_MB, "/opt/ottla": total / 1e6, "scripts": 1}
    print({name: round(size) for name, size in layers.items()}, round(sum(layers.values())), "MB")
    assert sum(layers.values()) <= IMAGE_MB_MAX


def test_the_help_of_a_command_needs_none_of_the_files_that_the_image_leaves_out() -> None:
    text = DOCKERFILE.read_text()
    assert all(deletion in text for deletion in DELETIONS) and all(
        f"uninstall -y --disable-pip-version-check pip setuptools {n}" in text for n in UNINSTALLED
    )
    program = (
        "import sys; sys.modules['pycparser'] = None; import cryptography.x509; from ottla.__main__ import main; main(['topic', 'create', '--help']); "
        "print([name for name in sys.modules if name.startswith('pygments.lexers.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


def test_the_wheel_that_it_installs_has_everything(tmp_path: Path) -> None:
    if shutil.which("git") is None and not (ROOT / ".git").exists():
        pytest.skip("no source tree")
    # The wheel is built as in the Dockerfile: with the installed hatchling (of the extra dev), and without a registry.
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(tmp_path),
    ]
    done = subprocess.run([*wheel, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = next(tmp_path.glob("ottla-*.whl"))
    names = subprocess.run([sys.executable, "-m", "zipfile", "-l", str(built)], capture_output=True, text=True).stdout
    for wanted in (
        "ottla/container/entry.py",
        "ottla/cli/shims/__main__.py",
        "ottla/cli/commands/container.py",
        "server/admin.py",
        "ottla/testing/plugin.py",
    ):
        assert wanted in names
    assert built.stat().st_size <= WHEEL_MB_MAX * 1e6
