"""`--engine ctranslate2` finds and scores what heedful does, and refuses by name what it cannot."""

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from command_line import Outcome, heedful
from ctranslate2_models import EOS, random_bundle, sentences
from option_models import SRC_VOCAB, TGT_VOCAB
from tiny_bundle import PAIRS, memorised, save_memorised

from heedful.decoding.beam import BeamSearch
from heedful.decoding.diverse_beam import DiverseBeamSearch
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.sampling import Sampling, probable
from heedful.decoding.translator import Translator
from heedful.errors import InputError, InteropError, MissingExtraError, install_hint
from heedful.interop.ctranslate2.engine import CTranslate2Engine, cached_export
from heedful.interop.ctranslate2.export import NUM_POSITIONS
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle

SOURCES = [[*ids, EOS] for ids in sentences(20, SRC_VOCAB, (1, 4, 7, 11), seed=3)] + [[]]
PREFIXES = [*sentences(20, TGT_VOCAB, (0, 2, 3, 1, 5), seed=8), []]
FIRST = SearchOptions(
    n_best=2,
    length_penalty=0.6,
    length_normalization="average",
    strategy=BeamSearch(early_stopping="first"),
    renormalize=True,
    min_length=7,
    max_length=20,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "heedful"


def assert_equal(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[(h.ids, h.finished) for h in each] for each in found] == [
        [(h.ids, h.finished) for h in each] for each in expected
    ]
    pairs = [pair for both in zip(found, expected, strict=True) for pair in zip(*both, strict=True)]
    for mine, theirs in pairs:
        assert len(mine.token_log_probs) == len(theirs.token_log_probs)
        assert mine.score == pytest.approx(theirs.score, abs=1e-4)
        assert mine.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)


def by_ctranslate2(bundle: Bundle, **settings: Any) -> Translator:  # noqa: ANN401
    return Translator(bundle, engine=CTranslate2Engine(), **settings)


@pytest.mark.parametrize(
    "changes",
    [
        {
            "strategy": BeamSearch(beam_size=1),
            "n_best": 1,
            "renormalize": False,
            "length_normalization": "gnmt",
        },
        {"strategy": BeamSearch(beam_size=1), "n_best": 1, "renormalize": False, "no_repeat_ngram_size": 2},
        {},
        {"length_penalty": 1.0, "n_best": 4},
        {
            "length_penalty": 0.0,
            "n_best": 1,
            "strategy": BeamSearch(early_stopping="optimal"),
            "min_length": 0,
        },
        {"length_penalty": 0.0, "length_normalization": "gnmt", "min_length": 0},
        {"renormalize": False, "min_length": 0, "suppressed_ids": ()},
        {"suppressed_ids": (5, 6, 9)},
        {"no_repeat_ngram_size": 2},
        {"max_length_offset": 0, "min_length": 0},  # each length has its own limit
        {"max_length_offset": 1, "min_length": 0, "forced_last_id": EOS},
        {"forced_first_id": 7},
        {"max_length": 4},  # less than the least, which it ends
    ],
    ids=str,
)
def test_outputs_and_scores_are_those_of_heedfuls_own_search(changes: dict[str, Any]) -> None:
    bundle, options = random_bundle(), replace(FIRST, **changes)
    found = by_ctranslate2(bundle, batch_size=3).search_ids(SOURCES, options=options)
    assert_equal(found, Translator(bundle).search_ids(SOURCES, options=options))


@pytest.mark.parametrize(
    "changes",
    [{"strategy": BeamSearch(beam_size=1), "n_best": 1}, {}, {"n_best": 1, "forced_first_id": 7}],
    ids=str,
)
@pytest.mark.parametrize("renormalize", [False, True])
def test_outputs_begin_with_their_prefixes(changes: dict[str, Any], renormalize: bool) -> None:
    """There, no output ends right after its prefix; here, a minimal length sees to it, or a small bias."""
    bundle = random_bundle(output_bias=True)
    with torch.no_grad():
        bundle.model.output.bias[EOS] -= 4
    minimum = {"min_length": 9} if renormalize else {"min_length": 0, "suppressed_ids": ()}
    options = replace(FIRST, renormalize=renormalize, **minimum, **changes)
    found = by_ctranslate2(bundle).search_ids(SOURCES, options=options, prefixes=PREFIXES)
    expected = Translator(bundle).search_ids(SOURCES, options=options, prefixes=PREFIXES)
    assert_equal(found, expected)


