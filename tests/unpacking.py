"""Unpacks archives that the tests themselves contain, with the filter if Python has one: Debian's 3.11.2 is older than it (PEP
706).
"""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, target: Path, *, keeps_owners: bool = False) -> None:
    """Unpack all members. With `keeps_owners`, owners and modes are kept, which needs root."""
    name = "tar_filter" if keeps_owners else "data_filter"
    archive.extraction_filter = getattr(tarfile, name, lambda member, path: member)
    archive.extractall(target)
