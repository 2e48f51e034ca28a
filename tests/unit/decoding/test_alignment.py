"""Word alignments: of a model whose attention is known, and by a naive reading of the attention maps."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from machine_class import need_native
from tagged_bundle import nllb_like
from tiny_bundle import PAIRS, memorised

from heedful.analysis.attention_maps import attention_maps
from heedful.cli.streams import warnings_on_stderr
from heedful.decoding.alignment import (
    BY_ATTENTION,
    Alignment,
    AlignmentMethod,
    align_words,
    relative_weights,
    split_words,
    token_ends,
    words_of_ends,
)
from heedful.decoding.backends.choice import EngineChoice
from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, TokenizerConfig
from heedful.storage.bundle import Bundle
from heedful.text import SpecialTokens, train_tokenizers

pytestmark = pytest.mark.by_class

# The i-th word of one is a translation of the i-th of the other.
ENGLISH = ["the", "dog", "small", "house", "reads", "writes", "today", "never", "old", "tree"]
GERMAN = ["der", "Hund", "kleine", "Haus", "liest", "schreibt", "heute", "nie", "alte", "Baum"]
BOTH_STEPS = (AlignmentMethod(), AlignmentMethod(shift=True))


def align(
    bundle: Bundle,
    pairs: Sequence[tuple[str, str]],
    *,
    method: AlignmentMethod = BY_ATTENTION,
    batch_tokens: int | None = None,
    engine: EngineChoice = "auto",
    first_line: int = 1,
) -> list[Alignment]:
    translator = Translator(bundle, batch_tokens=batch_tokens, engine=engine)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    return translator.align(sources, targets, method=method, first_line=first_line)


@pytest.fixture(scope="module")
def dictionary() -> Bundle:
    """A model whose cross-attention is a dictionary: a word's translation has the same vector as the word."""
    settings = TokenizerConfig(vocab_size=60, kind="word", joint=False)
    tokenizers = train_tokenizers([" ".join(ENGLISH)], [" ".join(GERMAN)], settings, seed=1)
    src, tgt = tokenizers.src, tokenizers.tgt
    sizes = ModelConfig.model_validate(
        {
            "d_model": 64, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1,
            "positions": "rotary", "tied": "none", "dropout": 0.0,
            "src_vocab_size": src.vocab_size, "tgt_vocab_size": tgt.vocab_size,
        }
    )  # fmt: skip
    torch.manual_seed(1)
    model = Transformer.from_config(sizes).eval()
    vectors = torch.randn(tgt.vocab_size, 64)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        model.decoder.embedding.tokens.weight.copy_(vectors)
        for english, german in zip(ENGLISH, GERMAN, strict=True):
            [src_id], [tgt_id] = src.encode(english), tgt.encode(german)
            model.encoder.embedding.tokens.weight[src_id] = vectors[tgt_id]
        attention = model.decoder.layers[0].get_submodule("cross_attention")
        for name in ("query", "key"):
            attention.get_submodule(name).weight.copy_(math.sqrt(3.0) * torch.eye(64))
    return Bundle(Config(model=sizes, tokenizer=settings), tokenizers, model)


def shuffled(length: int, seed: int) -> tuple[str, str, list[tuple[int, int]]]:
    """A sentence of different words, the same in other words and another order, and which is which."""
    random = np.random.default_rng(seed)
    words, order = random.permutation(len(ENGLISH))[:length], random.permutation(length)
    source, target = [ENGLISH[i] for i in words], [GERMAN[words[i]] for i in order]
    return " ".join(source), " ".join(target), [(int(i), k) for k, i in enumerate(order)]


def test_the_words_of_a_model_that_is_a_dictionary_are_aligned_as_it_says(dictionary: Bundle) -> None:
    sentences = [shuffled(length, seed) for length in (1, 2, 5, 8, 10) for seed in range(4)]
    pairs = [(source, target) for source, target, _ in sentences]
    found = align(dictionary, pairs, method=AlignmentMethod(shift=True), batch_tokens=40)
    assert [list(each.links) for each in found] == [links for _, _, links in sentences]
    # One step earlier the decoder's input is the word before.
    for (_, _, links), earlier in zip(sentences, align(dictionary, pairs), strict=True):
        assert list(earlier.links)[1:] == [(src, tgt + 1) for src, tgt in links[:-1]]


