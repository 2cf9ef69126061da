"""Writes the table of docs/INSTALL.md: on which platforms pip finds a wheel of everything, so that no compiler is needed.

    python -m tools.platforms            # some minutes: pip is asked once for each platform and Python
    python -m tools.platforms --print    # prints the table only

pip resolves for another platform when it is given that platform's tags. What it cannot do is to evaluate the markers of requirements
for it, so that is done here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "INSTALL.md"
BEGIN, END = "<!-- tools/platforms.py -->", "<!-- end -->"
#: The width of lines in a page, as tests/rules/test_pages.py wants it.
WIDTH = 120
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: The extras whose wheels do not exist for all platforms.
EXTRAS = ("regex", "lz4")


class Platform(NamedTuple):
    name: str
    system: str
    machine: str
    tags: Sequence[str]


def linux(libc: str, machine: str, versions: Iterable[str]) -> list[str]:
    return [f"{libc}linux_{version}_{machine}" for version in versions]


#: glibc 2.17 is CentOS 7's, 2.28 Debian 10's, 2.36 Debian 12's; musl 1.2 is Alpine's since 3.13.
GLIBC, MUSL = ("2_36", "2_35", "2_34", "2_31", "2_28", "2_27", "2_17"), ("1_2", "1_1")
ARM_MAC = [f"macosx_{version}_0_{kind}" for version in range(14, 10, -1) for kind in ("arm64", "universal2")]
INTEL_MAC = [f"macosx_{version}_0_{kind}" for version in range(14, 10, -1) for kind in ("x86_64", "universal2")]
INTEL_MAC += [f"macosx_10_{version}_{kind}" for version in range(15, 8, -1) for kind in ("x86_64", "universal2")]
PLATFORMS = (
    Platform("Linux x86-64, glibc", "linux", "x86_64", [*linux("many", "x86_64", GLIBC), "manylinux2014_x86_64"]),
    Platform("Linux arm64, glibc", "linux", "aarch64", [*linux("many", "aarch64", GLIBC), "manylinux2014_aarch64"]),
    Platform("Linux armv7, glibc", "linux", "armv7l", [*linux("many", "armv7l", GLIBC), "manylinux2014_armv7l"]),
    Platform("Linux x86-64, musl (Alpine)", "linux", "x86_64", linux("musl", "x86_64", MUSL)),
    Platform("Linux arm64, musl", "linux", "aarch64", linux("musl", "aarch64", MUSL)),
    Platform("Linux armv7, musl", "linux", "armv7l", linux("musl", "armv7l", MUSL)),
    Platform("macOS arm64", "darwin", "arm64", ARM_MAC),
    Platform("macOS Intel", "darwin", "x86_64", INTEL_MAC),
)


def project() -> dict[str, list[str]]:
    """Return the requirements of the core under "", and those of each extra under its name."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": found["dependencies"], **found["optional-dependencies"]}


def needed(requirements: Iterable[str], platform: Platform, python: str) -> set[str]:
    """Return the names of the packages that are installed there, with the dependencies of dependencies as this machine knows
    them.
    """
    environment = {
        "sys_platform": platform.system,
        "platform_system": platform.system.capitalize(),
        "platform_machine": platform.machine,
        "python_version": python,
        "python_full_version": f"{python}.0",
        "extra": "",
    }
    found: set[str] = set()
    todo = [Requirement(text) for text in requirements]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker is not None and not requirement.marker.evaluate(environment)):
            continue
        found.add(name)
        todo += [Requirement(text) for text in metadata.requires(name) or []]
    return found


def without_wheels(names: Iterable[str], platform: Platform, python: str) -> list[str]:
    """Return the names for which pip finds no wheel."""
    names = sorted(names)
    if _has_wheels(names, platform, python):
        return []
    return [name for name in names if not _has_wheels([name], platform, python)]


def _has_wheels(names: Sequence[str], platform: Platform, python: str) -> bool:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--dry-run",
        "--no-deps",
    ]
    command += ["--ignore-installed", "--only-binary=:all:", "--python-version", python]
    command += [word for tag in (*platform.tags, "any") for word in ("--platform", tag)]
    with tempfile.TemporaryDirectory() as target:
        done = subprocess.run([*command, "--target", target, *names], capture_output=True, text=True)
    if done.returncode and "No matching distribution found" not in done.stderr:
        raise RuntimeError(done.stderr)
    return done.returncode == 0


def row(platform: Platform) -> str:
    """Return a row of the table: the packages without a wheel for each Python, then whether there is TLS, and the extras."""
    extras = project()
    cells = []
    for python in PYTHONS:
        lacking = without_wheels(needed(extras[""], platform, python), platform, python)
        cells.append("not " + ", ".join(lacking) if lacking else "yes")
    cells.append(_which([p for p in PYTHONS if "cryptography" in needed(extras[""], platform, p)]))
    for extra in EXTRAS:
        have = [p for p in PYTHONS if not without_wheels(needed(extras[extra], platform, p), platform, p)]
        cells.append(_which(have))
    return f"| {' | '.join([platform.name, *cells])} |"


def _which(pythons: Sequence[str]) -> str:
    return "yes" if len(pythons) == len(PYTHONS) else ", ".join(pythons) or "no"


def table() -> str:
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(row, PLATFORMS))
    return "\n".join([*HEAD, *rows, "", checked()])


HEAD = (
    f"| platform | {' | '.join(PYTHONS)} | TLS, OAUTHBEARER | {' | '.join(f'the extra `{extra}`' for extra in EXTRAS)} |",
    f"| --- |{' --- |' * (len(PYTHONS) + 1 + len(EXTRAS))}",
)


def checked() -> str:
    """Return the lines under the table that name all packages: by them a test sees that the table is out of date."""
    names = sorted({name for platform in PLATFORMS for name in needed(project()[""], platform, PYTHONS[0])})
    return textwrap.fill(f"Asked for: {', '.join(names)}.", WIDTH, break_on_hyphens=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of platforms into docs/INSTALL.md.")
    parser.add_argument("--print", action="store_true", help="print it only")
    options = parser.parse_args()
    text = table()
    if options.print:
        print(text)
        return
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