def test_forced_and_given_log_probabilities_are_told_apart() -> None:
    bundle, options = random_bundle(), replace(FIRST, forced_first_id=7, renormalize=False)
    mine, theirs = (
        kind(bundle).search_ids(
            SOURCES[:1],
            options=replace(options, strategy=BeamSearch(beam_size=1), n_best=1),
            prefixes=[[8, 9]],
        )[0][0]
        for kind in (by_ctranslate2, Translator)
    )
    assert mine.ids[:3] == (7, 8, 9)
    assert mine.token_log_probs[0] == 0.0
    assert mine.token_log_probs == pytest.approx(theirs.token_log_probs, abs=1e-4)


def test_a_trained_model_translates_line_by_line_as_with_heedful() -> None:
    lines = [*(source for source, _ in PAIRS), "", "  ", "the dog sees ☃ ."]
    for beam_size in (1, 4):
        options = SearchOptions(
            strategy=BeamSearch(beam_size=beam_size, early_stopping="first"),
            length_normalization="average",
            n_best=beam_size,
        )
        mine, theirs = (
            list(kind(memorised()).translate_lines(lines, options=options, chunk_lines=4))
            for kind in (by_ctranslate2, Translator)
        )
        assert [each.text for each in mine] == [each.text for each in theirs]
        assert [each.text for each in mine[: len(PAIRS)]] == [target for _, target in PAIRS]
        assert [each.score for each in mine] == pytest.approx([each.score for each in theirs], abs=1e-4)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(top_k=10**6),
        Sampling(top_k=3),
        Sampling(top_p=0.6),
        Sampling(temperature=0.5, top_k=4, top_p=0.8),
    ],
    ids=str,
)
def test_tokens_are_drawn_by_the_same_probabilities(sampling: Sampling) -> None:
    bundle, source, count = random_bundle(), SOURCES[1], 2000
    options = SearchOptions(n_best=count, max_length=1, strategy=sampling, suppressed_ids=())
    drawn = by_ctranslate2(bundle).search_ids([source], options=options)[0]
    tokens = torch.tensor([(*each.ids, *[EOS] * each.finished)[0] for each in drawn])
    with torch.no_grad():
        log_probs = bundle.model(torch.tensor([source]), torch.tensor([[2]]))[:, 0].log_softmax(-1)
    expected = probable(log_probs, sampling)[0].softmax(-1)
    shares = torch.bincount(tokens, minlength=TGT_VOCAB) / count
    assert not shares[expected == 0].any()
    assert ((shares - expected).abs() <= 5 * (expected / count).sqrt() + 1e-9).all()
    assert [each.log_prob for each in drawn] == pytest.approx(log_probs[0, tokens].tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"length_normalization": "gnmt"}, "length_normalization='gnmt' (use 'average')"),
        ({"strategy": BeamSearch(early_stopping="optimal")}, "early_stopping='optimal' (use 'first')"),
        (
            {"strategy": BeamSearch(early_stopping="estimate"), "length_penalty": 0.0},
            "early_stopping='estimate' (use 'first')",
        ),
        ({"strategy": DiverseBeamSearch(num_groups=2, early_stopping="first")}, "num_groups=2"),
        ({"forced_last_id": 5}, "forced_last_id=5"),
        ({"prefix_bias": 0.5}, "prefix_bias=0.5"),
        ({"coverage_penalty": 0.2}, "coverage_penalty=0.2"),
        ({"strategy": Sampling(min_p=0.1)}, "min_p=0.1"),
        ({"strategy": Sampling(epsilon=0.1, seed=3)}, "epsilon=0.1, seed=3"),
    ],
)
def test_an_option_that_ctranslate2_lacks_is_refused_by_name(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(InputError) as refused:
        by_ctranslate2(memorised()).translate(["the cat"], options=replace(FIRST, **changes))
    assert str(refused.value) == f"engine='ctranslate2' cannot search with {names}; engine='auto' can"


def test_what_is_no_option_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot search with an ensemble"):
        by_ctranslate2(memorised(), ensemble=[memorised()])
    for precision, kind in (("bf16", "bfloat16"), ("fp16", "float16")):
        if kind not in ctranslate2.get_supported_compute_types("cpu"):
            refused = rf"precision='{precision}': CTranslate2 supports float32, int8.* on this CPU"
            with pytest.raises(InputError, match=refused):
                by_ctranslate2(memorised(), precision=precision)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=rf"line 1: .* positions end at {NUM_POSITIONS:,}; split the line"):
        by_ctranslate2(memorised()).score(["the cat " * NUM_POSITIONS], ["die Katze"])
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("interop"))):
        by_ctranslate2(memorised())