def naive(bundle: Bundle, source: str, target: str, layer: int, shift: int) -> list[set[tuple[int, int]]]:
    """Return the link of each target token, as words; several where rounding decides."""

    def word_numbers(tokens: Sequence[str]) -> list[int]:
        return (np.cumsum([token.startswith("▁") for token in tokens]) - 1).tolist()

    special_tokens, tgt = SpecialTokens.of(bundle.config, bundle.tokenizers), bundle.tokenizers.tgt
    ids = tgt.encode(target)
    maps = attention_maps(bundle, source, [*special_tokens.tgt_prefix, *ids])
    first, last = len(special_tokens.src_prefix), len(maps.source_tokens) - len(special_tokens.src_suffix)
    src_words, tgt_words = word_numbers(maps.source_tokens[first:last]), word_numbers(tgt.tokens(ids))
    weights = maps.of("cross")[layer - 1].weights.mean(axis=0)
    relative = (weights / weights.sum(axis=0))[len(special_tokens.tgt_prefix) + shift :, first:last]
    return [
        {(src_words[i], word) for i in np.flatnonzero(relative[k] > relative[k].max() - 1e-5)}
        for k, word in enumerate(tgt_words)
    ]


@pytest.mark.representatives(8)
@pytest.mark.parametrize(
    "method", [*BOTH_STEPS, AlignmentMethod(layer=2), AlignmentMethod(layer=2, shift=True)]
)
@pytest.mark.parametrize("bundle", [memorised, nllb_like])
@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_batch_is_aligned_as_the_attention_maps_of_each_pair_say(
    engine: EngineChoice, bundle: type[Bundle], method: AlignmentMethod
) -> None:
    model = bundle()
    if engine == "native":
        need_native()
    pairs = [*PAIRS, ("the dog .", "der Hund sieht die Katze . der Hund schläft ."), PAIRS[0][::-1]]
    for batch_tokens in (1, 40, 4096):
        found = align(model, pairs, method=method, batch_tokens=batch_tokens, engine=engine)
        for (source, target), alignment in zip(pairs, found, strict=True):
            of_tokens = naive(model, source, target, method.layer or 1, method.shift)
            assert set(alignment.links) <= set().union(*of_tokens)
            assert all(links & set(alignment.links) for links in of_tokens)
            assert sum(map(len, of_tokens)) < len(of_tokens) + 3  # nearly all are beyond rounding
            assert {tgt for _, tgt in alignment.links} == set(range(len(target.split())))


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("heads", [1, 3, 4])
def test_the_attention_of_trained_heads_is_read_by_both_engines(layer: int, heads: int) -> None:
    plain = memorised()
    settings = plain.config.model.replace(alignment_layer=layer, alignment_heads=heads)
    model = Transformer.from_config(settings).eval()
    model.load_state_dict(plain.model.state_dict())
    bundle = replace(plain, config=plain.config.replace(model=settings), network=model)
    [source], [target] = (
        plain.tokenizers.src.encode_batch(PAIRS[0][:1]),
        plain.tokenizers.tgt.encode_batch(PAIRS[0][1:]),
    )
    for engine in ("torch", "native"):
        if engine == "native":
            need_native()
        backend = Translator(bundle, engine=engine).generator.backend
        start = plain.tokenizers.tgt.bos_id
        expected = backend.head_weights(source, [start, *target[:-1]]).cross[layer - 1][:heads].mean(axis=0)
        # A longer source in the batch pads it.
        found, _ = backend.attention([source, [*source, *source]], [target, target], start_id=start)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        [of_layer] = backend.attention([source], [target], start_id=start, layer=layer)
        whole = backend.head_weights(source, [start, *target[:-1]]).cross[layer - 1].mean(axis=0)
        np.testing.assert_allclose(of_layer, whole, atol=1e-6)


