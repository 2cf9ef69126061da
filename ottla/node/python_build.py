"""The build of this process's interpreter: without a profile (PGO) each request takes a tenth to a quarter more processor
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

#: The places where distributions install their own Python.
DISTRIBUTION_PREFIX = "/usr"
#: Any of these says that a profile was used: the configuration's option, gcc's, clang's.
PROFILE_OPTIONS = ("--enable-optimizations", "-fprofile-use", "-fprofile-instr-use")


class PythonBuild(StrEnum):
    """The options that the interpreter was compiled with, as far as they decide how fast it is."""

    PROFILE = "profile"
    NO_PROFILE = "no profile"
    DEBUG = "debug"
    #: The interpreter came without its configuration.
    UNKNOWN = "unknown"


@cache
def python_build() -> PythonBuild:
    """Return how the interpreter of this process was compiled."""
    import sysconfig  # imported here, because most starts do not need it

    return judge_build(sysconfig.get_config_vars())


def judge_build(variables: Mapping[str, Any]) -> PythonBuild:
    """Return the result that follows from the variables of `sysconfig`.

    Debian, Ubuntu and Fedora compile with a profile. Debian's variables are those of the shared library, which was compiled by itself, so
    that they do not name the profile of the program: there the prefix decides.
    """
    if variables.get("Py_DEBUG"):
        return PythonBuild.DEBUG
    options = [variables[name] for name in ("CONFIG_ARGS", "PY_CFLAGS", "PY_CORE_CFLAGS") if name in variables]
    if variables.get("installed_base") == DISTRIBUTION_PREFIX:
        return PythonBuild.PROFILE
    if not options:
        return PythonBuild.UNKNOWN
    is_profiled = any(option in str(each) for option in PROFILE_OPTIONS for each in options)
    return PythonBuild.PROFILE if is_profiled else PythonBuild.NO_PROFILE
