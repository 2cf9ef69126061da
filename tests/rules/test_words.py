"""Words that are retired: they say in an English of our own what Kafka, Raft or asyncio has a term for (docs/dev/GLOSSARY.md).

They are looked for as whole words, and as parts of snake_case and CamelCase names, in everything that is read: comments,
docstrings, messages, names, paths and documents. First sentences of docstrings and of comments have a subject, and functions say what
to do.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.rules.sources import ROOT, dotted, nodes_of, sources, tree_of

#: The word in all its forms, and what to write in its place.
RETIRED = {
    "tell tells telling told": "send, notify, report; 'distinguish' for telling apart",
    "hear hears hearing heard": "receive, be notified",
    "stranger strangers": "node outside the voter set, non-Kafka client",
    "namesake namesakes": "duplicate node.id",
    "lab labs": "harness",
    "situation situations": "harness; in a sentence: case",
    "upkeep": "scheduled task",
    "duty duties": "scheduled task",
    "somebody": "the component's name",
    "nobody": "the component's name",
    "whoever": "the component's name",
    "vouch vouches vouched vouching": "verify",
    "anew": "again",
    "betimes": "early",
    "errand errands": "disk job",
}
WORDS = frozenset(" ".join(RETIRED).split())
#: Phrases, as they appear in a line.
PHRASES = (
    "our own mistake",
    "no longer is so",
    "is no longer so",
    "sign of life",
    "signs of life",
    "own words",
    "let go of",
    "short path",
)

#: Uses of these words that are not ours to change.
LEGAL = {
    r"\.tell\(\)": "the position in a file, in Python's own name",
    r"\bnobody(?=:|\b.*/sbin/nologin)": "the user without rights, in Unix's own name",
}
#: Files that list retired words, or record what was said in the past.
LISTS = ("docs/dev/GLOSSARY.md", "tests/rules/test_words.py", "CHANGELOG.md")

#: The number of retired words in each folder. It may only fall.
LEFT: dict[str, int] = {}

#: First sentences of docstrings that begin so have no subject: what is it that is "of a member", or "without a value"?
NO_SUBJECT = re.compile(
    r"\s*(?:(?:Of|By|Also|As|Without|Only|What|Not|Those|None of|Up to|Nothing|Called)\b|None:|True if\b|-?\d+:|`)"
)
#: The docstring of a test module may begin with its command, option or class, as pages begin with a title.
TITLE_OF_TESTS = re.compile(r"\s*`[^`]+`")
#: Tests use a sentence where the product may use a clause ("Where the log ends"), because they have no type and no field beside
#: it.
FRAGMENT_OF_TESTS = re.compile(r"\s*(?:Whether|How|Which|Who|Whose|Where|Why|Until|For|Something|That|And|Or)\b")
#: The same of comments on lines of their own. Those that begin with the other words are sentences ("As in Kafka, ...").
NO_SUBJECT_OF_COMMENT = re.compile(r"(?:Of|By|Also|Not|None of|Up to where|Whether it|Those)\b(?! \w+ed by)")
#: A function's docstring says what to do: "Return", "Write", "Return whether". "Raises:" is the head of a list.
THIRD_PERSON = re.compile(
    r"\s*(?:Returns|Raises|Yields|Takes|Reads|Writes|Makes|Checks|Runs|Removes|Sends|Drops|Adds|Ends|Parses|Gives|Begins|"
    r"Replaces|Creates|Decodes|Encodes|Opens|Closes|Calls|Waits|Registers|Appends|Loads|Describes|Stops|Starts|Completes|"
    r"Applies|Handles|Decides|Splits|Moves|Updates|Lowers|Finds|Keeps|Converts|Lets|Changes|Deletes|Asks|Is|Has|Does|"
    r"Whether|Where|How|Why|[A-Z]\w*Error)\b(?!:)"
)

#: The docstring of a function that returns a value says so: "Return the topics", not "The topics". The second verb has the same mood.
NOUN_PHRASE = re.compile(r"(?:The|A|An|All|Each|Every) ")
SECOND_VERB = re.compile(
    r"[A-Z][a-z]+ [^.:]*?(?:, and|, or|;) (?:tries|deletes|kills|pauses|syncs|creates|clears|rejects|removes|starts|counts|loads|returns) "
)
#: Comments and docstrings name what is counted or measured.
NO_MEASURE = re.compile(r"(?:So (?:many|much|long|often)|Between two) ")

SUFFIXES = (".py", ".md", ".sh", ".toml", ".txt", ".yaml", ".yml")
SKIPPED = frozenset(("build", "node_modules", "data", "golden", "__pycache__"))
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: Most lines have none of these letters in a row.
LETTERS = re.compile("|".join((*sorted(WORDS), *PHRASES)))
#: A candidate in a line, which may be a retired word.
CANDIDATE = re.compile(
    rf"(?<![a-z])(?:{'|'.join(sorted(WORDS))})(?![a-z])"
    rf"|{'|'.join(each for word in sorted(WORDS) for each in (word.capitalize(), word.upper()))}"
    rf"|(?i:{'|'.join(PHRASES)})"
)
LEGAL_USE = re.compile("|".join(LEGAL))


def files() -> Iterator[tuple[str, Path]]:
    """Yield each file that is read, with its path from the root. The links at the top lead into ottla/."""
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith(".") or top.name in SKIPPED or top.is_symlink():
            continue
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            path = file.relative_to(ROOT)
            if file.suffix in SUFFIXES and not SKIPPED & set(path.parts) and str(path) not in LISTS:
                yield str(path), file


def retired_in(line: str) -> Iterator[str]:
    """The retired words and phrases of a line."""
    if CANDIDATE.search(line) is None:
        return
    line = LEGAL_USE.sub("", line)
    yield from (part for part in PART.findall(line) if part.lower() in WORDS)
    lowered = line.lower()
    yield from (phrase for phrase in PHRASES if phrase in lowered)


def found() -> dict[str, list[str]]:
    """Return for each folder where its retired words are. A path counts once, as line 0."""
    places: dict[str, list[str]] = {}
    for path, file in files():
        text = f"{path}\n{file.read_text(errors='replace')}"
        lowered, lines = text.lower(), text.split("\n")
        for number in sorted({lowered.count("\n", 0, each.start()) for each in LETTERS.finditer(lowered)}):
            places.setdefault(path.partition("/")[0], []).extend(
                f"{path}:{number}: {word}" for word in retired_in(lines[number])
            )
    return {folder: words for folder, words in places.items() if words}


def trees_of_tests() -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the tree of each test file. Files in data/ are inputs of tests."""
    for file in sorted((ROOT / "tests").rglob("*.py")):
        path = file.relative_to(ROOT)
        if not SKIPPED & set(path.parts):
            yield str(path), tree_of(file)


