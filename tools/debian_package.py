"""Builds the Debian package into dist/, with the wheel that it has: `make deb`. The same commit gives the same bytes.

The package has wheels and no program: its postinst makes the virtual environment /opt/ottla from them, by the machine's own Python and
without a network. So one package is for each release of Debian and Ubuntu whose Python is in PYTHONS, and what is in it are the files and
the hashes of docker/requirements.txt. docs/OPERATIONS.md has its use, and docs/RELEASING.md the reasons.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tools import dist
from tools.platforms import PLATFORMS, PYTHONS, Platform

ROOT = dist.ROOT
SOURCES = ROOT / "deploy" / "debian"
SCRIPTS = ("postinst", "prerm", "postrm")
LOCKS = ("requirements.txt", "registry-requirements.txt")
#: Debian's names of the machines.
ARCHITECTURES: dict[str, Platform] = {
    name: next(each for each in PLATFORMS if (each.system, each.machine) == ("linux", machine) and "glibc" in each.name)
    for name, machine in (("amd64", "x86_64"), ("arm64", "aarch64"))
}
#: The files of the package and where they lie in the tree.
FILES = {
    "usr/lib/systemd/system/ottla.service": "deploy/systemd/ottla.service",
    "etc/sysctl.d/99-ottla.conf": "deploy/systemd/99-ottla.conf",
    "usr/share/doc/ottla/README.md": "README.md",
    "usr/share/doc/ottla/CHANGELOG.md": "CHANGELOG.md",
    "usr/share/doc/ottla/copyright": "deploy/debian/copyright",
    **{f"usr/share/ottla/{lock}": f"docker/{lock}" for lock in LOCKS},
}
LINK, PROGRAM = "usr/bin/ottla", "/opt/ottla/bin/ottla"
#: A requirement of pip that names the wheel of this tree and its hash.
OWN = "usr/share/ottla/ottla-requirements.txt"


def debian_version(version: str) -> str:
    """Return a version of Python as Debian sorts it: 1.0.0rc1, 1.0.0a1 and 1.0.0.dev1 come before 1.0.0."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)", r"~\1\2", version)


def build(folder: Path, wheel: Path, wheels: Iterable[Path], architecture: str, version: str | None = None) -> Path:
    """Build the package of a wheel and of the wheels that it needs, and return its file.

    Args:
        version: a Debian version other than the tree's, to which a test upgrades.

    Raises:
        subprocess.CalledProcessError: dpkg-deb has failed, and has printed why.
    """
    version = version or debian_version(dist.version())
    made = folder / f"ottla_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as temporary:
        stage = Path(temporary)
        for name, source in FILES.items():
            _copy(ROOT / source, stage / name)
        for each in (wheel, *wheels):
            _copy(each, stage / "usr/share/ottla/wheels" / each.name)
        pin = f"ottla=={dist.version()} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
        (stage / OWN).write_text(pin)
        (stage / LINK).parent.mkdir(parents=True)
        (stage / LINK).symlink_to(PROGRAM)
        size = sum(path.lstat().st_size for path in stage.rglob("*") if path.is_file())
        _write_control(stage / "DEBIAN", version, architecture, size)
        _settle(stage)
        # gzip, because wheels are compressed already: xz makes them no smaller, and takes minutes.
        command = ["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", str(stage), str(made)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(dist.EPOCH)}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return made


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write_control(folder: Path, version: str, architecture: str, size: int) -> None:
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("copyright"))
    major, minor = PYTHONS[-1].split(".")
    control = folder / "control"
    text = control.read_text()
    for word, value in (
        ("ABOVE_NEWEST", f"{major}.{int(minor) + 1}"),
        ("OLDEST", PYTHONS[0]),
        ("VERSION", version),
        ("ARCHITECTURE", architecture),
        ("SIZE", str(size // 1024)),
    ):
        text = text.replace(word, value)
    control.write_text(text)


def _settle(stage: Path) -> None:
    """Give each file the mode and the time that it has on all machines."""
    programs = {stage / "DEBIAN" / name for name in SCRIPTS}
    for path in (stage, *stage.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path in programs else 0o644)
    for path in (stage, *stage.rglob("*")):
        os.utime(path, (dist.EPOCH, dist.EPOCH), follow_symlinks=False)


def own_wheel(folder: Path) -> Path:
    """Build the wheel of this tree into the folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(dist.EPOCH)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder / f"ottla-{dist.version()}-py3-none-any.whl"


def downloaded(folder: Path, architecture: str) -> list[Path]:
    """Download the pinned wheels for each Python into the folder; return them.

    Raises:
        subprocess.CalledProcessError: pip has found no wheel of a pinned package, or one of another hash.
    """
    tags = [word for tag in (*ARCHITECTURES[architecture].tags, "any") for word in ("--platform", tag)]
    locks = [word for lock in LOCKS for word in ("-r", str(ROOT / "docker" / lock))]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    for python in PYTHONS:
        choice = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--python-version", python, *tags]
        subprocess.run([*pip, *choice, *locks, "-d", str(folder)], check=True)
    return sorted(folder.glob("*.whl"))


def missing() -> str | None:
    """Return why no package can be built here."""
    return None if shutil.which("dpkg-deb") else "dpkg-deb is missing: install it (Debian: apt install dpkg)"


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the Debian package into dist/.")
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="amd64")
    options = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        wheels = downloaded(Path(temporary), options.architecture)
        made = build(folder, own_wheel(folder), wheels, options.architecture)
    print(made.relative_to(ROOT))
    sums = folder / dist.SUMS
    if sums.exists():
        names = {line.split()[1] for line in sums.read_text().splitlines()} | {made.name}
        dist.write_sums(folder, [folder / name for name in sorted(names)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