def test_a_model_is_exported_once_for_each_precision_and_content(cache: Path) -> None:
    first = cached_export(memorised(), "float32")
    stamp = (first / "model.bin").stat().st_mtime_ns
    assert cached_export(replace(memorised(), scores={}), "float32") == first
    assert (first / "model.bin").stat().st_mtime_ns == stamp
    small = by_ctranslate2(memorised(), precision="int8")
    assert small.translate([PAIRS[0][0]], options=replace(FIRST, min_length=0)) == [PAIRS[0][1]]
    other = cached_export(_changed(random_bundle()), "float32")
    assert {
        first,
        cached_export(memorised(), "int8"),
        other,
        cached_export(random_bundle(), "float32"),
    } == set(cache.iterdir())
    assert len(list(cache.iterdir())) == 4


def _changed(bundle: Bundle) -> Bundle:
    with torch.no_grad():
        bundle.model.output.weight[3, 5] += 1e-3
    return bundle


def test_the_four_models_that_were_in_use_last_are_kept(cache: Path) -> None:
    bundle, other, lines = random_bundle(), random_bundle(), ["r7 r9", "r5"]
    first, second = by_ctranslate2(bundle), by_ctranslate2(bundle, precision="int8")
    wanted = [each.translate(lines, options=FIRST) for each in (first, second)]
    again, gone = cached_export(bundle, "float32"), cached_export(bundle, "int8")
    (cache / "ctranslate2-0.killed").mkdir()  # of a process that did not come to its end
    os.utime(cache / "ctranslate2-0.killed", (0, 0))
    (cache / "engine-0.so").write_bytes(b"")
    others = [cached_export(_changed(other), "float32") for _ in range(2)]
    assert {*cache.iterdir()} == {again, gone, *others, cache / "engine-0.so"}
    assert cached_export(bundle, "float32") == again  # which is now the last in use
    others.append(cached_export(_changed(other), "float32"))
    assert {*cache.iterdir()} == {again, *others, cache / "engine-0.so"}
    # Whoever has loaded a model goes on, and whoever loads it afterwards makes it anew.
    assert second.translate(lines, options=FIRST) == wanted[1]
    assert not gone.exists()
    assert cached_export(bundle, "int8") == gone
    assert gone.is_dir()
    assert [each.translate(lines, options=FIRST) for each in (first, second)] == wanted


def test_translators_that_export_at_the_same_time_share_one_directory(cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cached_export(memorised(), "float32"), range(4)))
    assert list(cache.iterdir()) == [found[0]]
    assert len(set(found)) == 1


def test_a_damaged_directory_is_named() -> None:
    translator = by_ctranslate2(memorised())
    (cached_export(memorised(), "float32") / "model.bin").write_bytes(b"")
    with pytest.raises(InteropError, match=r"ctranslate2-\w+: CTranslate2 cannot load it .*; delete it"):
        translator.translate(["the cat"], options=FIRST)


def test_languages_choose_another_export_where_the_frame_differs() -> None:
    bundle = memorised()
    plain = cached_export(bundle, "float32")
    started = Config(model=bundle.config.model.replace(decoder_start_id=5), tokenizer=bundle.config.tokenizer)
    assert cached_export(replace(bundle, config=started), "float32") != plain


def test_the_command_translates_with_ctranslate2(tmp_path: Path) -> None:
    run = save_memorised(tmp_path / "run")
    stdin = "".join(f"{source}\n" for source, _ in PAIRS).encode()
    settings = ["--length-normalization", "average", "--early-stopping", "first"]
    translated = heedful("translate", run, "--engine", "ctranslate2", *settings, stdin=stdin)
    assert translated == Outcome(0, "".join(f"{target}\n" for _, target in PAIRS), "")
    samples = heedful("translate", run, "--engine", "ctranslate2", "--mbr", "3", "--top-k", "1", stdin=stdin)
    assert samples.out == translated.out
    refused = heedful("translate", run, "--engine", "ctranslate2", stdin=stdin)
    assert refused.code == 1
    assert refused.out == ""
    assert refused.err == (
        "error: engine='ctranslate2' cannot search with length_normalization='gnmt' (use 'average'), "
        "early_stopping='optimal' (use 'first'); engine='auto' can\n"
    )
