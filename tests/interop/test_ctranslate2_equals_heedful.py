"""Models of every option give the same numbers and outputs in CTranslate2, from the files alone."""

from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from ctranslate2_models import (
    EOS,
    MAX_LENGTH,
    engine,
    log_probs,
    random_bundle,
    search,
    sentences,
    source_tokens,
    target_tokens,
)
from option_models import OPTIONS, SRC_VOCAB, TGT_PAD, TGT_VOCAB
from tolerances import FLOAT32, assert_apart, assert_close

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Hypothesis
from heedful.decoding.translator import Translator
from heedful.interop.ctranslate2.export import export_ctranslate2
from heedful.interop.ctranslate2.reading import read_ctranslate2
from heedful.interop.huggingface.pretrained import ImportOptions
from heedful.storage.bundle import Bundle

MORE: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "learned": {"positions": "learned", "max_positions": 150},
    "gelu": {"activation": "gelu"},
    "swish": {"activation": "swish"},
    "norms": {"embedding_norm": True, "final_norm": True, "layer_norm_eps": 1e-2},
    "encoder-norm": {"embedding_norm": "encoder", "positions": "learned", "max_positions": 150},
    "no-scale": {"scale_embeddings": False},
    "output-bias": {"output_bias": True},
    "no-biases": {"attention_bias": False, "feed_forward_bias": False},
    "untied": {"tied": "none", "num_encoder_layers": 1, "num_decoder_layers": 3},
    "all-tied": {"tied": "all", "src_vocab_size": TGT_VOCAB, "src_pad_id": TGT_PAD},
    "one-embedding": {"tied": "embeddings", "src_vocab_size": TGT_VOCAB, "src_pad_id": TGT_PAD},
    "alibi-six-heads": {"positions": "alibi", "num_heads": 6, "d_k": 4, "d_v": 4},
    "rotary-wide-values": {"positions": "rotary", "d_k": 4, "d_v": 7},
    "relative-far": {"positions": "relative"},
}
EVERY = OPTIONS | MORE


@pytest.mark.parametrize("changes", EVERY.values(), ids=EVERY)
def test_scores_are_equal(changes: dict[str, Any], tmp_path: Path) -> None:
    bundle = random_bundle(**changes)
    src = sentences(5, SRC_VOCAB, (7, 1, 130, 3, 12), seed=1)
    tgt = sentences(5, TGT_VOCAB, (5, 9, 110, 2, 1), seed=2)
    scored = engine(bundle, tmp_path / "model").score_batch(
        source_tokens(bundle, src), target_tokens(bundle, tgt)
    )
    for s, t, theirs in zip(src, tgt, scored, strict=True):
        ours = log_probs(bundle.model, s, t)
        assert_close(torch.tensor(theirs.log_probs), ours, FLOAT32.MODEL)


def assert_searches_are_equal(bundle: Bundle, directory: Path, beam_size: int, alpha: float) -> None:
    sources = sentences(20, SRC_VOCAB, (1, 4, 7, 11), seed=3)
    theirs = engine(bundle, directory).translate_batch(
        source_tokens(bundle, sources),
        beam_size=beam_size,
        length_penalty=alpha,
        max_decoding_length=MAX_LENGTH,
        min_decoding_length=0,
        return_scores=True,
        return_end_token=True,  # so that lengths count it
    )
    ours = search(bundle.model, sources, beam_size, alpha)
    outputs = [[*found.ids, *[EOS] * found.finished] for found in ours]
    assert [result.hypotheses[0] for result in theirs] == target_tokens(bundle, outputs)
    scores = torch.tensor([result.scores[0] for result in theirs])
    assert_close(scores, torch.tensor([found.score for found in ours]), FLOAT32.SENTENCE)


@pytest.mark.parametrize("changes", EVERY.values(), ids=EVERY)
def test_beams_of_five_are_equal(changes: dict[str, Any], tmp_path: Path) -> None:
    assert_searches_are_equal(random_bundle(**changes), tmp_path / "model", beam_size=5, alpha=1.0)


@pytest.mark.parametrize(("beam_size", "alpha"), [(1, 0.0), (4, 0.0), (3, 0.6)])
@pytest.mark.parametrize("name", ["paper", "relative", "llama"])
def test_searches_are_equal(name: str, beam_size: int, alpha: float, tmp_path: Path) -> None:
    assert_searches_are_equal(random_bundle(**EVERY[name]), tmp_path / "model", beam_size, alpha)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", ["paper", "t5", "llama"])
def test_a_swapped_tensor_is_noticed(name: str, tmp_path: Path) -> None:
    bundle = random_bundle(**EVERY[name], num_encoder_layers=1, num_decoder_layers=1)
    src, tgt = sentences(1, SRC_VOCAB, (9,), seed=1), sentences(1, TGT_VOCAB, (8,), seed=2)
    ours = log_probs(bundle.model, src[0], tgt[0])
    parameters = list(bundle.model.named_parameters())
    for i, (one, a) in enumerate(parameters):
        for other, b in parameters[i + 1 :]:
            if a.shape != b.shape:
                continue
            a.data, b.data = b.data, a.data
            translator = engine(bundle, tmp_path / f"{one}-{other}")
            a.data, b.data = b.data, a.data
            scored = translator.score_batch(source_tokens(bundle, src), target_tokens(bundle, tgt))[0]
            assert_apart(scored.log_probs, ours, FLOAT32.MODEL, note=(one, other))
            break


OPTIONS = SearchOptions(
    length_penalty=0.0, length_normalization="power", suppressed_ids=(), max_length=MAX_LENGTH
)
SOURCES = sentences(20, SRC_VOCAB, (1, 4, 7, 11), seed=3)
PREFIXES = sentences(20, TGT_VOCAB, (0, 2, 3, 1, 5), seed=8)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return random_bundle()


@pytest.fixture(scope="module")
def theirs(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> ctranslate2.Translator:
    return engine(bundle, tmp_path_factory.mktemp("ct2") / "model")


def found_there(theirs: ctranslate2.Translator, bundle: Bundle, **settings: Any) -> list[list[list[str]]]:  # noqa: ANN401
    results = theirs.translate_batch(
        source_tokens(bundle, SOURCES), target_prefix=target_tokens(bundle, PREFIXES), length_penalty=0,
        max_decoding_length=MAX_LENGTH, return_end_token=True, **{"min_decoding_length": 0, **settings},
    )  # fmt: skip
    return [result.hypotheses for result in results]


def tokens_of(bundle: Bundle, found: list[list[Hypothesis]]) -> list[list[list[str]]]:
    return [target_tokens(bundle, [[*each.ids, *[EOS] * each.finished] for each in one]) for one in found]


def found_here(bundle: Bundle, options: SearchOptions) -> list[list[list[str]]]:
    framed = [[*ids, EOS] for ids in SOURCES]
    found = Translator(bundle, engine="torch").search_ids(framed, options=options, prefixes=PREFIXES)
    return tokens_of(bundle, found)


def test_greedy_outputs_go_on_alike_after_prefixes_of_any_length(
    bundle: Bundle, theirs: ctranslate2.Translator
) -> None:
    options = SearchOptions(**vars(OPTIONS) | {"strategy": BeamSearch(beam_size=1)})
    assert found_here(bundle, options) == found_there(theirs, bundle, beam_size=1)


def test_a_norm_of_the_encoders_input_alone_comes_back(tmp_path: Path) -> None:
    export_ctranslate2(random_bundle(**EVERY["encoder-norm"]), tmp_path / "model")
    again = read_ctranslate2(tmp_path / "model", ImportOptions(settings={}))
    assert again.config.model.embedding_norm == "encoder"
