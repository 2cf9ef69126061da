"""Options before the command, and hints for words of other tools."""

from __future__ import annotations

import pytest

from ottla.__main__ import main
from ottla.cli.errors import FAILED, USAGE
from ottla.cli.other_words import leading_options

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    "words",
    [
        "-b NOWHERE topic list",
        "topic -b NOWHERE list",
        "--bootstrap=NOWHERE topic -o json list",
        "-b NOWHERE -o json topic list",
        "--timeout 9 -b NOWHERE consume t",
    ],
)
def test_options_may_stand_before_the_command_and_its_verb(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.replace("NOWHERE", NOWHERE).split()) == FAILED
    assert f"cannot connect to {NOWHERE}" in capsys.readouterr().err


def test_an_option_without_its_value_takes_no_word_of_the_command() -> None:
    assert leading_options(["-b"]) == (["-b"], [])
    assert leading_options(["topic", "-b", "x", "list"]) == ([], ["topic", "-b", "x", "list"])
    assert leading_options(["--config=x", "--help"]) == (["--config=x"], ["--help"])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("version", "`ottla --version`"),
        ("describe topic orders", "`ottla topic describe orders`"),
        ("get topics", "`ottla topic list`"),
        ("rm topic orders", "`ottla topic delete orders`"),
        ("rebalance", "`ottla move plan --even`"),
        ("kafka-topics.sh --list", "`ottla shims DIRECTORY` writes kafka-topics.sh"),
        ("topik", "did you mean 'topic'"),
        ("-C -b x -t orders", "kcat's -C is `ottla consume orders`"),
        ("-b x -t orders -P", "kcat's -P is `ottla produce orders`"),
        ("-Z", "`ottla --help` lists the commands"),
        ("consume orders -c 5", "kcat's -c is -n COUNT"),
        ("consume orders -o beginning", "kcat's -o is --from OFFSET"),
        ("consume orders -f %k", "kcat's -f is -F FORMAT"),
        ("consume -t orders", "`ottla consume TOPIC`"),
        ("produce orders -K :", "kcat's -K is --key-separator"),
        ("consume orders -o xml --nothing", "--from OFFSET"),
        ("topic list --nothing", "`ottla topic list --help` shows the usage"),
        ("consume orders -o json --nothing", "`ottla consume --help` shows the usage"),
    ],
)
def test_a_word_of_another_tool_gets_the_word_that_is_meant(
    words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == USAGE
    assert hint in capsys.readouterr().err
