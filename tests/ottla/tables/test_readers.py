"""Every engine for Python reads the same rows of the same table; `make compat ARGS=readers` adds Spark, and maintained tables."""

from __future__ import annotations

import pytest

from tests.needs import needs_packages, skip_because

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "msgspec")

from tests.ottla.tables import readers
from tests.ottla.tables.readers import FORMS, READERS, WrittenTable, checksum, seen, written


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], WrittenTable]:
    """The tables by format and form."""
    return {
        (format_, form): written(tmp_path_factory.mktemp("lake"), format_, form)
        for format_ in READERS
        for form in FORMS
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("format_, engine", [(format_, engine) for format_ in READERS for engine in READERS[format_]])
def test_each_engine_sees_the_same_count_and_checksum(
    tables: dict[tuple[str, str], WrittenTable], format_: str, engine: str, form: str
) -> None:
    skip_because(readers.missing(format_, engine))
    table = tables[format_, form]
    rows = seen(READERS[format_][engine](table.place))
    assert len(rows) == len(table.rows) == 100
    assert checksum(rows) == checksum(table.rows), [
        pair for pair in zip(rows, table.rows, strict=True) if pair[0] != pair[1]
    ][:3]
