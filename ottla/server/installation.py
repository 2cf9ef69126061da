"""The way in which this Ottla was installed, and the command that adds an extra to it.

Every remedy that installs something uses it.

`pip install 'ottla[console]'` is right only if the index has the project, and `pip` belongs to this environment. Otherwise it
fails, or installs another project's package of that name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import ottla

NAME = "ottla"


def install(extra: str) -> str:
    """Return the command that adds an extra to the Ottla that runs.

    It names the clone or the file that this Ottla was installed from (PEP 610), if that still exists. Otherwise, before the
    index has the project, it names the packages of the extra.
    """
    if ottla.IS_ON_INDEX:
        return f"{_pip_install()} '{NAME}[{extra}]'"
    from importlib.metadata import PackageNotFoundError, distribution  # imported late: only a remedy needs it

    try:
        found = distribution(NAME)
    except PackageNotFoundError:
        return f"{_pip_install()} '{Path(ottla.__file__).parent.parent}[{extra}]'"
    if named := requirement(json.loads(found.read_text("direct_url.json") or "{}"), extra):
        return f"{_pip_install()} {named}"
    return f"{_pip_install()} {shlex.join(brought(found.requires or (), extra))}"


def requirement(direct_url: dict[str, Any], extra: str) -> str | None:
    """Return pip's argument for the same source with an extra; None if the source is not known, or no longer exists.

    Args:
        direct_url: the content of direct_url.json (PEP 610), empty if there is none.
    """
    url = direct_url.get("url", "")
    if "vcs_info" in direct_url:
        return f"'{NAME}[{extra}] @ {direct_url['vcs_info']['vcs']}+{url}'"
    parts = urlsplit(url)
    if parts.scheme != "file":
        return f"'{NAME}[{extra}] @ {url}'" if url else None
    path = unquote(parts.path)
    if not os.path.exists(path):
        return None
    return ("-e " if direct_url.get("dir_info", {}).get("editable") else "") + shlex.quote(f"{path}[{extra}]")


def brought(requires: list[str] | tuple[str, ...], extra: str) -> list[str]:
    """Return the requirements of an extra, without the marker that names the extra."""
    of_extra = re.compile(rf"""\s*(?:;|and)\s*extra == ['"]{re.escape(extra)}['"]$""")
    return [
        re.sub(r"\s*;\s*\(?(.*?)\)?$", r"; \1", of_extra.sub("", each)) for each in requires if of_extra.search(each)
    ]


def _pip_install() -> str:
    """Return the words of a command that installs into this environment, whichever `pip` is on the PATH."""
    if find_spec("pip") is None:  # an environment made by uv, or one without pip
        uv = shutil.which("uv") is not None
        return f"uv pip install --python {sys.executable}" if uv else f"pip --python {sys.executable} install"
    found = shutil.which("pip")
    is_ours = found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
    return "pip install" if is_ours else f"{sys.executable} -m pip install"
