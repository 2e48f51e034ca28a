"""Every name of `import heedful` has an example, and what a newcomer writes does what it says."""

import doctest
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from small_models import small_model
from ten_pairs import write_sides
from tiny_bundle import SHOWN_PAIRS, memorised, save_memorised
from torch import Tensor

import heedful
from heedful.data.files import read_lines
from heedful.data.phrasebook import phrase_book
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.interop.ctranslate2.export import export_ctranslate2
from heedful.runtime.native import native
from heedful.settings import plugins
from heedful.training.events import EndEvent

NAMES = [name for name in heedful.__all__ if name != "__version__"]
SLOW = {"adapt", "train"}
RUN = heedful.TrainResult(Path("best"), Path("last"), EndEvent(1, 1.0, "max_steps", 0, 1, 1))
END, BEGIN = 3, 2
IDS = torch.randint(4, 11, (3, 4), generator=torch.Generator().manual_seed(1))
SOURCES, TARGETS = ([*side] for side in zip(*SHOWN_PAIRS, strict=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the examples find: a run, text, a plugin, and a model of CTranslate2."""
    monkeypatch.chdir(tmp_path)
    save_memorised(Path("runs/demo"), SHOWN_PAIRS)
    export_ctranslate2(memorised(SHOWN_PAIRS), Path("opus-ct2"), quantization=None)
    write_sides(train=10)
    for language, texts in (("en", ["Hello 27!", "Mrs Smith 1."]), ("de", ["Hallo 27!", "Frau Smith 1."])):
        Path("site", language).mkdir(parents=True)
        Path("site", language, "page.txt").write_text("\n".join(texts), encoding="utf-8")
    Path("ours.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in phrase_book().train[:200]), "utf-8")
    Path("mine.py").write_text("from heedful.model.attention import MultiHeadAttention as Linear\n", "utf-8")
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    for side, lines in zip(("en", "de"), zip(*SHOWN_PAIRS, strict=True), strict=True):
        Path(f"test.{side}").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return tmp_path


def examples(name: str) -> list[doctest.DocTest]:
    thing = getattr(heedful, name)
    module = inspect.getmodule(thing)
    model = memorised(SHOWN_PAIRS).model
    names = {
        "heedful": heedful,
        "Sampling": Sampling,
        "translator": heedful.Translator(memorised(SHOWN_PAIRS)),
        "model": model,
        "src": torch.tensor([[5, 6, 3]]),
        "tgt_in": torch.tensor([[2, 5]]),
        "run": RUN,
    }
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [each for each in finder.find(thing, name, module, extraglobs=names) if each.examples]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NAMES]
)
def test_the_example_of_a_name_does_what_it_shows(name: str, folder: Path) -> None:
    found = examples(name)
    assert found
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for each in found:
        assert runner.run(each).failed == 0


def test_there_are_few_names() -> None:
    assert len(NAMES) <= 40


def copy_task() -> heedful.Transformer:
    torch.manual_seed(1)
    return heedful.Transformer(
        src_vocab_size=11,
        tgt_vocab_size=11,
        d_model=64,
        num_heads=4,
        num_encoder_layers=1,
        num_decoder_layers=1,
    )


def test_a_model_is_built_as_a_newcomer_guesses() -> None:
    from heedful.model.transformer import Transformer
    from heedful.ops import record_attention

    assert record_attention is heedful.record_attention
    config = heedful.ModelConfig(src_vocab_size=11, tgt_vocab_size=11, d_model=64, num_heads=4)
    assert heedful.Transformer is Transformer
    for model in (heedful.Transformer(config), Transformer(**dict(config)), Transformer.from_config(config)):
        assert model.config == config
        assert model(torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)).shape == (
            2,
            5,
            11,
        )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "src_vocab_size"),
        ({"d_model": 64, "num_heads": 4}, "src_vocab_size"),
        ({"src_vocab_size": 11, "tgt_vocab_size": 11, "nhead": 4}, "num_heads"),
        ({"config": heedful.Config()}, "ModelConfig"),
        ({"config": heedful.ModelConfig(), "d_model": 64}, "d_model"),
    ],
)
def test_what_a_model_lacks_is_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(heedful.ConfigError, match=named):
        heedful.Transformer(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("src", "tgt_in", "named"),
    [
        (IDS, IDS[:1], r"\(3, 4\).*\(1, 4\)"),
        (IDS[0], IDS, r"src.*\(4,\)"),
        (IDS, IDS.float(), "tgt_in.*float32"),
        (IDS + 7, IDS, "src"),
        (IDS, IDS - 20, "tgt_in"),
    ],
)
def test_ids_that_a_model_cannot_take_are_named(src: Tensor, tgt_in: Tensor, named: str) -> None:
    with pytest.raises(heedful.InputError, match=named):
        copy_task()(src, tgt_in)


def varied(seed: int, **sizes: int) -> heedful.Transformer:
    """A model whose weights are large, so that its outputs differ."""
    model = small_model(seed, tied="none", **sizes)
    for weight in model.parameters():
        weight.data *= 20 if weight.dim() > 1 else 1
    return model


def greedy(model: heedful.Transformer, src: list[int], limit: int) -> list[int]:
    """The most probable token again and again, from all logits each time."""
    written = [BEGIN]
    while len(written) <= limit and END not in written:
        logits = model(torch.tensor([src]), torch.tensor([written]))[0, -1]
        logits[[0, BEGIN]] = -math.inf
        written.append(int(logits.argmax()))
    return written[1:]


def test_generated_ids_are_those_of_a_loop_over_logits() -> None:
    model = varied(3).train()
    sources = [[4, 5, 6, 7], [8, 9], [10, 4, 4]]
    rows = torch.tensor([[*each, *[0] * (4 - len(each))] for each in sources])
    generated = model.generate(rows, max_length=6)
    assert model.training
    model.eval()
    alone = [greedy(model, each, 6) for each in sources]
    longest = max(map(len, alone))
    assert generated.tolist() == [[*each, *[0] * (longest - len(each))] for each in alone]
    model.train()(rows, rows).sum().backward()


def best_of_all(model: heedful.Transformer, src: list[int], limit: int) -> list[int]:
    """The output with the best score of all that there are, by their log-probabilities (6.1)."""
    scores = dict[tuple[int, ...], float]()
    for length in range(limit):
        for symbols in product((1, 4, 5), repeat=length + 1):
            for output in ((*symbols[:length], END), symbols):
                if len(output) == limit or output[-1] == END:
                    logits = model(torch.tensor([src]), torch.tensor([[BEGIN, *output[:-1]]]))[0].detach()
                    each = logits.log_softmax(-1)[range(len(output)), list(output)]
                    scores[output] = float(each.sum()) / ((5 + len(output)) / 6) ** 0.6
    return list(max(scores, key=scores.__getitem__))


@pytest.mark.parametrize("seed", [6, 8, 11])
def test_a_wide_beam_generates_the_best_of_all_outputs(seed: int) -> None:
    model, sources = varied(seed, src_vocab_size=6, tgt_vocab_size=6).eval(), [[4, 5], [5, 1], [1, 4]]
    generated = model.generate(torch.tensor(sources), beam_size=60, max_length=3).tolist()
    assert [[*best_of_all(model, each, 3), 0, 0][: len(generated[0])] for each in sources] == generated
    assert generated != model.generate(torch.tensor(sources), max_length=3).tolist()


def test_padding_is_no_symbol() -> None:
    with pytest.raises(heedful.InputError, match="id 0"):
        copy_task().generate(torch.tensor([[5, 0, 6]]))
    with pytest.raises(heedful.InputError, match="beam_size"):
        copy_task().generate(IDS, beam=4)


def test_a_translator_takes_the_options_of_a_search() -> None:
    translator = heedful.Translator(memorised(SHOWN_PAIRS))
    default = heedful.SearchOptions.from_config(translator.bundle.config.decode)
    greedy = heedful.SearchOptions(beam_size=1)
    assert (greedy.strategy, greedy.beam_size, default.beam_size) == (BeamSearch(beam_size=1), 1, 4)
    by_keyword = translator.translations(SOURCES, beam_size=1)
    assert by_keyword == translator.translations(SOURCES, options=greedy)
    assert by_keyword == translator.translations(SOURCES, options=default, beam_size=1)
    assert translator.translate(SOURCES, beam_size=1) == TARGETS
    assert {len(each.hypotheses) for each in translator.translations(SOURCES, n_best=6)} == {6}
    drawn = translator.translate(SOURCES, sample=True, temperature=0.5, seed=3)
    sampling = heedful.SearchOptions(strategy=Sampling(seed=3), temperature=0.5)
    assert drawn == translator.translate(SOURCES, options=sampling)
    for search in ({"beam": 1}, {"temperature": 0.5}, {"strategy": "greedy", "beam_size": 3}):
        with pytest.raises(heedful.InputError, match=next(reversed(search))):
            translator.translate(SOURCES, **search)


@pytest.mark.parametrize(
    ("search", "named"),
    [
        ({"beam_size": "4"}, "beam_size"),
        ({"beam_size": 2.5}, "beam_size"),
        ({"options": {"beam_size": 4}}, "options"),
        ({"strategy": 4}, "strategy"),
        ({"glossary": "terms.tsv"}, "glossary"),
        ({"replace_unknown": "no"}, "replace_unknown"),
        ({"suppressed_ids": "4"}, "suppressed_ids"),
        ({"prefixes": "das"}, "prefixes"),
        ({"first_line": "1"}, "first_line"),
    ],
)
def test_a_value_of_another_type_is_named(search: dict[str, Any], named: str) -> None:
    with pytest.raises(heedful.InputError, match=named):
        heedful.Translator(memorised(SHOWN_PAIRS)).translations(SOURCES, **search)


ANY: Any = heedful  # so that mypy lets through what users write
CALLS: dict[str, Callable[[], object]] = {
    "bundle": lambda: ANY.Translator(None),
    "batch_tokens": lambda: ANY.Translator("runs/demo", batch_tokens=1.5),
    "engine": lambda: ANY.Translator("runs/demo", engine="abacus"),
    "path": lambda: ANY.load_bundle(3),
    "overrides": lambda: ANY.load_config(overrides=["train.max_steps=2"]),
    "callbacks": lambda: ANY.train(src="train.en", tgt="train.de", callbacks=print),
    "schedule": lambda: ANY.train(src="train.en", tgt="train.de", schedule=0.1),
    "resamples": lambda: ANY.evaluate(["a"], ref=["a"], resamples=-1),
    "metric": lambda: ANY.evaluate(["a"], ref=["a"], metric=["bleu"]),
    "system": lambda: ANY.evaluate(None, ref=["a"]),
    "ref": lambda: ANY.evaluate(["a"], ref=3),
    "targets": lambda: ANY.Translator("runs/demo").score(SOURCES[:1], None),
    "output": lambda: ANY.translate_file("runs/demo", "test.en", None),
    "resume": lambda: ANY.translate_file("runs/demo", "test.en", "out", resume="yes"),
    "calibrate": lambda: ANY.evaluate("runs/demo", src="test.en", ref="test.de", calibrate=True),
    "source": lambda: ANY.translate_file("runs/demo", "test.en", "out", source="other.en"),
    "teacher": lambda: ANY.distill([], src="test.en", output="run"),
    "weight": lambda: ANY.distill("runs/demo", src="test.en", output="run", weight=2.0),
    "max_steps": lambda: ANY.distill("runs/demo", src="test.en", output="run", max_steps=2),
    "keep": lambda: ANY.distill("runs/demo", src="test.en", output="run", keep="html", remove="html"),
    "to": lambda: ANY.export_model("runs/demo", to=None, output="out"),
    "settings": lambda: ANY.import_model("opus-ct2", output="out", settings=["a"]),
    "'lang_dic'": lambda: ANY.import_model("opus-ct2", output="out", lang_dic="languages"),
    "base": lambda: ANY.import_model("opus-ct2", output="out", base=3),
    "src": lambda: ANY.Transformer(src_vocab_size=11, tgt_vocab_size=11, num_heads=1).generate([[4, 5]]),
    "tgt_in": lambda: copy_task()(IDS, IDS.tolist()),
    "bos_id": lambda: copy_task().generate(IDS, bos_id=99),
    "vocabulary": lambda: copy_task().generate(IDS + 95),
}


@pytest.mark.parametrize("named", CALLS)
def test_an_argument_that_cannot_be_is_named(folder: Path, named: str) -> None:
    before = {*folder.rglob("*")}
    with pytest.raises(heedful.HeedfulError, match=named):
        CALLS[named]()
    assert {*folder.rglob("*")} == before


def test_precision_is_an_option_of_loading(folder: Path) -> None:
    translator = heedful.Translator.load("runs/demo")
    with pytest.raises(heedful.InputError, match="precision"):
        heedful.translate_file(translator, "test.en", "out", precision="bf16")
    with pytest.raises(heedful.InputError, match="precision"):
        heedful.evaluate(translator, src="test.en", ref="test.de", precision="bf16")
    report = heedful.evaluate("runs/demo", src="test.en", ref="test.de", metric="exact", precision="bf16")
    assert report.scores["exact"] == 100.0


@pytest.mark.skipif(native().level is None, reason="the native engine copies weights, torch does not")
def test_a_translator_does_not_compute_with_weights_of_before(folder: Path) -> None:
    stored = heedful.load_bundle("runs/demo")
    in_memory = replace(stored, network=heedful.load_model("runs/demo"))
    for bundle in (stored, in_memory):
        translator = heedful.Translator(bundle)
        assert bundle.model.num_parameters > 0  # which builds it
        assert translator.translate(SOURCES) == TARGETS
        weights = bundle.model.state_dict()
        bundle.model.load_state_dict({name: -weight for name, weight in weights.items()})
        for call in (lambda each: each.translate(SOURCES), lambda each: each.score(SOURCES, TARGETS)):
            with pytest.raises(heedful.InputError, match="changed"):
                call(translator)
        assert heedful.Translator(bundle).translate(SOURCES) != TARGETS


def test_what_people_print_says_what_it_is(tmp_path: Path) -> None:
    translator = heedful.Translator(save_memorised(tmp_path / "model", SHOWN_PAIRS))
    [translation] = translator.translations(SOURCES[:1])
    maps = heedful.attention_of(translator, SOURCES[0])
    shown = [repr(each) for each in (translator, translation, translation.hypotheses[0], maps)]
    assert [str(tmp_path / "model") in shown[0], *(TARGETS[0] in each for each in shown[1:])] == [True] * 4
    assert f"{translator.bundle.model.num_parameters:,}" in repr(translator.bundle.model).splitlines()[1]
    assert f"{translator.bundle.model.num_parameters:,}" in repr(translator.bundle)
    assert max(map(len, shown)) < 300


def test_scores_are_those_of_sacrebleu(folder: Path) -> None:
    outputs, references = ["Das Haus ist nicht klein .", *TARGETS], ["Das Haus ist sehr klein .", *TARGETS]
    expected = BLEU().corpus_score(outputs, [references])
    assert heedful.evaluate(outputs, ref=references).scores["bleu"] == expected.score
    chinese, reference = ["这座房子不是很大"], ["这座房子很大很新"]
    expected = BLEU(tokenize="zh").corpus_score(chinese, [reference])
    assert heedful.evaluate(chinese, ref=reference, tgt_lang="zh").scores["bleu"] == expected.score
    report = heedful.evaluate(
        "runs/demo", src="test.en", ref=Path("test.de"), metric="exact,ter", beam_size=1
    )
    assert report.scores == {"exact": 100.0, "ter": 0.0}
    with pytest.raises(heedful.InputError, match="src"):
        heedful.evaluate("runs/demo", ref="test.de")


def test_an_imported_model_translates_as_the_exported_one(folder: Path) -> None:
    exported = heedful.export_model("runs/demo", to="ctranslate2", output="en-de-ct2")
    translator = heedful.Translator(heedful.import_model(exported, output="back", layout="ctranslate2"))
    assert translator.translate(SOURCES) == TARGETS


SMALL = {
    "d_model": 8, "num_heads": 2, "d_ff": 8, "vocab_size": 200, "max_steps": 2, "processes": 1, "threads": 1,
    "decode_sentences": 2, "cache_dir": "cache",
}  # fmt: skip


def test_a_run_has_the_settings_that_it_was_given(folder: Path) -> None:
    events: list[object] = []
    run = heedful.train(
        src="train.en", tgt=Path("train.de"), preset="tiny", output="runs/new", callbacks=[events.append],
        settings={"model.dropout": np.float64(0.25)}, **(SMALL | {"max_steps": np.int64(2)}),
    )  # fmt: skip
    config = heedful.load_config("runs/new/config.toml")
    assert (config.data.src, config.data.tgt, config.model.dropout) == ("train.en", "train.de", 0.25)
    assert (config.model.d_model, config.train.max_steps, config.optimizer.name) == (8, 2, "muon")
    assert (run.end.step, run.end) == (2, events[-1])
    assert len(heedful.Translator.load(run.best).translate(read_lines("train.en"), beam_size=1)) == 10
    assert "--set train.max_steps=2" in (run.best / "README.md").read_text(encoding="utf-8")
    assert heedful.train(output="runs/new", resume=True, max_steps=3).end.step == 3
    assert heedful.train(config.replace(data=config.data.model_dump()), "runs/other").end.step == 2


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"max_step": 3}, "max_steps"),
        ({"dropout": 0.1}, r"model\.dropout.*lora\.dropout"),
        ({"settings": {"model.nhead": 3}}, r"model\.nhead"),
        ({"config": heedful.Config(), "max_steps": 3}, "Config"),
    ],
)
def test_settings_of_a_training_that_cannot_be_are_named(keys: dict[str, object], named: str) -> None:
    with pytest.raises(heedful.ConfigError, match=named):
        heedful.train(src="train.en", tgt="train.de", **keys)  # type: ignore[arg-type]
