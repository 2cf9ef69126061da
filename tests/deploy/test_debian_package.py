"""The contents of the built Debian package, with a stand-in for the wheels. `make compat ARGS=deb` installs the real
package.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.needs import skip_because
from tools import debian_package
from tools.debian_package import FILES, OWN, PROGRAM, ROOT, SCRIPTS, SOURCES


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_because(debian_package.missing())
    return built(tmp_path_factory.mktemp("package"))


def built(folder: Path) -> Path:
    wheels = [folder / f"{name}-1-py3-none-any.whl" for name in ("ottla", "uvloop")]
    for wheel in wheels:
        wheel.write_text(wheel.name)
    return debian_package.build(folder, wheels[0], wheels[1:], "arm64")


def said(*words: str | Path) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_a_second_build_of_the_package_has_the_same_bytes(package: Path, tmp_path: Path) -> None:
    assert built(tmp_path).read_bytes() == package.read_bytes()


def test_the_package_has_the_files_of_the_tree_for_root(package: Path, tmp_path: Path) -> None:
    said("dpkg-deb", "--raw-extract", package, tmp_path)
    for name, source in FILES.items():
        assert (tmp_path / name).read_text() == (ROOT / source).read_text()
    wheels = {path.name for path in (tmp_path / "usr/share/ottla/wheels").iterdir()}
    assert wheels == {"ottla-1-py3-none-any.whl", "uvloop-1-py3-none-any.whl"}
    assert re.fullmatch(r"ottla==\S+ --hash=sha256:[0-9a-f]{64}\n", (tmp_path / OWN).read_text())
    assert (tmp_path / "usr/bin/ottla").readlink() == Path(PROGRAM)
    assert not re.search(r"^\S+ (?!root/root )", said("dpkg-deb", "--contents", package), re.MULTILINE)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "DEBIAN").iterdir()}
    assert modes == {name: 0o755 if name in SCRIPTS else 0o644 for name in (*SCRIPTS, *modes)}


def test_what_it_needs_is_pythons_whose_wheels_it_has(package: Path) -> None:
    fields = said("dpkg-deb", "--field", package, "Architecture", "Depends")
    assert fields.splitlines() == [
        "Architecture: arm64",
        "Depends: python3 (>= 3.11), python3 (<< 3.15), python3-venv, adduser",
    ]


def test_its_files_below_etc_are_kept_as_their_owner_changed_them() -> None:
    files = sorted(f"/{name}" for name in FILES if name.startswith("etc/"))
    assert (SOURCES / "conffiles").read_text().splitlines() == files


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_package_is_one_that_the_shell_takes(name: str) -> None:
    said("sh", "-n", SOURCES / name)


def test_the_package_the_unit_and_the_bundles_have_the_same_paths_and_user() -> None:
    made = (SOURCES / "postinst").read_text()
    bundle = (ROOT / "ottla/local/bundles.py").read_text()
    unit = (ROOT / "deploy/systemd/ottla.service").read_text()
    assert "\nprogram=/opt/ottla\n" in made and f"ottla=${{OTTLA:-{PROGRAM}}}" in bundle
    assert "ExecStart=/opt/ottla/bin/python " in unit and "User=ottla\nGroup=ottla\n" in unit
    assert " ottla\n" in re.findall(r"adduser .*\n", made)[0] and "user=${OTTLA_USER:-ottla}" in bundle
    assert " /etc/ottla\n" in made and "/etc/ottla/server.properties" in unit


@pytest.mark.parametrize("version, sorted_before_release", [("1.0.0rc1", "1.0.0~rc1"), ("1.0.0.dev3", "1.0.0~dev3")])
def test_a_version_before_a_release_is_older_than_the_release(version: str, sorted_before_release: str) -> None:
    assert debian_package.debian_version(version) == sorted_before_release
    assert debian_package.debian_version("1.0.0") == "1.0.0"
