"""An argparse parser whose help and errors look like those of the other commands (`ottla/cli/help_page.py`).

`ottla start`, `dev` and `fork` use argparse, because their packages may not import `ottla.cli`.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, NoReturn

NAMES_MAX = 28
USAGE = 2


class _Form(argparse.HelpFormatter):
    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=NAMES_MAX + 4, **options)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        places = [
            f"[{each.metavar}]" if each.nargs in ("?", "*") else each.metavar
            for each in actions
            if not each.option_strings
        ]
        super().add_usage(usage or " ".join(["%(prog)s [OPTIONS]", *map(str, places)]), actions, groups, "Usage: ")


class CommandParser(argparse.ArgumentParser):
    """The parser of one command.

    It reports wrong usage in one line that says where to find the usage, and ends with exit code 2.
    """

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog, description=description, formatter_class=_Form, add_help=False, allow_abbrev=False)
        self._positionals.title, self._optionals.title = "Arguments", "Options"
        self.add_argument("-h", "--help", action="help", help="Show this page.")
        if sys.version_info >= (3, 14):
            self.color = False

    def error(self, message: str) -> NoReturn:
        said = re.sub(r"^argument ([^:]+): ", r"\1: ", message)
        self.exit(USAGE, f"ottla: {said}\n  `{self.prog} --help` shows the usage\n")
