"""Blocks of pages that one node can run, as they are printed. tests/rules/blocks.py lists them."""

from __future__ import annotations

import re

import pytest

from tests.ottla.conftest import Cli
from tests.rules.blocks import HERE, PAGES, RUN_BY, PageBlock, blocks_of, commands_of

SHOWN = [block for page in PAGES for block in blocks_of(page)]


def block(page: str, first: str) -> PageBlock:
    (found,) = (each for each in SHOWN if each.key == (page, first))
    return found


@pytest.mark.parametrize(("page", "first"), [key for key, test in RUN_BY.items() if test == HERE], ids=str)
def test_commands_of_pages_do_what_they_say(cli: Cli, page: str, first: str) -> None:
    shown = block(page, first)
    lines = [line for line in shown.lines if "ottla" in line]
    commands = commands_of(shown)
    assert len(commands) == len(lines), "a command of the block was not found"
    for line, words in zip(lines, commands, strict=True):
        written = re.match(r"echo '(.*)' \|", line)
        cli.ok(*words, stdin=f"{written[1]}\n" if written else "")


def test_the_client_of_the_first_page_reads_what_it_writes(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(block("README.md", "from confluent_kafka import Consumer, Producer").lines)
    assert text.count("127.0.0.1:9092") == 2
    exec(compile(text.replace("127.0.0.1:9092", cli.bootstrap), "README.md", "exec"), {})
    assert capsys.readouterr().out == "b'en' b'hello' 0\n"
