"""The site of docs/: `make site` writes it into build/site, which is read without a server or a network.

docs/ and docker/README.md are copied, so that the pages of docs/dev and the history stay in the tree: a link to them leads into the
repository, or is its words alone while ottla.REPOSITORY is empty. The reference of commands and properties is written from the tables
of the code. mkdocs.yml has the order of the pages; a link that leads nowhere fails.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import ottla
from hatch_build import absolute
from ottla.__main__ import main as run_ottla
from ottla.cli.app import App
from ottla.cli.command_table import COMMANDS
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.key import REQUIRED, ConfigKey, Scope
from ottla.server.config.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS

ROOT = Path(__file__).parent.parent
PAGES, SITE = ROOT / "build/site-pages", ROOT / "build/site"
#: Pages that lie elsewhere in the tree, by their names in the site.
OTHERS = {"docker.md": "docker/README.md", "CHANGELOG.md": "CHANGELOG.md"}
HELP_COLUMNS = 100
WORKERS_OF_FILES = ROOT / "tools/iframe_worker.js"
WORKERS_ELSEWHERE = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"(!?\[(?:[^][]|\[[^]]*\])*\]\()(?!\w+:|#)([^)\s#]+)((?:#[^)\s]*)?\))")
#: The beginning of a list or a table. Right below a text Python-Markdown needs an empty line before it, GitHub does not.
_ITEM = re.compile(r"(?:[-*]|\d+\.) |\|")

PROPERTIES: Mapping[str, Mapping[str, ConfigKey]] = {
    "Of brokers and controllers": BROKER_CONFIGS,
    "Of topics": TOPIC_CONFIGS,
    "Of groups": GROUP_CONFIGS,
    "Of client-metrics subscriptions": CLIENT_METRICS_CONFIGS,
}
CHANGED = {
    Scope.READ_ONLY: "needs a restart",
    Scope.PER_BROKER: "can be changed for each broker",
    Scope.CLUSTER_WIDE: "can be changed for each broker and for all",
}


def build() -> Path:
    """Build the site, and return its folder.

    Raises:
        subprocess.CalledProcessError: a link leads nowhere, or a page is in no part; mkdocs has said which.
    """
    write_pages(PAGES)
    # The time of the pages is that of all files of a release: tools/dist.py.
    own = {"OTTLA_REPOSITORY": ottla.REPOSITORY, "NO_MKDOCS_2_WARNING": "1"}
    environment = {"SOURCE_DATE_EPOCH": "1580601600"} | os.environ | own
    command = [sys.executable, "-m", "mkdocs", "build", "--clean"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    print(
        "".join(line for line in done.stderr.splitlines(True) if not line.startswith("INFO")), end="", file=sys.stderr
    )
    done.check_returncode()
    _bundle_search()
    for name in ("sitemap.xml", "sitemap.xml.gz", "objects.inv"):  # for servers and other sites
        (SITE / name).unlink(missing_ok=True)
    return SITE


def write_pages(folder: Path) -> None:
    """Write the sources of mkdocs into a folder, in place of its former contents."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "reference").mkdir(parents=True)
    for source in [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / path for path in OTHERS.values())]:
        name = next((own for own, path in OTHERS.items() if ROOT / path == source), source.name)
        (folder / name).write_text(page_text(source))
    for picture in (*(ROOT / "docs").glob("*.svg"), *(ROOT / "docs").glob("*.png")):
        shutil.copy(picture, folder)
    shutil.copytree(ROOT / "docs/pictures", folder / "pictures")
    (folder / "reference/cli.md").write_text(commands_page())
    (folder / "reference/properties.md").write_text(properties_page())
    (folder / "reference/testing.md").write_text(testing_page())


def _bundle_search() -> None:
    """Put what the search needs on pages that are files beside them: the theme would load it from another host."""
    shutil.copy(WORKERS_OF_FILES, SITE / "assets")
    for page in SITE.rglob("*.html"):
        text = page.read_text()
        beside = os.path.relpath(SITE / "assets" / WORKERS_OF_FILES.name, page.parent)
        page.write_text(text.replace(WORKERS_ELSEWHERE, beside))


