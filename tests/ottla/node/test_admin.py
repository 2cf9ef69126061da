"""The admin listener shows a single node."""

from __future__ import annotations

import platform

from ottla.node.admin import build_info
from ottla.node.python_build import python_build


def test_what_runs_here_is_in_labels() -> None:
    family = build_info("4.3.1")
    [sample] = family.samples
    assert (family.name, sample.value) == ("ottla_build_info", 1)
    assert sample.labels["kafka"] == "4.3.1"
    assert sample.labels["python"] == platform.python_version()
    assert sample.labels["python_build"] == python_build()
    assert sample.labels["version"]
