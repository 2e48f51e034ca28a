"""A stored bundle is read for good.

`ten-pairs` was trained by `heedful train` on ten pairs; its card has the command. A later format_version gets
another bundle beside it.
"""

import json
from pathlib import Path

from ten_pairs import ENGLISH, GERMAN

from heedful import Translator

BUNDLE = Path(__file__).parent / "ten-pairs"


def test_it_has_the_format_of_the_first_release() -> None:
    description = json.loads((BUNDLE / "config.json").read_text(encoding="utf-8"))
    assert description["format_version"] == 1
    assert description["sha256"].keys() == {"model.safetensors", "tokenizer.model", "settings"}


def test_it_translates_what_it_was_trained_on() -> None:
    assert Translator.load(BUNDLE).translate(list(ENGLISH)) == list(GERMAN)
