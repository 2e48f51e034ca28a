"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

    python tools/oldest.py > oldest.txt && pip install -c oldest.txt .

The versions of requirements of a requirement are left to pip.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def oldest(requirements: list[str]) -> list[str]:
    """Turn floors into pins: `torch>=2.6` becomes `torch==2.6`."""
    return [re.sub(r">=", "==", requirement) for requirement in requirements]


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    sys.stdout.write("\n".join([*oldest(project["dependencies"]), ""]))
