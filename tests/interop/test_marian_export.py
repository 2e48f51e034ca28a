"""A bundle becomes a directory that transformers' MarianMTModel and MarianTokenizer load and understand."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_models import FAMILIES, batch, imported, logits_of
from small_tokenizers import nllb_pair, phrases
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT32, assert_close

from heedful import Translator
from heedful.decoding.options import SearchOptions
from heedful.errors import InteropError, RunError
from heedful.interop.marian import export_marian
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, TokenizerConfig
from heedful.storage.bundle import Bundle
from heedful.text import train_tokenizers

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]
MODELS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "without biases": {"attention_bias": False, "feed_forward_bias": False, "scale_embeddings": False},
    "swish, one matrix for the target": {"activation": "swish", "tied": "target", "output_bias": True},
    "gelu, no matrix shared": {"activation": "gelu", "tied": "none"},
    "one embedding": {"tied": "embeddings", "output_bias": True},
    "concatenated": {"positions": "concatenated", "activation": "gelu_tanh", "output_bias": True},
}


def random_bundle(*, joint: bool = True, **changes: Any) -> Bundle:  # noqa: ANN401
    """Every weight is random, gains and biases too."""
    english, german = phrases()
    settings = TokenizerConfig(vocab_size=120, joint=joint, byte_fallback=False)
    tokenizers = train_tokenizers(english, german, settings, seed=1)
    sizes = {"src_vocab_size": tokenizers.src.vocab_size, "tgt_vocab_size": tokenizers.tgt.vocab_size}
    config = ModelConfig(
        d_model=12, num_heads=3, d_ff=20, num_encoder_layers=2, num_decoder_layers=2, **sizes
    ).replace(**changes)
    torch.manual_seed(7)
    model = Transformer.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_gain = "norm" in name and name.endswith("weight")
            noise = torch.randn_like(parameter)
            parameter.copy_(1.0 + 0.2 * noise if is_gain else 0.3 * noise)
    return Bundle(Config(model=config, tokenizer=settings), tokenizers, model)


def loaded(directory: Path) -> Any:  # noqa: ANN401
    """The model as transformers loads it, with nothing missing and nothing left over."""
    from transformers import MarianMTModel

    model, report = MarianMTModel.from_pretrained(directory, output_loading_info=True)
    assert not any(report.values())
    return model.eval()


def assert_same_logits(theirs: Any, ours: Transformer) -> None:  # noqa: ANN401
    src, tgt_in = batch(ours)
    wanted = logits_of(ours, src, tgt_in, ours.config)
    assert wanted.abs().mean() > 0.3
    found = logits_of(theirs, src, tgt_in, ours.config)
    assert_close(found, wanted, FLOAT32.MODEL)


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_logits_are_the_bundles(changes: dict[str, Any], tmp_path: Path) -> None:
    bundle = random_bundle(**changes)
    export_marian(bundle, tmp_path / "marian")
    assert_same_logits(loaded(tmp_path / "marian"), bundle.model)


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_what_was_exported_comes_back_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    bundle = random_bundle(**changes)
    export_marian(bundle, tmp_path / "marian")
    back, model = imported("marian", tmp_path / "marian")
    assert model.config.positions == "concatenated"
    src, tgt_in = batch(bundle.model)
    found, wanted = (logits_of(each, src, tgt_in, model.config) for each in (model, bundle.model))
    assert_close(found, wanted, FLOAT32.MODEL)
    for line in phrases()[0]:
        assert back.tokenizers.src.encode(line) == bundle.tokenizers.src.encode(line)


@pytest.mark.parametrize("joint", [True, False])
def test_ids_and_texts_are_the_bundles(joint: bool, tmp_path: Path) -> None:
    from transformers import MarianTokenizer

    bundle = random_bundle(joint=joint, tied="all" if joint else "none")
    export_marian(bundle, tmp_path / "marian")
    theirs = MarianTokenizer.from_pretrained(tmp_path / "marian")
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    for english, german in zip(*phrases(), strict=True):
        ids = theirs(f"  {english}  and 日本 ").input_ids
        assert ids == [*src.encode(f"  {english}  and 日本 "), src.eos_id]
        target = theirs(text_target=german).input_ids
        assert target == [*tgt.encode(german), tgt.eos_id]
        written = [tgt.bos_id, *target, tgt.pad_id]
        assert theirs.decode(written, skip_special_tokens=True) == tgt.decode(written) == german
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        ids = torch.randint(
            2, tgt.vocab_size, (12,), generator=generator
        ).tolist()  # but for the unknown piece
        assert theirs.decode(ids, skip_special_tokens=True) == tgt.decode(ids)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_generate_finds_what_the_bundle_finds(beam_size: int, tmp_path: Path) -> None:
    from transformers import MarianTokenizer

    bundle = memorised()
    search = {
        "beam_size": beam_size,
        "length_penalty": 1.0,
        "length_normalization": "power",
        "max_length": 20,
    }
    decode = bundle.config.decode.replace(**search)
    bundle = replace(bundle, config=bundle.config.replace(decode=decode.model_dump()))
    export_marian(bundle, tmp_path / "marian")
    model = loaded(tmp_path / "marian")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "marian")
    lines = [source for source, _ in PAIRS] + ["the the dog", "cat", "does sleep sees ?"]
    found = model.generate(**tokenizer(lines, return_tensors="pt", padding=True))
    wanted = Translator(bundle).translate(lines, options=SearchOptions.from_config(decode))
    assert tokenizer.batch_decode(found, skip_special_tokens=True) == wanted


def test_a_model_of_marians_own_comes_out_as_it_came_in(tmp_path: Path) -> None:
    from transformers import MarianTokenizer

    theirs = FAMILIES["marian"].save(tmp_path / "theirs")
    settings = theirs.generation_config
    settings.update(num_beams=3, max_length=30, early_stopping=True, length_penalty=0.7)
    settings.update(bad_words_ids=[[5]], renormalize_logits=True)
    settings.save_pretrained(tmp_path / "theirs")
    found, model = imported("marian", tmp_path / "theirs", tgt_lang="fra")
    export_marian(Bundle(found.config, found.tokenizers, model), tmp_path / "ours")
    ours = loaded(tmp_path / "ours")
    for name, tensor in theirs.state_dict().items():
        if "embed_positions" in name:  # of any length
            continue
        assert torch.equal(ours.state_dict()[name], tensor), name
    one, other = (MarianTokenizer.from_pretrained(tmp_path / name) for name in ("theirs", "ours"))
    for line in ("a cat", ">>fra<< a <unk> cat</s> ."):
        assert one(line).input_ids == other(line).input_ids
        assert one(text_target=line).input_ids == other(text_target=line).input_ids
    ids = list(range(one.vocab_size))
    assert one.decode(ids, skip_special_tokens=True) == other.decode(ids, skip_special_tokens=True)
    said = {key for key, value in settings.to_dict().items() if value is not None}
    said &= set(json.loads((tmp_path / "ours" / "generation_config.json").read_text()))
    assert {"num_beams", "max_length", "bad_words_ids", "length_penalty", "renormalize_logits"} <= said
    for key in said:
        assert getattr(ours.generation_config, key) == getattr(settings, key), key
    assert ">>fra<< ..." in (tmp_path / "ours" / "README.md").read_text(encoding="utf-8")


def other_bundles() -> Iterator[tuple[Bundle, str]]:
    for changes, name in (
        ({"norm": "pre"}, 'model.norm="pre"'),
        ({"norm_kind": "rms"}, 'model.norm_kind="rms"'),
        ({"positions": "learned"}, 'model.positions="learned"'),
        ({"positions": "rotary"}, 'model.positions="rotary"'),
        ({"positions": "fairseq"}, 'model.positions="fairseq"'),
        ({"num_kv_heads": 1}, "model.num_kv_heads=1"),
        ({"d_k": 6}, "model.d_k=6"),
        ({"d_v": 6}, "model.d_v=6"),
        ({"num_heads": 5, "d_k": 2, "d_v": 2}, "model.d_k=2"),
        ({"gated": True}, "model.gated=true"),
        ({"embedding_norm": True}, "model.embedding_norm"),
        ({"final_norm": True}, "model.final_norm=true"),
        ({"layer_norm_eps": 1e-6}, "model.layer_norm_eps=1e-06"),
    ):
        yield random_bundle(**changes), name
    tagged = random_bundle(src_vocab_size=270, tgt_vocab_size=270)
    languages = {"src_tag": "eng_Latn"}
    config = tagged.config.replace(languages=languages)
    yield replace(tagged, tokenizers=nllb_pair(), config=config), "languages.src_tag='eng_Latn'"
    yield replace(tagged, tokenizers=nllb_pair()), "this model's tokenizer is a tokenizer.json"


def test_what_marian_cannot_express_is_refused_by_name_and_nothing_is_written(tmp_path: Path) -> None:
    for bundle, name in other_bundles():
        with pytest.raises(InteropError) as found:
            export_marian(bundle, tmp_path / "marian")
        assert str(found.value).startswith("--to marian: ")
        assert name in str(found.value)
        assert "\n" not in str(found.value)
        assert list(tmp_path.iterdir()) == []


def test_the_example_of_the_readme_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export_marian(memorised(), tmp_path / "marian")
    code = (tmp_path / "marian" / "README.md").read_text(encoding="utf-8").split("```")[1]
    monkeypatch.chdir(tmp_path / "marian")
    exec(code.removeprefix("python").replace("...", PAIRS[0][0]))
    assert capsys.readouterr().out == f"{[PAIRS[0][1]]}\n"


def test_what_generate_cannot_do_is_said_in_the_readme(tmp_path: Path) -> None:
    export_marian(memorised(), tmp_path / "marian")
    text = (tmp_path / "marian" / "README.md").read_text(encoding="utf-8")
    assert "((5 + length) / 6) ** 0.6" in text
    assert "the length of its input plus 50 tokens" in text
    assert "sines before cosines" in text
    assert "stops by an estimate" in text
    settings = json.loads((tmp_path / "marian" / "generation_config.json").read_text())
    said = (settings["early_stopping"], settings["max_length"], settings["length_penalty"])
    assert said == (False, 512, 0.6)
    with pytest.raises(RunError, match="already exists"):
        export_marian(memorised(), tmp_path / "marian")


def test_generate_is_told_what_is_held_back(tmp_path: Path) -> None:
    bundle = memorised()
    held = {"min_length": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.5}
    config = bundle.config.replace(decode=held)
    export_marian(replace(bundle, config=config), tmp_path / "marian")
    settings = json.loads((tmp_path / "marian" / "generation_config.json").read_text())
    assert (settings["min_new_tokens"], settings["no_repeat_ngram_size"]) == (3, 2)
    assert settings["repetition_penalty"] == 1.5
    text = (tmp_path / "marian" / "README.md").read_text(encoding="utf-8")
    assert "The repetition penalty multiplies log-probabilities" in text