def test_a_target_token_is_left_out_whose_trained_head_is_not_sure() -> None:
    weights = np.array([[0.9, 0.1], [0.1, 0.15], [0.3, 0.7]])
    relative = relative_weights(weights, least=0.2)
    np.testing.assert_allclose(relative[[0, 2]], (weights / weights.sum(axis=0))[[0, 2]])
    assert not relative[1].any()
    assert str(align_words(relative, [[0], [1]], [[0], [1], [2]])) == "0-0 1-2"
    assert str(align_words(relative_weights(weights), [[0], [1]], [[0], [1], [2]])) == "0-0 1-1 1-2"


def test_words_are_aligned_where_any_of_their_tokens_are() -> None:
    weights = np.array([[0.6, 0.1, 0.3], [0.1, 0.5, 0.4], [0.2, 0.1, 0.7]], dtype=np.float32)
    # The source is one word of two tokens and one of one, the target the reverse.
    assert str(align_words(weights, [[0], [0], [1]], [[0], [1], [1]])) == "0-0 0-1 1-1"
    # What is no part of a word counts for nothing.
    assert str(align_words(weights, [[0], [1], []], [[0], [], [1]])) == "0-0 0-1"
    # A token of several words aligns them all.
    assert str(align_words(weights[:1], [[0, 1], [], []], [[0]])) == "0-0 1-0"
    assert str(align_words(weights[:1], [[], [], []], [[0]])) == ""


def test_empty_texts_have_no_links_and_change_no_others() -> None:
    bundle = memorised()
    pairs = [("", ""), PAIRS[0], ("", "die Katze"), ("the cat", " "), PAIRS[2]]
    found = align(bundle, pairs)
    assert [bool(each.links) for each in found] == [False, True, False, False, True]
    assert [found[1], found[4]] == align(bundle, [PAIRS[0], PAIRS[2]])
    assert align(bundle, []) == []
    assert str(Alignment(())) == ""


def test_the_layer_is_the_last_but_one_where_there_are_two() -> None:
    bundle = memorised()
    assert align(bundle, PAIRS) == align(bundle, PAIRS, method=AlignmentMethod(layer=1))
    assert align(bundle, PAIRS) != align(bundle, PAIRS, method=AlignmentMethod(layer=2))
    for layer in (0, 3):
        with pytest.raises(InputError, match=f"layer {layer} "):
            align(bundle, PAIRS, method=AlignmentMethod(layer=layer))


