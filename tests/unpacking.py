"""Unpacks archives that the tests themselves have, with the filter where Python has one: Debian's 3.11.2 came before it (PEP 706)."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, target: Path, *, keeps_owners: bool = False) -> None:
    """Unpack all members. Owners and modes stay as they are with `keeps_owners`, which takes root."""
    name = "tar_filter" if keeps_owners else "data_filter"
    archive.extraction_filter = getattr(tarfile, name, lambda member, path: member)
    archive.extractall(target)
