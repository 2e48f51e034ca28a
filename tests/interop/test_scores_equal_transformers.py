"""Given translations have the cross-entropy of transformers, and what `generate` finds its own scores."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_models import FAMILIES, end_sooner, imported
from small_tokenizers import phrases
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT32, close

from heedful import Translator
from heedful.decoding.options import SearchOptions
from heedful.interop.marian import export_marian
from heedful.storage.bundle import Bundle
from heedful.text import SpecialTokens

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]
MAX_LENGTH = 14
SEARCHES: dict[str, dict[str, Any]] = {
    "marian": {"num_beams": 4, "renormalize_logits": True, "length_penalty": 0.8},
    "nllb": {"num_beams": 3, "length_penalty": 1.3},
    "bart": {"num_beams": 2, "length_penalty": 0.0, "early_stopping": "never"},
}
FORCED = {"nllb": "deu_Latn", "bart": "<s>"}


def test_log_probabilities_are_the_cross_entropy_of_an_exported_model(tmp_path: Path) -> None:
    from transformers import MarianMTModel, MarianTokenizer

    export_marian(memorised(), tmp_path / "marian")
    model = MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "marian")
    sources = [*(src for src, _ in PAIRS), *phrases()[0][:20]]
    targets = [*(tgt for _, tgt in PAIRS), *phrases()[1][:20]]
    found = Translator(memorised(), batch_tokens=200).score(sources, targets)
    for source, target, ours in zip(sources, targets, found, strict=True):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        with torch.no_grad():
            theirs = model(**batch)
        labels = batch["labels"][0]
        wanted = theirs.logits[0].log_softmax(-1)[range(len(labels)), labels]
        assert ours.token_log_probs == close(wanted.tolist(), FLOAT32.MODEL)
        assert -ours.log_prob / len(labels) == close(theirs.loss.item(), FLOAT32.SENTENCE)


def generated(name: str, directory: Path) -> tuple[Any, Any]:
    """A saved random model of a family, and what its own `generate` finds, two for each source."""
    from transformers import AutoTokenizer

    model = FAMILIES[name].save(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    settings = model.generation_config
    settings.update(max_length=MAX_LENGTH, forced_eos_token_id=settings.eos_token_id, **SEARCHES[name])
    if name == "marian":
        settings.bad_words_ids = [[settings.pad_token_id], *([i] for i in range(7, 200, 3))]
    else:
        settings.forced_bos_token_id = tokenizer.convert_tokens_to_ids(FORCED[name])
    end_sooner(model, 4.0)
    model.save_pretrained(directory)
    batch = tokenizer(list(phrases()[0][:40]), return_tensors="pt", padding=True)
    return batch, model.generate(
        **batch, num_return_sequences=2, return_dict_in_generate=True, output_scores=True
    )


def _without(pad_id: int, ids: list[int]) -> list[int]:
    return [i for i in ids if i != pad_id]


@pytest.mark.parametrize("name", SEARCHES)
def test_what_generate_finds_has_the_score_that_generate_gave_it(name: str, tmp_path: Path) -> None:
    batch, theirs = generated(name, tmp_path / "model")
    found, model = imported(FAMILIES[name].layout, tmp_path / "model")
    config, tgt = found.config, found.tokenizers.tgt
    special_tokens, options = (
        SpecialTokens.of(config, found.tokenizers),
        SearchOptions.from_config(config.decode),
    )
    if special_tokens.tgt_prefix:
        options = replace(options, forced_first_id=special_tokens.tgt_prefix[0])
    outputs = []
    for ids in theirs.sequences[:, 1:].tolist():
        end = ids.index(tgt.eos_id) + 1
        outputs.append(ids[:end])
    translator = Translator(Bundle(config, found.tokenizers, model))
    sources = batch["input_ids"].repeat_interleave(2, dim=0).tolist()
    ours = translator.score_ids(
        [_without(model.config.src_pad_id, ids) for ids in sources], outputs, options=options
    )
    # Sums of about -30, which transformers takes in float32.
    assert [each.score for each in ours] == close(theirs.sequences_scores.tolist(), FLOAT32.SENTENCE)
    lengths = {len(output) for output in outputs}
    assert len(lengths) > 3
    assert MAX_LENGTH - 1 in lengths