@pytest.mark.parametrize(
    ("side", "too_long"),
    [("source", ("the dog . " * 9, "der Hund .")), ("target", ("the dog .", "der Hund . " * 9))],
)
def test_a_line_that_is_longer_than_learned_positions_has_no_links_and_is_named(
    side: str, too_long: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = nllb_like(positions="learned", max_positions=20)
    pair = ("the dog .", "der Hund .")
    [alone] = align(bundle, [pair])
    assert alone.links
    with warnings_on_stderr():
        assert align(bundle, [pair, too_long, pair], first_line=1001) == [alone, Alignment(()), alone]
    [message] = capsys.readouterr().err.splitlines()
    assert f" {side} line 1,002: " in message
    assert "max_positions=20" in message
    translator = Translator(bundle)
    first, other, last = translator.score(*zip(pair, too_long, pair, strict=True))
    assert first == last
    assert math.isnan(other.score)
    assert math.isnan(other.log_prob)
    assert math.isnan(other.model_log_prob)
    assert (other.text, other.token_log_probs) == (too_long[1], ())


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_translations_are_aligned_as_their_texts_are(engine: EngineChoice) -> None:
    if engine == "native":
        need_native()
    translator = Translator(memorised(), engine=engine)
    sources = [source for source, _ in PAIRS]
    options = SearchOptions(n_best=3)
    for each in translator.translations([*sources, " "], options=options, aligned=True):
        texts = [hypothesis.text for hypothesis in each.hypotheses]
        expected = translator.align([each.source] * len(texts), texts)
        assert [hypothesis.alignment for hypothesis in each.hypotheses] == expected
        assert all(alignment.links for alignment in expected)
    assert translator.translations(sources[:1])[0].hypotheses[0].alignment is None


def test_the_words_of_segments_are_numbered_through_the_line() -> None:
    translator = Translator(memorised())
    (first, _), (second, _) = PAIRS[0], PAIRS[1]
    length = max(len(translator.bundle.tokenizers.src.encode(each)) for each in (first, second))
    options = SearchOptions(max_source_tokens=length + 1)
    one, other = translator.translations([first, second], aligned=True)
    [joined] = translator.translations([f"{first} {second}"], options=options, aligned=True)
    links = [each.hypotheses[0].alignment for each in (one, other)]
    assert joined.text == f"{one.text} {other.text}"
    moved = links[1].moved(len(first.split()), len(one.text.split()))
    assert joined.hypotheses[0].alignment == Alignment(links[0].links + moved.links)


def test_outputs_in_other_tokens_than_their_texts_are_aligned_by_what_each_token_adds() -> None:
    text = "die Katze schläft ."
    parts = ["d", "ie", " Ka", "t", "ze", " schl", "äft", " ", "."]

    def decode(ids: Sequence[int]) -> str:
        return "".join(parts[each] for each in ids).rstrip()

    ends = token_ends(text, range(len(parts)), decode)
    assert ends == [1, 3, 6, 7, 9, 14, 17, 17, 19]
    assert words_of_ends(text, ends) == [[0], [0], [1], [1], [1], [2], [2], [], [3]]


NBSP, NARROW, WIDE = "\u00a0", "\u202f", "\u3000"
SPACED = [  # source and target, and how many words they have for fast_align, eflomal and Marian
    (f"the{NBSP}dog sees the cat .", f"der Hund sieht{NARROW}die Katze{WIDE}.", 5, 4),
    ("the\tdog sees  the cat .", " der Hund\tsieht die Katze . ", 6, 6),
    (f"the dog {WIDE} sees the cat\u2003.", "der Hund\u2028sieht die Katze \u1680 .", 6, 6),
    ("the dog\x1fsees\x85the cat .", "der Hund\u205fsieht die Katze .", 4, 5),
]


@pytest.mark.parametrize(("source", "target", "num_src", "num_tgt"), SPACED)
def test_words_are_separated_by_ascii_white_space_alone(
    source: str, target: str, num_src: int, num_tgt: int
) -> None:
    # bytes are split as C does it
    assert split_words(source) == [each.decode() for each in source.encode().split()]
    assert (len(split_words(source)), len(split_words(target))) == (num_src, num_tgt)
    for method in BOTH_STEPS:
        [alignment] = align(memorised(), [(source, target)], method=method)
        assert alignment.links
        assert max(src for src, _ in alignment.links) < num_src
        assert max(tgt for _, tgt in alignment.links) < num_tgt


@pytest.mark.parametrize("space", [NBSP, NARROW, WIDE, "\u2009"])
def test_segments_that_another_space_separates_count_their_common_word_once(space: str) -> None:
    translator = Translator(memorised())
    (first, _), (second, _) = PAIRS[0], PAIRS[1]
    length = max(len(translator.bundle.tokenizers.src.encode(each)) for each in (first, second))
    options = SearchOptions(max_source_tokens=length + 2)  # the space may be a token
    one, other = translator.translations([first, second], aligned=True)
    line = f"{first}{space}{second}"
    [joined] = translator.translations([line], options=options, aligned=True)
    links = [each.hypotheses[0].alignment for each in (one, other)]
    moved = links[1].moved(len(first.split()) - 1, len(one.text.split()))
    assert joined.hypotheses[0].alignment == Alignment(tuple(dict.fromkeys(links[0].links + moved.links)))
    assert max(src for src, _ in joined.hypotheses[0].alignment.links) == len(split_words(line)) - 1
