"""Write the phrase book that comes with the package: `python tools/freeze_phrasebook.py`."""

import hashlib
from pathlib import Path

from heedful.data.phrasebook import FILE_NAME, to_bytes
from phrasebook import generate

SEED = 1
SIZES = {"num_train": 40_000, "num_valid": 500, "num_test": 1000, "num_unseen": 500}


def frozen() -> bytes:
    """Generate the book and return the file of it."""
    return to_bytes(generate(seed=SEED, **SIZES))


def main() -> None:
    """Write the file of the package and print its checksum."""
    path = Path(__file__).resolve().parent.parent / "src" / "heedful" / "data" / FILE_NAME
    path.write_bytes(frozen())
    print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}")


if __name__ == "__main__":
    main()
