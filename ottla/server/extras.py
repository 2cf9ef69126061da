"""Packages that a plain install lacks, and what is rejected without them (docs/INSTALL.md).

For some of them there are no wheels on some platforms.

google-re2     regular expressions that clients send, the extra `regex`: they take a tenth of the time, without the
               interpreter's lock. They are RE2's, as in Kafka, because any of those takes linear time; Python's own engine
               backtracks, and could take hours for one name of 249 characters. If the package is missing, `ottla.server.regex`
               matches them.
cryptography   TLS, certificates, and signatures of OAUTHBEARER's tokens
yaml           `ottla apply`
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

from ottla.server.regex import automaton
from ottla.server.regex.automaton import WORK_MAX

CRYPTOGRAPHY = "cryptography"
#: The memory of a compiled expression. RE2's own limit is 8 MiB, with which one name of 249 characters may take a second.
COMPILED_BYTES_MAX = 1 << 20
#: The packages of a command's extra, by the names that are imported.
BROUGHT_BY = {
    "console": ("starlette", "uvicorn", "jinja2"),
    "registry": ("starlette", "uvicorn", "fastavro", "avro", "jsonschema", "google.protobuf"),
    "testing": ("uvicorn",),  # for `ottla dev --faults`; tests in Python check by themselves what is missing
    "tables": (
        "pyarrow",
        "numpy",
        "pyiceberg",
        "sqlalchemy",
        "deltalake",
        "obstore",
        "fastavro",
        "msgspec",
        "google.protobuf",
        "starlette",
        "uvicorn",
    ),
    "sql": ("duckdb", "pyarrow", "pyiceberg", "sqlalchemy", "deltalake", "obstore"),
}


def missing(package: str, what: str) -> str | None:
    """Return why `what` is not available here, or None if the package is installed. The package is not imported for that."""
    if _is_installed(package):
        return None
    return f"{what} needs the Python package {package}, of which this platform has no wheel (docs/INSTALL.md)"


def lacking(extra: str) -> str | None:
    """Return a package of the extra that is not installed, or None if all of them are."""
    return next((package for package in BROUGHT_BY[extra] if not _is_installed(package)), None)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # even its parent package is missing
        return False


class Pattern(Protocol):
    def fullmatch(self, text: str) -> object: ...


def compiled(expression: str, work_max: int = WORK_MAX) -> Pattern:
    """Compile an expression. It can only be asked whether it matches a whole text.

    Args:
        work_max: the most states that all its matches together may visit if the package is missing, at about 0.3 us each;
            beyond it `fullmatch` raises TooMuchWork.

    Raises:
        ValueError: the expression is not valid, or too large; the text says which.
    """
    try:
        import re2  # imported late: hardly any group has an expression, so a node's start does not need it
    except ImportError:
        return automaton.compile(expression, work_max)

    options = re2.Options()
    options.log_errors = False
    options.max_mem = COMPILED_BYTES_MAX
    # With captured groups a match would take a hundred times as long.
    options.never_capture = True
    try:
        made: Pattern = re2.compile(expression, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode()) from error
    return made
