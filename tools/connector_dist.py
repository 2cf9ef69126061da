"""The distribution pyspark-ottla: the connector for Spark with the modules that it needs, as a wheel of its own.

Its modules lie in the package `pyspark_ottla` instead of `ottla`, so that it can be installed beside the broker, in another version
even. Spark looks for a class `DefaultSource` in packages whose names begin with pyspark_, and so finds `format("ottla")` by itself.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from pathlib import Path

import ottla
from hatch_build import absolute, urls
from ottla.pipeline.connector_modules import ROOT, needed_files

NAME, PACKAGE = "pyspark-ottla", "pyspark_ottla"
#: The packages that the modules import besides the standard library and pyspark.
REQUIRES = (
    "cramjam>=2.11",
    'zstandard>=0.22; platform_machine != "armv7l"',
    "fastcrc>=0.5",
    "pyarrow>=11",
    "numpy>=1.26",
    'cryptography>=45.0.1; extra == "tls"',
    'fastavro>=1.9; extra == "avro"',
    'lz4>=4.3; extra == "lz4"',
)
_OWN = re.compile(r"\bottla\.(?=(?:client|columns|protocol|registry|server|spark|storage)\b)")
_ENTRY = '''"""format("ottla") for PySpark: Spark finds DefaultSource by itself (apache/spark#44504)."""

from pyspark_ottla.spark.source import OttlaDataSource as DefaultSource
from pyspark_ottla.spark.source import register

__all__ = ["DefaultSource", "register"]
'''
_WHEEL = "Wheel-Version: 1.0\nGenerator: ottla\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(folder: Path, version: str, date: tuple[int, int, int, int, int, int]) -> Path:
    """Writes the wheel into the folder; its members have the date. Returns its path."""
    info = f"{PACKAGE}-{version}.dist-info"
    members = {f"{PACKAGE}/__init__.py": _ENTRY.encode()}
    for name, file in needed_files().items():
        if name != "ottla":
            members[file.relative_to(ROOT).as_posix().replace("ottla/", f"{PACKAGE}/", 1)] = renamed(
                file.read_text()
            ).encode()
    members[f"{info}/METADATA"] = metadata(version).encode()
    members[f"{info}/WHEEL"] = _WHEEL.encode()
    members[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in members.items()]
    members[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    target = folder / f"{PACKAGE}-{version}-py3-none-any.whl"
    target.write_bytes(packed.getvalue())
    return target


def renamed(text: str) -> str:
    """Returns a module's text with the names of the other package."""
    return _OWN.sub(f"{PACKAGE}.", text)


def metadata(version: str) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {NAME}",
        f"Version: {version}",
        'Summary: format("ottla"): a Kafka connector for PySpark without a jar, with an exactly-once sink.',
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "Keywords: spark,pyspark,kafka,structured-streaming",
        *(f"Classifier: Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)),
        *(f"Project-URL: {name}, {url}" for name, url in urls(ottla.REPOSITORY, version).items()),
        "Requires-Python: >=3.11",
        "Provides-Extra: tls",
        "Provides-Extra: avro",
        "Provides-Extra: lz4",
        *(f"Requires-Dist: {each}" for each in REQUIRES),
        "Description-Content-Type: text/markdown",
        "",
        absolute((ROOT / "docs" / "SPARK.md").read_text(), ottla.REPOSITORY, version, "docs"),
    ]
    return "\n".join(lines)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
