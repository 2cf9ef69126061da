"""The kept inputs and the seeds are judged once each; a known bug that is not fixed yet still has to show."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz import corpus
from tests.fuzz.judge import Finding, Judge
from tests.fuzz.known import Known, known, reason
from tests.fuzz.targets import TARGETS

SEEDS_MAX = 300


def judged(target: str, inputs: list[bytes]) -> list[Finding]:
    found: list[Finding] = []
    judge = Judge(TARGETS[target], found.append)
    judge.watch()
    try:
        for data in inputs:
            judge(data)
    finally:
        judge.watch(False)
    return found


def news(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.data.hex()) for finding in found if reason(finding.target, finding.kind) is None]


@pytest.mark.parametrize("target", TARGETS)
def test_kept_inputs_are_read_or_refused(target: str) -> None:
    unmended = {each.data for each in known(target)}
    assert news(judged(target, [kept.data for kept in corpus.read(target) if kept.data not in unmended])) == []


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_are_read_or_refused(target: str) -> None:
    seeds = list(TARGETS[target].seeds())
    assert seeds
    assert news(judged(target, Random(0).sample(seeds, min(len(seeds), SEEDS_MAX)))) == []


def _unmended(each: Known) -> object:
    return pytest.param(each, marks=pytest.mark.xfail(strict=True, reason=each.reason), id=each.reason)


@pytest.mark.parametrize("each", [_unmended(each) for target in TARGETS for each in known(target)])
def test_what_is_known_is_mended(each: Known) -> None:
    assert judged(each.target, [each.data]) == []


def test_the_corpus_is_bounded_and_of_targets_that_exist() -> None:
    files = list(corpus.HERE.glob("*"))
    assert {path.stem for path in files} <= set(TARGETS)
    assert sum(path.stat().st_size for path in files) < corpus.BYTES_MAX
