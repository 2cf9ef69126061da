"""The way an interpreter was compiled, by variables of `sysconfig` in real builds."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.node.python_build import PythonBuild, judge_build, python_build

PYENV = {
    "installed_base": "/root/.pyenv/versions/3.11.7", "Py_DEBUG": 0,
    "CONFIG_ARGS": "'--prefix=/root/.pyenv/versions/3.11.7' '--enable-shared'", "PY_CFLAGS": "-DNDEBUG -g -fwrapv -O3 -Wall",
    "PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction",  # the options with which it would have been compiled
}  # fmt: skip
DEBIAN = {
    "installed_base": "/usr", "Py_DEBUG": 0, "PY_CFLAGS": "-DNDEBUG -g -fwrapv -O2",
    "CONFIG_ARGS": "'--enable-shared' '--prefix=/usr' '--with-dtrace'",
}  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "build"),
    [
        (PYENV, PythonBuild.NO_PROFILE),
        (PYENV | {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}, PythonBuild.PROFILE),
        (PYENV | {"PY_CORE_CFLAGS": "-O3 -fprofile-instr-use=code.profclangd"}, PythonBuild.PROFILE),
        (PYENV | {"CONFIG_ARGS": "'--enable-optimizations' '--with-pydebug'", "Py_DEBUG": 1}, PythonBuild.DEBUG),
        (DEBIAN, PythonBuild.PROFILE),
        (DEBIAN | {"installed_base": "/usr/local"}, PythonBuild.NO_PROFILE),
        ({"installed_base": "C:\\Python311"}, PythonBuild.UNKNOWN),
    ],
)
def test_a_build_is_judged_by_its_variables(variables: dict[str, Any], build: PythonBuild) -> None:
    assert judge_build(variables) is build


def test_the_build_of_these_tests_is_known() -> None:
    assert python_build() in (PythonBuild.PROFILE, PythonBuild.NO_PROFILE, PythonBuild.DEBUG)
