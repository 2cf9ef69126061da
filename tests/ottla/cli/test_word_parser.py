"""The words of a command line, by the parameters of a function."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from ottla.cli.app import App, Parameter, option_group, options_of
from ottla.cli.application import parsed
from ottla.cli.errors import CommandFailed
from ottla.cli.help_page import command_help, verb_help
from ottla.cli.word_parser import FromEnvironment, bind


@option_group
class Where:
    """Options of several verbs."""

    bootstrap: Annotated[str | None, Parameter(name=("--bootstrap", "-b"), env_var="SHOP_BOOTSTRAP")] = None
    timeout: float = 30.0


WHERE = Where(timeout=7.0)
Color = Literal["red", "green"]


def paint(
    name: str,
    others: Annotated[list[str] | None, Parameter(help="More names.")] = None,
    /,
    *,
    color: Annotated[Color, Parameter(name=("--color", "-c"), help="Of all.")] = "red",
    layers: Annotated[int, Parameter(name=("--layers", "-n"), help="How many.")] = 1,
    size: Annotated[float | None, Parameter(help="In metres.")] = None,
    file: Path | None = None,
    tag: Annotated[list[str] | None, Parameter(name=("--tag", "-t"))] = None,
    quiet: Annotated[bool, Parameter(name=("--quiet", "-q"))] = False,
    yes: Annotated[bool, Parameter(name=("--yes", "-y"))] = False,
    dry: Annotated[bool, Parameter(help="Do not let it dry.")] = True,
    where: Where = WHERE,
) -> None:
    """Paint something.

    A second paragraph.
    """


def given(words: str) -> dict[str, Any]:
    return {name: value for name, value in bind(paint, words.split()).arguments.items() if value != WHERE}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("wall", {"name": "wall"}),
        ("wall door gate", {"name": "wall", "others": ["door", "gate"]}),
        ("-c green wall door -n 3", {"name": "wall", "others": ["door"], "color": "green", "layers": 3}),
        ("--color=green -n3 wall", {"name": "wall", "color": "green", "layers": 3}),
        ("wall -n=-3", {"name": "wall", "layers": -3}),
        ("wall -n -3", {"name": "wall", "layers": -3}),
        ("wall -5", {"name": "wall", "others": ["-5"]}),
        ("wall -t a -t b --tag=c=d", {"name": "wall", "tag": ["a", "b", "c=d"]}),
        ("wall -qy", {"name": "wall", "quiet": True, "yes": True}),
        ("wall -qyn4", {"name": "wall", "quiet": True, "yes": True, "layers": 4}),
        ("wall --no-dry", {"name": "wall", "dry": False}),
        ("wall --file -", {"name": "wall", "file": Path("-")}),
        ("wall --size .5", {"name": "wall", "size": 0.5}),
        ("-- --wall -q", {"name": "--wall", "others": ["-q"]}),
        ("wall -b a:1", {"name": "wall", "where": Where("a:1", 7.0)}),
    ],
)  # fmt: skip
def test_words_become_the_arguments_of_the_function(words: str, expected: dict[str, object]) -> None:
    assert given(words) == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "NAME is missing"),
        ("wall --colour red", "there is no option '--colour'"),
        ("wall -x", "there is no option '-x'"),
        ("wall -qx", "there is no option '-x'"),
        ("wall -c", "-c needs a value"),
        ("wall -c -n 3", "-c needs a value"),
        ("wall -c blue", "-c 'blue' is none of red, green"),
        ("wall -n many", "-n 'many' is no whole number"),
        ("wall -n 1.5", "-n '1.5' is no whole number"),
        ("wall --timeout nan", "--timeout 'nan' is no number"),
        ("wall -n 1 -n 2", "-n is there twice"),
        ("wall --quiet=yes", "--quiet takes no value"),
        ("wall --dry", "there is no option '--dry'"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_named(words: str, said: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        given(words)
    assert caught.value.cause == said


def test_one_word_too_many_is_named() -> None:
    def only(name: str, /) -> None: ...

    with pytest.raises(CommandFailed, match="'b' is one word too many"):
        bind(only, ["a", "b"])


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_BOOTSTRAP", "env:1")
    assert isinstance(given("wall")["where"].bootstrap, FromEnvironment)
    assert given("wall -b a:1")["where"].bootstrap == "a:1"
    monkeypatch.setenv("SHOP_BOOTSTRAP", "")
    assert "where" not in given("wall")


SHOP = App("shop", "Walls and doors.")
SHOP.command(paint)


@SHOP.named("list")
def list_() -> None:
    """List them."""


def test_a_verb_that_does_not_exist_gets_a_hint() -> None:
    with pytest.raises(CommandFailed) as caught:
        parsed(SHOP, ["pain", "x"])
    assert (caught.value.cause, caught.value.remedy) == ("there is no command 'shop pain'", "did you mean 'paint'?")
    with pytest.raises(CommandFailed) as caught:
        parsed(SHOP, ["paint"])
    assert caught.value.remedy == "`ottla shop paint --help` shows the usage"


def test_the_help_has_all_that_the_function_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert command_help(SHOP) == (
        "Usage: ottla shop COMMAND\n\nWalls and doors.\n\nCommands:\n  paint  Paint something.\n  list   List them.\n\n"
        "Options:\n  -h, --help  Show this page."
    )
    assert verb_help("ottla shop paint", paint).split("\n") == [
        "Usage: ottla shop paint [OPTIONS] NAME [OTHERS...]",
        "",
        "Paint something.",
        "",
        "A second paragraph.",
        "",
        "Arguments:",
        "  NAME",
        "  OTHERS  More names.",
        "",
        "Options:",
        "  -c, --color CHOICE   Of all. [choices: red, green] [default: red]",
        "  -n, --layers INT     How many. [default: 1]",
        "  --size FLOAT         In metres.",
        "  --file PATH",
        "  -t, --tag STR",
        "  -q, --quiet",
        "  -y, --yes",
        "  --no-dry             Do not let it dry.",
        "  -b, --bootstrap STR  [$SHOP_BOOTSTRAP]",
        "  --timeout FLOAT      [default: 7.0]",
        "  -h, --help           Show this page.",
    ]


def test_options_are_read_from_the_verb_alone() -> None:
    found = {option.label: option for option in options_of(paint)}
    assert found["OTHERS"].is_list and found["--color"].choices == ("red", "green")
    assert found["--file"].kind is Path and found["--bootstrap"].key == ("where", "bootstrap")
