"""The files of a release: `make dist` builds it into dist/, and the same commit gives the same bytes.

ottla-VERSION-py3-none-any.whl, ottla-VERSION.tar.gz     the wheel and the source archive
pyspark_ottla-VERSION-py3-none-any.whl                   the connector for Spark alone (docs/SPARK.md)
ottla-image-VERSION.tar.gz                               the context of docker/Dockerfile: docker build -f docker/Dockerfile .
ottla-VERSION.cdx.json                                   what is in the image, as CycloneDX
ottla-site-VERSION.tar.gz                                the pages of docs/, to be read without a network (tools/docs_site.py)
SHA256SUMS                                               of all of them
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools import connector_dist

ROOT = Path(__file__).parent.parent
SUMS = "SHA256SUMS"
VERSION_FILE = "ottla/__init__.py"
#: The time of everything in an archive: 2020-02-02, as hatchling's. The commit's own would be one more thing that can differ.
EPOCH = 1_580_601_600
#: The same in a zip archive.
DATE = (2020, 2, 2, 0, 0, 0)
LOCKS = tuple(f"docker/{prefix}requirements.txt" for prefix in ("", "build-", "registry-"))
#: The files that docker/Dockerfile copies, and docker/Dockerfile itself.
CONTEXT = ("docker/Dockerfile", "docker/image", *LOCKS, "ottla")
CONTEXT_FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".dockerignore")
_PIN = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>\S+)[^\\\n]*(?P<hashes>(?: ?\\\n +--hash=sha256:[0-9a-f]{64})*)", re.M
)


def version() -> str:
    """The version of this tree, from pyproject.toml. Another version may be installed."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / VERSION_FILE).read_text(), re.M)
    assert found is not None
    return found[1]


def build(folder: Path, site: Path | None = None) -> list[Path]:
    """Build everything into the folder, the pages too if their folder is given. Return the files, SHA256SUMS last."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    name = f"ottla-{version()}"
    (folder / f"ottla-image-{version()}.tar.gz").write_bytes(image_context())
    (folder / f"{name}.cdx.json").write_text(json.dumps(bill_of_materials(), indent=1) + "\n")
    made = sorted(folder / file for file in (f"{name}-py3-none-any.whl", f"{name}.tar.gz"))
    made.append(connector_dist.write_wheel(folder, version(), DATE))
    made += [folder / f"ottla-image-{version()}.tar.gz", folder / f"{name}.cdx.json"]
    if site is not None:
        made.append(folder / f"ottla-site-{version()}.tar.gz")
        made[-1].write_bytes(packed(site, site.rglob("*"), made[-1].name.removesuffix(".tar.gz")))
    return [*made, write_sums(folder, made)]


def write_sums(folder: Path, files: Iterable[Path]) -> Path:
    """Write the sums of these files of the folder, and return their file."""
    sums = folder / SUMS
    sums.write_text("".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files))
    return sums


def image_context() -> bytes:
    """Return the archive from which the image is built."""
    return packed(ROOT, _context())


def packed(folder: Path, paths: Iterable[Path], top: str = "") -> bytes:
    """Return an archive of these files of the folder, below `top`: owners, times and order are no one's machine's."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for path in sorted(each for each in paths if each.is_file()):
            entry = tarfile.TarInfo((Path(top) / path.relative_to(folder)).as_posix())
            entry.size, entry.mtime = path.stat().st_size, EPOCH
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as file:
                archive.addfile(entry, file)
    return made.getvalue()


def _context() -> Iterator[Path]:
    for name in (*CONTEXT, *CONTEXT_FILES):
        path = ROOT / name
        found = path.rglob("*") if path.is_dir() else [path]
        yield from (p for p in found if p.is_file() and "__pycache__" not in p.parts)


def bill_of_materials() -> dict[str, Any]:
    """Return the image's Python packages, with the hashes of their wheels (CycloneDX 1.5)."""
    own = {"type": "application", "name": "ottla", "version": version(), "purl": f"pkg:pypi/ottla@{version()}"}
    components = []
    for pin in _PIN.finditer((ROOT / "docker/requirements.txt").read_text()):
        purl = f"pkg:pypi/{pin['name']}@{pin['version']}"
        hashes = [{"alg": "SHA-256", "content": found} for found in re.findall(r"sha256:([0-9a-f]{64})", pin["hashes"])]
        references = [{"type": "distribution", "url": purl, "hashes": hashes}]
        row = {"type": "library", "name": pin["name"], "version": pin["version"], "bom-ref": purl, "purl": purl}
        components.append({**row, "externalReferences": references})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "bom-ref": own["purl"]}},
        "components": components,
        "dependencies": [{"ref": own["purl"], "dependsOn": [row["purl"] for row in components]}],
    }


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of the files that are not the same in both folders."""
    names = {file.name for folder in (one, other) for file in folder.iterdir()}
    return [name for name in sorted(names) if _bytes(one / name) != _bytes(other / name)]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Build a release into dist/.")
    parser.add_argument("--twice", action="store_true", help="build two times, and fail if a byte differs")
    parser.add_argument(
        "--tag", metavar="TAG", help="fail unless this is v and the version, and CHANGELOG.md has a section of it"
    )
    options = parser.parse_args()
    if options.tag is not None and not _is_release(options.tag):
        return 1
    from tools import docs_site  # needs the dependency group `site`, which tests of the other files lack

    made = build(ROOT / "dist", docs_site.build())
    print("\n".join(str(file.relative_to(ROOT)) for file in made))
    if options.twice:
        with tempfile.TemporaryDirectory() as again:
            build(Path(again), docs_site.build())
            differing = [name for name in differences(ROOT / "dist", Path(again)) if (Path(again) / name).exists()]
        print(f"differ: {', '.join(differing)}" if differing else "a second build has the same bytes")
        return 1 if differing else 0
    return 0


def _is_release(tag: str) -> bool:
    if tag != f"v{version()}":
        print(f"the tag is {tag}, and {VERSION_FILE} has {version()}", file=sys.stderr)
        return False
    if not re.search(rf"^## {re.escape(version())} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M):
        print(f"CHANGELOG.md has no section of {version()} with its date", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
