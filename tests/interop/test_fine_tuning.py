"""A model of each family is trained on a little text: its loss falls, and CTranslate2 runs the result."""

import json
import random
from pathlib import Path

import pytest
from command_line import heedful, text
from pretrained_models import FAMILIES
from small_tokenizers import phrases

from heedful import Translator, load_bundle

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = {
    "marian-native": GOLDEN / "marian" / "post",
    "ssru": GOLDEN / "marian" / "ssru",
    "opennmt-py": GOLDEN / "opennmt" / "opennmt-py" / "rotary" / "model_step_7.pt",
    "eole": GOLDEN / "opennmt" / "eole" / "concatenated",
}
LANGUAGES = {"m2m100": ["--tgt-lang", "de"]}
SAVED = ["marian", "m2m100", "bart", "fsmt", "pegasus", "blenderbot", "t5 1.1"]
SETTINGS = {
    "batch.tokens": 512, "decode.beam_size": 1, "decode.min_length": 1, "decode.max_length": 12,
    "data.allow_overlap": "true",
    "model.dropout": 0.0, "schedule.name": "constant",
    "schedule.peak": 3e-3, "schedule.warmup_steps": 1, "train.average_checkpoints": 1, "train.max_steps": 50,
    "train.precision": "float32", "train.processes": 1, "train.threads": 1, "valid.decode_sentences": 0,
    "valid.every_steps": 50,
}  # fmt: skip


def source_of(name: str, directory: Path) -> Path:
    if name in FILES:
        return FILES[name]
    FAMILIES[name].save(directory)
    return directory


def bare(token: str) -> str:
    return token.removeprefix("▁")


def lines_for(bundle: Path) -> tuple[list[str], list[str]]:
    """The phrase book, or tokens of the vocabularies where these know no words."""
    pair = load_bundle(bundle).tokenizers
    english, german = (list(lines[:20]) for lines in phrases())
    if pair.src.kind != "word":
        return english, german
    rng = random.Random(4)
    words = [
        [word for word in map(bare, each.tokens(range(each.vocab_size))) if word.isalnum()]
        for each in (pair.src, pair.tgt)
    ]
    made = [[" ".join(rng.choices(known, k=rng.randrange(2, 7))) for _ in range(20)] for known in words]
    return made[0], made[1]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", [*FILES, *SAVED])
def test_a_model_is_fine_tuned_and_exported_again(name: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    source = source_of(name, tmp_path / "model")
    outcome = heedful("import", source, "-o", bundle, *LANGUAGES.get(name, []))
    assert outcome.code == 0, outcome.err
    english, german = lines_for(bundle)
    (tmp_path / "train.en").write_bytes(text(english))
    (tmp_path / "train.de").write_bytes(text(german))
    files = ["--src", tmp_path / "train.en", "--tgt", tmp_path / "train.de"]
    files += ["--valid-src", tmp_path / "train.en", "--valid-tgt", tmp_path / "train.de"]
    options = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    outcome = heedful("train", "--init", bundle, *files, *options, "-o", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    events = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines())
    before, after = (event["nll"] for event in events if event["event"] == "validation")
    assert after < before - 0.3
    outcome = heedful("export", tmp_path / "run", "--to", "ctranslate2", "-o", tmp_path / "ct2")
    if name == "ssru":
        assert (outcome.code, outcome.err.count("\n")) == (1, 1)
        assert 'model.decoder_unit="ssru"' in outcome.err
        return
    assert outcome.code == 0, outcome.err
    trained = load_bundle(tmp_path / "run")
    example = (tmp_path / "ct2" / "README.md").read_text(encoding="utf-8")
    assert "def translate(lines):" in example
    code = example.partition("```python")[2].partition("```")[0].replace('directory = "."', "")
    space: dict[str, object] = {"directory": str(tmp_path / "ct2")}
    exec(code.replace('print(translate(["..."]))', f"found = translate({english!r})"), space)
    assert trained.config.decode.beam_size == 1
    ours = Translator(trained).translate(english)
    assert any(ours)
    # Where the last token is forced, CTranslate2 writes one more before it.
    found = space["found"]
    assert isinstance(found, list)
    assert all(one.startswith(other) for one, other in zip(found, ours, strict=True)), (found, ours)