def first_lines_of_comments(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The number and the text of each line that begins a comment of its own."""
    before = ""
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("#") and not before.lstrip().startswith("#"):
            yield number, line
        before = line


def test_retired_words_become_less() -> None:
    places = found()
    counts = {folder: len(lines) for folder, lines in places.items()}
    more = {folder: count for folder, count in counts.items() if count > LEFT.get(folder, 0)}
    assert not more, (
        f"more retired words than LEFT allows: {more}. Use the words that RETIRED and docs/dev/GLOSSARY.md give. "
        "Among these are the new ones:\n" + "\n".join(line for folder in more for line in places[folder])
    )
    assert counts == LEFT, f"retired words have become fewer: set LEFT in tests/rules/test_words.py to {counts}"


def test_first_sentences_name_what_they_are_about() -> None:
    wrong = [
        f"{source.path}:{node.body[0].lineno}"
        for source in sources()
        for node in nodes_of(source.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and NO_SUBJECT.match(ast.get_docstring(node) or "")
    ]
    assert not wrong, "these docstrings begin without a noun or a verb of what they describe:\n" + "\n".join(wrong)


def test_first_sentences_of_tests_name_what_they_are_about() -> None:
    wrong = [
        f"{path}:{node.body[0].lineno}: {text.splitlines()[0]}"
        for path, tree in trees_of_tests()
        for node in nodes_of(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (NO_SUBJECT.match(text := ast.get_docstring(node) or "") or FRAGMENT_OF_TESTS.match(text))
        and not (isinstance(node, ast.Module) and TITLE_OF_TESTS.match(text))
    ]
    assert not wrong, "these docstrings begin without a noun or a verb of what they describe:\n" + "\n".join(wrong)


def test_docstrings_of_functions_say_what_to_do() -> None:
    wrong = [
        f"{source.path}:{node.body[0].lineno}"
        for source in sources()
        for node in nodes_of(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and THIRD_PERSON.match(ast.get_docstring(node) or "")
    ]
    assert not wrong, 'these docstrings do not begin as "Return", "Write", "Return whether":\n' + "\n".join(wrong)


def test_docstrings_of_functions_with_a_value_begin_with_a_verb() -> None:
    wrong = [
        f"{source.path}:{node.body[0].lineno}"
        for source in sources()
        for node in nodes_of(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.returns is not None
        and not (isinstance(node.returns, ast.Constant) and node.returns.value is None)
        and not any("property" in dotted(each) or "fixture" in dotted(each) for each in node.decorator_list)
        and NOUN_PHRASE.match(ast.get_docstring(node) or "")
    ]
    assert not wrong, 'these docstrings name the value: "Return the ...", or say what is done:\n' + "\n".join(wrong)


def test_the_second_verb_of_a_docstring_has_the_mood_of_the_first() -> None:
    wrong = [
        f"{source.path}:{node.body[0].lineno}"
        for source in sources()
        for node in nodes_of(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not THIRD_PERSON.match(text := " ".join((ast.get_docstring(node) or "").split()))
        and SECOND_VERB.match(text)
    ]
    assert not wrong, 'these docstrings have "Rename ..., and syncs":\n' + "\n".join(wrong)


#: A count in a package whose sentences are its own: "3 partition(s)", or "{len(rows)} partitions" when it may be 1.
NO_PLURAL = re.compile(
    r"[a-z]\(s\)|'s' \*|\"s\" if|\{len\([^{}]*\)\} (?:topics|partitions|groups|records|nodes|brokers|findings|changes|moves)\b"
)
#: They print Kafka's own sentences.
SENTENCES_OF_KAFKA = ("ottla/cli/shims/",)


def test_sentences_count_by_one_helper() -> None:
    wrong = [
        f"{source.path}:{number}: {line.strip()}"
        for source in sources()
        if source.path.startswith(("ottla/cli/", "ottla/client/", "ottla/console/"))
        and not source.path.startswith(SENTENCES_OF_KAFKA)
        for number, line in enumerate(source.lines, start=1)
        if NO_PLURAL.search(line)
    ]
    assert not wrong, "ottla/client/failures.py has `counted` and `plural`:\n" + "\n".join(wrong)


def test_comments_name_what_is_measured() -> None:
    wrong = [
        f"{source.path}:{number}: {line.strip()}"
        for source in sources()
        for number, line in first_lines_of_comments(source.lines)
        if NO_MEASURE.match(line.strip().lstrip("#: "))
    ]
    assert not wrong, "say what it is: the time between two looks, the rows of one batch:\n" + "\n".join(wrong)


def test_comments_name_what_they_are_about() -> None:
    wrong = [
        f"{source.path}:{number}: {line.strip()}"
        for source in sources()
        for number, line in first_lines_of_comments(source.lines)
        if NO_SUBJECT_OF_COMMENT.match(line.strip().lstrip("#: "))
    ]
    assert not wrong, "these comments begin without a noun or a verb of what they describe:\n" + "\n".join(wrong)


def test_words_are_found_in_names_and_sentences() -> None:
    assert list(retired_in("def hear_metadata(self, isTold: bool)  # Nobody listens, the table tells")) == [
        "hear",
        "Told",
        "Nobody",
        "tells",
    ]
    assert not list(retired_in("label heart stored output.tell() collaborate nobody:x:99"))
    assert list(retired_in("It is our own mistake")) == ["our own mistake"]
    assert max(Counter(word for words in RETIRED for word in words.split()).values()) == 1