def page_text(source: Path) -> str:
    """Return the text of a page of the tree as the site has it: with its links, and an empty line before lists."""
    names = {(ROOT / path).resolve(): own for own, path in OTHERS.items()}
    folder = source.parent.relative_to(ROOT).as_posix()

    def link(found: re.Match[str]) -> str:
        target = (source.parent / found[2]).resolve()
        if target in names:
            return f"{found[1]}{names[target]}{found[3]}"
        if target.parent in (ROOT / "docs", ROOT / "docs/pictures"):  # mkdocs reports those that do not exist
            return f"{found[1]}{target.relative_to(ROOT / 'docs').as_posix()}{found[3]}"
        return absolute(found[0], ottla.REPOSITORY, ottla.__version__, folder)

    lines: list[str] = []
    fenced = False
    for line in _LINK.sub(link, source.read_text()).split("\n"):
        before = lines[-1] if lines else ""
        fenced ^= line.lstrip().startswith("```")
        if line.startswith("      ") and not fenced and (not before or before.startswith("        ")):
            line = f"  {line}"  # code within an item of a list, which is indented by four
        begins = _ITEM.match(line) and before and not before.startswith((" ", "|")) and not _ITEM.match(before)
        if begins and not fenced:
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def commands_page() -> str:
    """Return the help of each command and each of its verbs."""
    parts = [
        "# Commands",
        "",
        "`ottla COMMAND --help` prints each of these texts. [The command line](../CLI.md) has examples.",
        "",
    ]
    for name, command in COMMANDS.items():
        parts += [
            f"## ottla {name}",
            "",
            f"{command.summary[0].upper()}{command.summary[1:]}.",
            "",
            *_fenced(help_text(name)),
        ]
        app = getattr(import_module(command.module), "app", None)
        for verb in sorted(app.verbs) if isinstance(app, App) else ():
            parts += [f"### ottla {name} {verb}", "", *_fenced(help_text(name, verb))]
    return "\n".join(parts)


def help_text(*words: str) -> str:
    """Return the output of a command with --help."""
    out = io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": str(HELP_COLUMNS), "NO_COLOR": "1"}),
        redirect_stdout(out),
        suppress(SystemExit),
    ):
        run_ottla([*words, "--help"])
    return out.getvalue().rstrip()


def _fenced(text: str) -> list[str]:
    return ["```text", *text.split("\n"), "```", ""]


def properties_page() -> str:
    """Return all properties with their texts."""
    parts = [
        "# Properties",
        "",
        "The names are Kafka's; those that begin with `ottla.` are Ottla's own. `ottla config get KIND NAME --docs` prints these",
        "texts with the present values. [Differences](../DIFFERENCES.md) has the properties whose effect is another one.",
        "",
    ]
    for title, keys in PROPERTIES.items():
        parts += [f"## {title}", ""]
        for name, key in sorted(keys.items()):
            if not key.internal:
                parts += [f"#### {name} {{ #{_anchor(title, name)} }}", "", *property_lines(key, title), ""]
    return "\n".join(parts)


def property_lines(key: ConfigKey, title: str) -> list[str]:
    facts = [key.type.name.lower(), _default(key), f"importance {key.importance.value}"]
    if title == "Of brokers and controllers":
        facts.append(CHANGED[key.dynamic])
    return [_as_text(key.doc), "", f"*{', '.join(facts)}*"]


def _default(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        return "has to be set"
    if key.default is None or key.default == "" or key.default == []:
        return "no default"
    value = ",".join(map(str, key.default)) if isinstance(key.default, (list, tuple)) else str(key.default)
    return f"default `{value}`"


def _as_text(text: str) -> str:
    """Return a text that shows Markdown's marks as they are."""
    return re.sub(r"([*_<>])", r"\\\1", text)


def _anchor(title: str, name: str) -> str:
    return f"{title.split()[-1]}-{name}".replace(".", "-")


def testing_page() -> str:
    """Return the page whose parts mkdocstrings writes from the docstrings of the test kit."""
    modules = import_module("ottla.testing").MODULES
    parts = [
        "# The test kit in Python",
        "",
        "[In tests](../TESTING.md) shows how these are used; this is all there is.",
        "",
    ]
    for name, module in modules.items():
        parts += [f"::: {module}.{name}", ""]
    parts += ["## Fixtures and factories of pytest", "", "::: ottla.testing.plugin", ""]
    return "\n".join(parts)


def main() -> int:
    try:
        print(f"{build().relative_to(ROOT)}/index.html")
    except subprocess.CalledProcessError as failure:  # mkdocs has said which link leads nowhere
        return failure.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
