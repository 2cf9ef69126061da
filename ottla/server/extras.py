"""Packages that a plain install lacks, and what is refused without them: docs/INSTALL.md. Some platforms have no wheels of others.

google-re2     regular expressions that clients send, the extra `regex`: they take a tenth of the time, without the interpreter's lock. They
               are RE2's, as in Kafka, because those take linear time whatever they are; Python's own engine backtracks, and could take hours
               for one name of 249 characters. Where the package is missing, `ottla.server.regex` matches them.
cryptography   TLS, certificates, and signatures of OAUTHBEARER's tokens
yaml           `ottla apply`
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

from ottla.server.regex import automaton
from ottla.server.regex.automaton import WORK_MAX

CRYPTOGRAPHY = "cryptography"
#: What an expression may take compiled. RE2's own limit is 8 MiB, with which one name of 249 characters may take a second.
COMPILED_BYTES_MAX = 1 << 20
#: What the extra of a command brings, by the names that are imported.
BROUGHT_BY = {
    "console": ("starlette", "uvicorn", "jinja2"),
    "registry": ("starlette", "uvicorn", "fastavro", "avro", "jsonschema", "google.protobuf"),
    "testing": ("uvicorn",),  # of `ottla dev --faults`; tests in Python find out by themselves what they lack
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
    """Return why `what` cannot be had here, or None if the package is there. It is looked for and not imported."""
    if _is_installed(package):
        return None
    return f"{what} needs the Python package {package}, of which this platform has no wheel (docs/INSTALL.md)"


def lacking(extra: str) -> str | None:
    """Return a package that the extra brings and that is not installed; None if all of them are there."""
    return next((package for package in BROUGHT_BY[extra] if not _is_installed(package)), None)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it lies in
        return False


class Pattern(Protocol):
    def fullmatch(self, text: str) -> object: ...


def compiled(expression: str, work_max: int = WORK_MAX) -> Pattern:
    """Compile an expression that can be asked one thing: whether it matches a text as a whole.

    Args:
        work_max: the states that all its matches may look at where the package is missing, at about 0.3 us each; then
            `fullmatch` raises TooMuchWork.

    Raises:
        ValueError: the expression is not valid, or it is too large; the text says which.
    """
    try:
        import re2  # not when a node starts: hardly a group has one
    except ImportError:
        return automaton.compile(expression, work_max)

    options = re2.Options()
    options.log_errors = False
    options.max_mem = COMPILED_BYTES_MAX
    # Parts in parentheses cost a hundred times the match.
    options.never_capture = True
    try:
        made: Pattern = re2.compile(expression, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode()) from error
    return made
