"""The part of the package's metadata that depends on the repository's address: the links, and the long description from
README.md.

README.md has links to files in the repository, which would be broken on the page of a package index. Here they become links
into the repository, at the tag of the version. While ottla.REPOSITORY is empty there is no address, and only the words of such
a link are kept.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
#: A link or a picture. One that leads to another host, or within the page, is not matched.
_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!\w+:|#)([^)\s]+)\)")


class OttlaMetadata(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        source = (ROOT / "ottla/__init__.py").read_text()
        version, repository = (_constant(source, name) for name in ("__version__", "REPOSITORY"))
        text = absolute((ROOT / "README.md").read_text(), repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(repository, version)


def _constant(source: str, name: str) -> str:
    found = re.search(rf'^{name} = "(.*)"$', source, re.M)
    assert found is not None, name
    return found[1]


def urls(repository: str, version: str) -> dict[str, str]:
    """Return the links of the package; there are none without an address of the repository."""
    if not repository:
        return {}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/index.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def absolute(text: str, repository: str, version: str, folder: str = "") -> str:
    """Return the text of a file of the folder with links into the repository.

    Without an address, links become their words, and pictures are left out.
    """

    def replaced(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if not repository:
            return "" if picture else words
        path = posixpath.normpath(posixpath.join(folder, target))
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return _LINK.sub(replaced, text)
