"""What every test may use: the modules of tests/support and of tools, and real corpora where they are."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time; what searches for new ones says so (tests/property, HEEDFUL_FUZZ_CASES).
settings.register_profile("the same every time", derandomize=True)
settings.load_profile("the same every time")

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tools")]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora: $HEEDFUL_DATA, else shared/data beside the repository; skips without it."""
    folder = Path(os.environ.get("HEEDFUL_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real corpora in {folder}; set HEEDFUL_DATA")
    return folder
