"""What the tests of commands share."""

from pathlib import Path

import pytest
from tiny_bundle import save_memorised


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory whose best bundle knows the pairs by heart; what writes into it makes its own."""
    return save_memorised(tmp_path_factory.mktemp("runs") / "demo" / "best").parent
