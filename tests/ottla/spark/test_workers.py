"""`register` warns if Spark would start another Python, which has other packages."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from ottla.spark.workers import other_python


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python3"


def test_the_python_of_this_session_is_no_other_one() -> None:
    assert other_python(sys.executable) is None


def test_another_environment_is_named_although_it_is_a_link_to_the_same_python(other: Path) -> None:
    said = other_python(str(other))
    assert said is not None
    assert f"Spark starts {other}" in said and f"PYSPARK_PYTHON to {sys.executable}" in said


def test_a_name_is_looked_up_as_spark_does(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(other.parent))
    said = other_python("python3")
    assert said is not None and str(other.parent.parent) in said


def test_a_path_of_other_machines_says_nothing(tmp_path: Path) -> None:
    assert other_python(str(tmp_path / "opt/conda/bin/python")) is None
