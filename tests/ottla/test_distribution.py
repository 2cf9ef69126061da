"""The wheel and the sdist, each installed into a separate environment beside a project whose folders have generic names."""

from __future__ import annotations

import email
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import ottla
import ottla.testing
from hatch_build import absolute, urls
from tools import dist, docs_site, platforms
from tools.lowest import lowest

ROOT = Path(__file__).parent.parent.parent
THEIRS = ("protocol", "storage", "server", "broker", "controller", "pipeline")
WHEEL_MB_MAX = 3.0
PYTEST = """
import broker, controller, pipeline, protocol, server, storage
from ottla.testing import Cluster


def test_the_projects_own_packages_are_the_ones_that_are_imported():
    assert all(each.MINE for each in (broker, controller, pipeline, protocol, server, storage))


def test_the_plugins_cluster_answers(kafka_proc):
    assert isinstance(kafka_proc, Cluster)
    assert [broker.node_id for broker in kafka_proc.metadata().brokers] == [1]
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    wheel, sdist, connector, context, bill, sums = dist.build(tmp_path_factory.mktemp("dist"))
    return {"wheel": wheel, "sdist": sdist, "connector": connector, "context": context, "bill": bill, "sums": sums}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in THEIRS:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("MINE = True\n")
    (folder / "test_theirs.py").write_text(PYTEST)
    return folder


def installed(file: Path, folder: Path) -> Path:
    """Install a file, and pytest, into an empty environment in the folder. Return its interpreter."""
    venv.create(folder / "env", symlinks=True)
    python = folder / "env/bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-compile", file, "pytest", cwd=folder)
    return python


def test_the_wheel_has_one_name_and_stays_small(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = wheel.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"ottla"}
    for part in (*THEIRS, "testing"):
        assert f"ottla/{part}/__init__.py" in names
    assert "ottla/py.typed" in names
    assert built["wheel"].stat().st_size <= WHEEL_MB_MAX * 1e6


def test_the_metadata_are_those_of_a_package_on_an_index(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        found = email.message_from_bytes(wheel.read(name))
    assert (found["Metadata-Version"], found["License-Expression"], found["License-File"]) == (
        "2.4", "Apache-2.0", "LICENSE",
    )  # fmt: skip
    assert found["Keywords"] and found["Author"]
    classifiers = found.get_all("Classifier", [])
    assert [each for each in classifiers if each.startswith("Programming Language :: Python :: 3.")] == [
        f"Programming Language :: Python :: {each}" for each in platforms.PYTHONS
    ]
    assert not any(each.startswith("License ::") for each in classifiers), "an expression is there in their place"
    assert "dev" not in found.get_all("Provides-Extra", [])
    assert bool(found.get_all("Project-URL")) is bool(ottla.REPOSITORY)
    description = found.get_payload(decode=True)
    assert isinstance(description, bytes)
    assert relative_links(description.decode()) == []


def relative_links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith(("https://", "#"))]


def test_links_lead_into_the_repository_at_the_version_once_there_is_one() -> None:
    text = "[a page](docs/X.md#y), ![a picture](docs/x.png), [there](https://e.org), [here](#part)"
    assert absolute(text, "", "1.0") == "a page, , [there](https://e.org), [here](#part)"
    assert absolute(text, "https://h/o", "1.0") == (
        "[a page](https://h/o/blob/v1.0/docs/X.md#y), ![a picture](https://h/o/raw/v1.0/docs/x.png),"
        " [there](https://e.org), [here](#part)"
    )
    assert absolute("[log](../b/l.md#z)", "https://h/o", "1.0", "docs") == "[log](https://h/o/blob/v1.0/b/l.md#z)"
    for page, folder in (("README.md", ""), ("docs/SPARK.md", "docs")):
        assert relative_links(absolute((ROOT / page).read_text(), "https://h/o", "1.0", folder)) == []
    assert urls("", "1.0") == {} and urls("https://h/o", "1.0")["Issues"] == "https://h/o/issues"


def test_a_second_build_has_the_same_bytes_and_the_sums_are_of_them(built: dict[str, Path], tmp_path: Path) -> None:
    dist.build(tmp_path)
    assert dist.differences(built["wheel"].parent, tmp_path) == []
    listed = dict(reversed(line.split("  ")) for line in built["sums"].read_text().splitlines())
    assert listed == {
        built[part].name: hashlib.sha256(built[part].read_bytes()).hexdigest()
        for part in ("wheel", "sdist", "connector", "context", "bill")
    }


def test_the_context_of_the_image_has_what_the_dockerfile_copies(built: dict[str, Path]) -> None:
    with tarfile.open(built["context"]) as archive:
        names = set(archive.getnames())
        assert {(member.uid, member.mtime) for member in archive} == {(0, dist.EPOCH)}
    text = (ROOT / "docker/Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        for source in line.split()[:-1]:
            assert any(name == source or name.startswith(f"{source.rstrip('/')}/") for name in names), source


def test_the_bill_of_materials_names_what_the_image_installs(built: dict[str, Path]) -> None:
    bill = json.loads(built["bill"].read_text())
    pinned = re.findall(r"(?m)^([a-z0-9][a-z0-9.-]*==\S+) ", (ROOT / "docker/requirements.txt").read_text())
    assert [f"{row['name']}=={row['version']}" for row in bill["components"]] == pinned
    assert all(row["externalReferences"][0]["hashes"] for row in bill["components"])
    assert bill["metadata"]["component"]["version"] == dist.version() == ottla.__version__


def test_the_first_section_of_the_changelog_is_the_version_with_its_date_or_unreleased() -> None:
    first, *older = re.findall(r"(?m)^## (.+)$", (ROOT / "CHANGELOG.md").read_text())
    assert re.fullmatch(rf"{re.escape(dist.version())} - (unreleased|\d{{4}}-\d\d-\d\d)", first), first
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", heading) for heading in older), older


def test_a_tag_that_is_not_the_version_is_no_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert not dist._is_release("v0.0.0")
    assert f"ottla/__init__.py has {dist.version()}" in capsys.readouterr().err


def test_each_requirement_has_a_lower_bound_that_can_be_installed_alone() -> None:
    pins = [lowest(text) for text in platforms.project()[""]]
    assert all("==" in pin and ">" not in pin for pin in pins)
    with pytest.raises(ValueError, match="no lower bound"):
        lowest("rich<14")


@pytest.mark.compat
@pytest.mark.timeout(400)
def test_beside_packages_of_the_same_names_a_node_starts_and_the_plugin_works(
    built: dict[str, Path], project: Path, tmp_path: Path
) -> None:
    """The sdist is tested here; `tests/plain` tests the wheel."""
    python = installed(built["sdist"], tmp_path)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    code = "import sys, ottla.node.node; print(*{name.partition('.')[0] for name in sys.modules})"
    assert not set(THEIRS) & set(run(python, "-c", code, cwd=project).split())


def test_the_pages_of_the_site_are_written_and_name_all_that_the_test_kit_has(tmp_path: Path) -> None:
    docs_site.write_pages(tmp_path / "pages")
    page = (tmp_path / "pages/reference/testing.md").read_text()
    named = {name: module for module, name in re.findall(r"^::: (\S+)\.(\w+)$", page, re.M)}
    assert named.keys() == {*ottla.testing.__all__, "plugin"}
    assert all(hasattr(importlib.import_module(module), name) for name, module in named.items())
