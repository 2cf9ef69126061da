"""Packages that a plain install lacks are imported only where docs/INSTALL.md says what it does without them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

import ottla
from ottla.cli.command_table import COMMANDS
from ottla.cli.kafka_tools import TOOLS
from ottla.server.extras import BROUGHT_BY
from tests.rules.sources import ROOT, imported_modules, pipeline_sources, sources

#: Folders or files, and the extras whose packages they import. Each has a row in "What a plain install does" in
#: docs/INSTALL.md.
PLACES = {
    "server/extras.py": {"re2"},
    "protocol/records/frames.py": {"lz4"},
    "server/sasl/kerberos.py": {"gssapi"},
    "ottla/console/": {"starlette", "jinja2"},
    "ottla/web/": {"uvicorn", "h11"},  # for the console and the registry
    "ottla/registry/": {
        "starlette",
        "fastavro",
        "avro",
        "jsonschema",
        "jsonschema_specifications",
        "referencing",
        "google",
    },
    "ottla/testing/": {"confluent_kafka", "pytest"},
    "ottla/spark/": {"pyspark", "pyarrow"},
    "ottla/columns/": {"pyarrow", "numpy", "fastavro", "msgspec", "google"},
    "ottla/tables/": {"pyarrow", "numpy", "pyiceberg", "sqlalchemy", "deltalake", "obstore", "starlette", "duckdb"},
    "pipeline/": {"pyspark", "pyarrow", "pandas", "matplotlib", "fastavro", "confluent_kafka", "delta"},
}
#: Packages that the extra `testing` has for tests; no command needs them.
OF_TESTS = {"pytest", "confluent-kafka"}


def project() -> dict[str, list[str]]:
    """The names of the distributions that a plain install has (""), and that each extra brings."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": table["dependencies"], **table["optional-dependencies"]}
    return {extra: [distribution(text) for text in texts] for extra, texts in groups.items()}


def distribution(requirement: str) -> str:
    name = requirement.split(";")[0].split("[")[0]
    return name.split(">")[0].split("=")[0].split("<")[0].strip().lower().replace("_", "-")


@cache
def installed() -> dict[str, set[str]]:
    """The distributions of each package of the environment of the tests."""
    return {package: set(map(distribution, names)) for package, names in packages_distributions().items()}


def distributions_of(package: str) -> set[str]:
    """Return the distributions of a package; one that is not installed (an optional part of `make test`) has a distribution of its name."""
    return installed().get(package, {distribution(package)})


def test_what_a_plain_install_lacks_is_imported_in_these_places_alone() -> None:
    plain = set(project()[""])
    found: dict[str, set[str]] = {}
    for source in (*sources(), *pipeline_sources()):
        for _, name in imported_modules(source.tree):
            package = name.partition(".")[0]
            if package not in sys.stdlib_module_names | {"ottla"} and not distributions_of(package) & plain:
                place = next((place for place in PLACES if source.path.startswith(place)), source.path)
                found.setdefault(place, set()).add(package)
    assert found == PLACES


#: It imports each module in sys.argv without the packages of the first argument, and prints which ones failed.
WITHOUT = """
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name)
absent, *modules = sys.argv[1].split(), *sys.argv[2:]
sys.meta_path.insert(0, Absent())
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as missing:
        print(module, "needs", missing)
"""


def test_each_command_and_tool_can_be_imported_by_a_plain_install() -> None:
    """Otherwise its help, and its sentence about the missing extra, would be a traceback."""
    absent = set().union(*PLACES.values())
    words = [" ".join(absent), *(each.module for each in COMMANDS.values()), *TOOLS.values()]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_extra_is_looked_for_by_the_packages_that_it_brings() -> None:
    for extra, packages in BROUGHT_BY.items():
        there = set().union(*(distributions_of(package.partition(".")[0]) for package in packages))
        assert set(project()[extra]) - OF_TESTS <= there


def test_no_place_but_one_says_that_the_index_has_this_project() -> None:
    """The command `pip install ottla` fails until then, or installs another project that has taken the name."""
    said = re.compile(r"""pip install ['"]?(?:pyspark-)?ottla\b(?!/)""")
    files = [
        *(ROOT / "ottla").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "tools").rglob("*.py"),
    ]
    found = {str(file.relative_to(ROOT)) for file in files if said.search(file.read_text())}
    assert ottla.IS_ON_INDEX or found <= {"ottla/server/installation.py", "ottla/__init__.py", "docs/RELEASING.md"}
