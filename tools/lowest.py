"""The lowest versions that pyproject.toml allows, as pip takes them: `make lowest` installs and tests them.

python -m tools.lowest        prints uvloop==0.21 and so on, with their markers
"""

from __future__ import annotations

from packaging.requirements import Requirement

from tools.platforms import project


def lowest(text: str) -> str:
    """Return the requirement with its lower bound as the only version. ValueError if it has none."""
    requirement = Requirement(text)
    bounds = [bound.version for bound in requirement.specifier if bound.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"{text} has no lower bound")
    marker = f"; {requirement.marker}" if requirement.marker is not None else ""
    return f"{requirement.name}=={bounds[0]}{marker}"


if __name__ == "__main__":
    print("\n".join(lowest(text) for text in (*project()[""], *project()["regex"])))
