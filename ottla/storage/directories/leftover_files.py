"""The files that an interrupted change has left in a partition's directory: removed, or, for a swap of compaction, put in place."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.storage.files import Files
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment_file import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from ottla.storage.segment.walk import walk

NEW_SUFFIX = ".tmp"


def tidy(files: Files, directory: str) -> dict[str, int]:
    """Removes the files of interrupted changes; returns the names and sizes of the others."""
    sizes = files.list_sizes(directory)
    for name in list(sizes):
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, NEW_SUFFIX)):
            files.remove(f"{directory}/{name}")
            del sizes[name]
    _finish_swap(files, directory, sizes)
    logs = {name[:20] for name in sizes if _is_numbered(name, LOG_SUFFIX)}
    for name in list(sizes):
        orphan = any(_is_numbered(name, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX))
        if orphan and name[:20] not in logs:
            files.remove(f"{directory}/{name}")
            del sizes[name]
    return sizes


def _finish_swap(files: Files, directory: str, sizes: dict[str, int]) -> None:
    """Finishes a swap of the log cleaner: a `.log.swap` replaces the segments that it covers. Without one, no swap was interrupted."""
    swapped = {name[:20] for name in sizes if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)}
    for base in sorted(swapped):
        last = _last_offset_in(files, f"{directory}/{base}{LOG_SUFFIX}{SWAP_SUFFIX}")
        for old in [n[:20] for n in sizes if _is_numbered(n, LOG_SUFFIX) and int(base) <= int(n[:20]) <= last]:
            # A file that already has its final name stays: its `.swap` is missing.
            for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                if old != base or f"{base}{kind}{SWAP_SUFFIX}" in sizes:
                    files.remove(f"{directory}/{old}{kind}")
                    sizes.pop(old + kind, None)
    for name in [name for name in sizes if name.endswith(SWAP_SUFFIX)]:
        size = sizes.pop(name)
        if name[:20] in swapped:
            target = name[: -len(SWAP_SUFFIX)]
            files.rename(f"{directory}/{name}", f"{directory}/{target}")
            sizes[target] = size
        else:
            files.remove(f"{directory}/{name}")


def _last_offset_in(files: Files, path: str) -> int:
    """Returns the last offset in a file that compaction has finished, and so has flushed.

    Raises:
        DamagedLog, StorageFailure
    """
    mapped = files.map(path, 0, False)
    mapped.populate(0, mapped.size)
    last = base = int(path.rpartition("/")[2][:20])
    for batch in walk(mapped.buffer, 0, mapped.size, path, base, base + RELATIVE_OFFSET_MAX):
        last = batch[3]
    mapped.close()
    return last


def _is_numbered(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and len(name) == 20 + len(suffix) and name[:20].isdigit()


def numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Returns the offsets that files of this kind have in their names, in order."""
    return sorted(int(name[:20]) for name in names if _is_numbered(name, suffix))
