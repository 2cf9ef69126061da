"""The command that adds an extra: it follows from how Ottla was installed, and never names another project's package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.server import installation
from ottla.server.installation import brought, install, requirement


def test_a_clone_a_wheel_and_a_repository_are_named_as_they_were_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "with blank" / "ottla-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    clone = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    assert requirement(clone, "console") == f"-e '{tmp_path}[console]'"
    assert requirement({"url": tmp_path.as_uri(), "dir_info": {}}, "regex") == f"'{tmp_path}[regex]'"
    assert requirement({"url": wheel.as_uri(), "archive_info": {}}, "lz4") == f"'{wheel}[lz4]'"
    of_git = {"url": "https://example.com/o.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
    assert requirement(of_git, "regex") == "'ottla[regex] @ git+https://example.com/o.git'"
    from_afar: dict[str, Any] = {"url": "https://example.com/ottla-0.1.0-py3-none-any.whl", "archive_info": {}}
    assert requirement(from_afar, "regex") == "'ottla[regex] @ https://example.com/ottla-0.1.0-py3-none-any.whl'"


def test_a_source_that_is_gone_or_was_an_index_is_not_named(tmp_path: Path) -> None:
    assert requirement({"url": (tmp_path / "gone.whl").as_uri(), "archive_info": {}}, "lz4") is None
    assert requirement({}, "lz4") is None


def test_the_packages_of_an_extra_are_those_of_the_metadata() -> None:
    requires = [
        "cyclopts>=5",
        "jinja2>=3.1; extra == 'console'",
        "uvicorn>=0.30; extra == 'console'",
        "uvicorn>=0.40; extra == 'registry'",
        "lz4>=4.3; (sys_platform != 'win32') and extra == 'lz4'",
    ]
    assert brought(requires, "console") == ["jinja2>=3.1", "uvicorn>=0.30"]
    assert brought(requires, "lz4") == ["lz4>=4.3; sys_platform != 'win32'"]


class Installed:
    """A distribution as importlib.metadata shows it."""

    requires = ("jinja2>=3.1; extra == 'console'",)

    def __init__(self, direct_url: dict[str, Any] | None) -> None:
        self.direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.direct_url is None else json.dumps(self.direct_url)


@pytest.fixture(autouse=True)
def pip_of_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_pip_install", lambda: "pip install")


def test_without_a_source_the_packages_themselves_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed(None))
    assert install("console") == "pip install 'jinja2>=3.1'"


def test_once_the_index_has_the_project_its_name_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clone = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed(clone))
    assert install("console") == f"pip install -e '{tmp_path}[console]'"
    monkeypatch.setattr(ottla, "IS_ON_INDEX", True)
    assert install("console") == "pip install 'ottla[console]'"
