"""A file below 40 lines needs a reason. If modules are cut by noun, each has the state and the verbs of one thing.

A file of that size is rarely one thing; it is a verb of a neighbour's state, and its imports and head are a third of it.
"""

from __future__ import annotations

from tests.rules.sources import sources

FILE_LINES_MIN = 40
#: Folders whose small files are not counted, and why.
REASONS = {
    "protocol/messages": "one file for each API: its request and its response",
    "protocol/release_tables": "one file for each release, which a program writes",
}
#: The number of small files in each other folder, with those below. It may only fall: new code belongs in the file of the thing
#: that it is about.
SMALL_FILES_MAX = {
    "ottla/cli": 6,
    "server/config": 1,
    "server/handlers": 1,
}


def folder_of(path: str) -> str:
    """Return at most two names of a path: `broker/groups` for broker/groups/classic/join.py."""
    return "/".join(path.split("/")[:-1][:2])


def test_a_small_file_has_a_reason() -> None:
    small: dict[str, list[str]] = {}
    for source in sources():
        folder = folder_of(source.path)
        is_package_head = source.path.endswith("__init__.py")
        if len(source.lines) < FILE_LINES_MIN and not is_package_head and folder not in REASONS:
            small.setdefault(folder, []).append(source.path)
    wrong = {folder: paths for folder, paths in small.items() if len(paths) > SMALL_FILES_MAX.get(folder, 0)}
    assert not wrong, f"merge these files into what they serve, or name their reason (REASONS): {wrong}"


def test_each_folder_of_these_tables_is_there() -> None:
    folders = {folder_of(source.path) for source in sources()}
    assert not {*REASONS, *SMALL_FILES_MAX} - folders, "folders that are gone"
