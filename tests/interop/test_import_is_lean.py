"""Importing a model takes little more memory than its file, and no library of another's."""

import subprocess
import sys
from pathlib import Path

import pytest
from pretrained_models import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
STATUS = Path("/proc/self/status")
# The peak of the process itself: getrusage would count what the process that started it had used.
IMPORT = """
import re, sys
from pathlib import Path
import heedful.interop.layouts, heedful.interop.vocabulary, heedful.storage.model_files, heedful.verbs.card
from heedful.verbs.import_ import Import, import_

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

before = peak()
import_(Import(source=Path(sys.argv[1]), layout="marian", output=Path(sys.argv[2])))
print(before, peak(), *sorted({name.split(".")[0] for name in sys.modules}))
"""


@pytest.mark.skipif(not STATUS.is_file(), reason="there is no /proc to read the peak from")
def test_marian_is_imported_in_less_than_twice_the_memory_of_its_file(tmp_path: Path) -> None:
    FAMILIES["marian"].save(tmp_path / "model", encoder_ffn_dim=2**18, decoder_ffn_dim=2**18)
    file = tmp_path / "model" / "model.safetensors"
    assert file.stat().st_size > 64 * 2**20
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, str(tmp_path / "model"), str(tmp_path / "bundle")],
        capture_output=True,
        text=True,
        check=True,
    )
    before, peak, *modules = done.stdout.split()
    assert (int(peak) - int(before)) * 1024 < 2 * file.stat().st_size
    assert not {"transformers", "tokenizers", "huggingface_hub"} & set(modules)
