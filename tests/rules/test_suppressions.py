"""A line that silences a checker or skips a test names what it silences, has its reason beside it, and such lines become fewer."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.rules.sources import ROOT, dotted, nodes_of, text_of, tree_of

#: The number of such lines. It may only fall.
SUPPRESSIONS = 21
#: It skips tests of its users, and none of ours.
PLUGIN = ROOT / "ottla" / "testing"
#: Its suppressions mark the mistakes that the plugin's types have to show.
MISTAKES = ROOT / "tests" / "ottla" / "testing" / "annotated.py"
FOLDERS = ("ottla", "tests", "benchmarks", "tools")
SUPPRESSION = re.compile(r"#\s*(?:noqa|type:\s*ignore)")
#: A rule, then two spaces and the reason.
WITH_REASON = re.compile(r"# (?:noqa: [A-Z]+\d+  \S|type: ignore\[[a-z, -]+\]  # \S)")
SKIPS = re.compile(r"pytest\.(?:skip|importorskip|xfail|mark\.skip|mark\.skipif|mark\.xfail)")


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (file for file in sorted((ROOT / folder).rglob("*.py")) if file != MISTAKES)


def silenced(text: str) -> Iterator[tuple[int, str]]:
    """Comments that silence a checker."""
    if SUPPRESSION.search(text):  # most files have none
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and SUPPRESSION.match(token.string):
                yield token.start[0], token.string


def skipped(file: Path) -> Iterator[ast.Call]:
    text = text_of(file)
    if "skip" in text or "xfail" in text:
        calls = (node for node in nodes_of(tree_of(file)) if isinstance(node, ast.Call))
        yield from (call for call in calls if SKIPS.fullmatch(dotted(call.func)))


def has_reason(skip: ast.Call) -> bool:
    reason = next((keyword.value for keyword in skip.keywords if keyword.arg == "reason"), None)
    if reason is None and dotted(skip.func) == "pytest.skip" and skip.args:
        reason = skip.args[0]
    return reason is not None and not (isinstance(reason, ast.Constant) and not reason.value)


def test_suppressions_have_reasons_and_become_less() -> None:
    count, wrong = 0, []
    for file in files():
        for line, comment in silenced(text_of(file)):
            count += 1
            wrong += [f"{file}:{line}: {comment}"] if not WITH_REASON.match(comment) else []
        for skip in skipped(file):
            count += PLUGIN not in file.parents
            wrong += [f"{file}:{skip.lineno}: a skip without a reason"] if not has_reason(skip) else []
    assert not wrong, "each needs the rule that it silences, and its reason after two spaces and a #:\n" + "\n".join(
        wrong
    )
    assert count <= SUPPRESSIONS, f"{count} suppressions and skips, SUPPRESSIONS allows {SUPPRESSIONS}: remove one"
    assert count == SUPPRESSIONS, f"set SUPPRESSIONS in tests/rules/test_suppressions.py to {count}"
