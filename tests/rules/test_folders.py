"""Tests have the same folders as the product: each folder of the product has a folder of tests, or its parent's tests cover it."""

from __future__ import annotations

from pathlib import Path

from tests.rules.sources import ROOT, sources

#: Folders without tests of the same name, and where their tests are.
COVERED_IN = {
    "broker/groups/classic": "tests/broker/groups",
    "broker/api": "tests/broker",
    "ottla/registry/formats": "tests/ottla/registry",
    "ottla/registry/rest": "tests/ottla/registry",
    "protocol/messages": "tests/protocol",
    "protocol/release_tables": "tests/protocol",
    "server/config/tables": "tests/server/config",
}


def folders_with_code() -> list[Path]:
    """Folders of the product whose modules define something, as the tests name them: `broker/groups`, `ottla/cli`."""
    return sorted({Path(source.path).parent for source in sources() if not source.path.endswith("__init__.py")})


def has_tests(folder: Path) -> bool:
    return any((ROOT / "tests" / folder).glob("test_*.py"))


def test_each_folder_of_the_product_has_tests() -> None:
    untested = [str(f) for f in folders_with_code() if not has_tests(f) and str(f) not in COVERED_IN]
    assert not untested, "write tests for these folders, or say in COVERED_IN where they are:\n" + "\n".join(untested)


def test_the_rows_of_covered_in_are_needed_and_true() -> None:
    for folder, tests in COVERED_IN.items():
        assert Path(folder) in folders_with_code(), f"{folder} is gone: remove its row"
        assert not has_tests(Path(folder)), f"{folder} has tests of its own: remove its row"
        assert any((ROOT / tests).glob("test_*.py")), f"{tests} has no tests"
