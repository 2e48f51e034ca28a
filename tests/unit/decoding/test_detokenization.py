"""Unknown pieces become words of the source: by an alignment made by hand, and by a trained model."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from command_line import heedful
from numpy.typing import NDArray
from tiny_bundle import PAIRS, memorised
from torch.nn.functional import cross_entropy

from heedful.decoding.alignment import attended_words
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.task import Hypothesis, Source
from heedful.decoding.texts import EncodedLines, TextCodec
from heedful.decoding.translator import Translator
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, DecodeConfig, TokenizerConfig
from heedful.storage.bundle import Bundle, save_bundle
from heedful.text import HuggingFaceTokenizer, SpecialIds, SpecialTokens, TokenizerPair
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

SRC = tokenizer_from_words(["<unk>", "<s>", "</s>", "<pad>", "one", "two", "three", "four", "five", "six"])
TGT = tokenizer_from_words(["<pad>", "<s>", "</s>", "<unk>", "eins", "zwei", "drei", "vier", "fünf", "sechs"])
LINES = ["one Ærø two three", "Sund four Ærø", "six Kiel", "Kiel", "two one"]
COUNTED = ["eins Ærø zwei drei", "Sund vier Ærø", "sechs Kiel", "Kiel", "zwei eins"]
REPLACED = SearchOptions(replace_unknown=True)


@cache
def counting() -> Bundle:
    """A model that translates word by word; names are unknown to it."""
    chance = random.Random(1)
    settings = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_encoder_layers": 1, "num_decoder_layers": 1}
    sizes = ModelConfig(**settings, dropout=0.0, src_vocab_size=10, tgt_vocab_size=10, tied="target")
    sizes = sizes.replace(src_pad_id=SRC.pad_id, tgt_pad_id=TGT.pad_id)
    torch.manual_seed(1)
    model = Transformer.from_config(sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=300)
    for _ in range(300):
        length = chance.randint(1, 5)
        src = [[chance.choice((0, *range(4, 10))) for _ in range(length)] for _ in range(24)]
        tgt = [[i or TGT.unk_id for i in row] for row in src]
        tgt_in = torch.tensor([[TGT.bos_id, *row] for row in tgt])
        logits = model(torch.tensor([[*row, SRC.eos_id] for row in src]), tgt_in)
        loss = cross_entropy(logits.transpose(1, 2), torch.tensor([[*row, TGT.eos_id] for row in tgt]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    words = TokenizerConfig(kind="word", joint=False)
    config = Config(model=sizes, tokenizer=words, decode=DecodeConfig(beam_size=2))
    return Bundle(config, TokenizerPair(SRC, TGT), model.eval())


def found(*ids: int) -> Hypothesis:
    return Hypothesis(ids, -1.0, -1.0, (0.0,) * (len(ids) + 1), finished=True)


def test_a_word_is_the_one_that_an_alignment_made_by_hand_says() -> None:
    lines, hypotheses = ["one Ærø two Kiel !", "two", "Sund"], [found(4, 3, 3), found(5), found(3)]
    sources = [[*SRC.encode(line), SRC.eos_id] for line in lines]
    # The last column is the end of the source, and the last row that of the output: neither is a word.
    # Unknown words side by side are one piece.
    first = np.asarray([[1, 0, 0, 0, 0], [0, 0.3, 0.1, 0.2, 0.4], [0, 0.1, 0.2, 0.4, 0.3], [0, 0, 0, 0, 1.0]])
    last = np.asarray([[0.1, 0.9], [0, 1.0]])
    pair = TokenizerPair(SRC, TGT)
    codec = TextCodec(tokenizers=pair, special_tokens=SpecialTokens.plain(pair), default=SearchOptions())

    def attention_of(
        sources: Sequence[Source], outputs: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float64]]:
        assert [weights.shape for weights in (first, last)] == [
            (len(output), len(source.ids)) for source, output in zip(sources, outputs, strict=True)
        ]
        return [first, last]

    spelled = partial(
        codec.decode,
        EncodedLines(lines, lines, [Source(ids, (), 9) for ids in sources], [[""]] * 3, [[]] * 3),
        [[each] for each in hypotheses],
        attention_of=attention_of,
    )
    translations = spelled(options=REPLACED)
    assert [each.text for each in translations] == ["eins Ærø Kiel !", "zwei", "Sund"]
    assert [each.hypotheses[0].ids for each in translations] == [(4, 3, 3), (5,), (3,)]
    plain = spelled(options=SearchOptions())
    assert [each.text for each in plain] == ["eins ⁇ ⁇", "zwei", "⁇"]


def test_the_pieces_of_a_word_count_together_and_a_piece_alone() -> None:
    tokenizer, line = memorised().tokenizers.src, "the cat sleeps ."
    spans = tokenizer.spans(line)
    of_sleeps = [piece for piece, (start, _) in enumerate(spans) if 7 <= start < 14]
    assert len(of_sleeps) > 1
    weights = np.full((1, len(spans) + 1), 0.01)
    weights[0, 0], weights[0, -1] = 0.3, 0.9
    weights[0, of_sleeps] = 0.2
    assert attended_words(weights, line, tokenizer, whole=True) == [" sleeps"]
    start, end = spans[0]
    assert [each.strip() for each in attended_words(weights, line, tokenizer, whole=False)] == [
        line[start:end].strip()
    ]


def test_words_are_told_apart_where_spaces_belong_to_no_piece() -> None:
    pipeline = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "the": 4}, "<unk>")
    )
    pipeline.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()  # which cuts off punctuation too
    words = HuggingFaceTokenizer(pipeline.to_str().encode(), SpecialIds(pad=3, unk=0, bos=1, eos=2))
    assert words.kind == "word"
    weights = np.asarray([[0.3, 0.2, 0.2, 0.3], [0.4, 0.1, 0.1, 0.3]])
    found = attended_words(weights, "the  Sund! Ærø", words, whole=True)
    assert found == [" Sund!", " the"]
    assert words.decode([0, 4, 0], unknown=found) == "Sund! the the"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_trained_model_writes_the_names_that_it_does_not_know(engine: str) -> None:
    translator = Translator(counting(), engine=engine)  # type: ignore[arg-type]
    assert translator.translate(LINES)[0] == "eins ⁇ zwei drei"
    assert translator.translate(LINES, options=REPLACED) == COUNTED
    assert translator.translate(["", "  ", *LINES], options=REPLACED) == ["", "", *COUNTED]
    [sampled] = translator.translations(LINES[:1], options=replace(REPLACED, strategy=Sampling(seed=2)))
    assert "⁇" not in sampled.text
    together = Translator(counting(), ensemble=[counting()], engine=engine)  # type: ignore[arg-type]
    assert together.translate(LINES, options=replace(REPLACED, coverage_penalty=0.2)) == COUNTED


def test_nothing_but_the_text_changes_and_each_hypothesis_has_its_own() -> None:
    translator = Translator(counting(), batch_size=2)
    options = SearchOptions(strategy=BeamSearch(beam_size=3), n_best=3)
    plain = translator.translations(LINES, options=options)
    replaced = translator.translations(LINES, options=replace(options, replace_unknown=True))
    for one, other in zip(plain, replaced, strict=True):
        for before, after in zip(one.hypotheses, other.hypotheses, strict=True):
            assert replace(after, text=before.text) == before
            assert ("⁇" in before.text) == (before.text != after.text)


def test_where_nothing_is_unknown_nothing_changes() -> None:
    lines = [source for source, _ in PAIRS]
    translator = Translator(memorised())
    assert translator.translations(lines, options=REPLACED) == translator.translations(lines)


def test_the_command_replaces_them_where_it_is_asked_to(tmp_path: Path) -> None:
    save_bundle(counting(), tmp_path / "bundle", card="# Numbers\n")
    stdin = "".join(f"{line}\n" for line in LINES).encode()
    outcome = heedful("translate", tmp_path / "bundle", "--replace-unknown", stdin=stdin)
    assert outcome.out.splitlines() == COUNTED
    covered = heedful("translate", tmp_path / "bundle", "--coverage-penalty", 0.3, "--scores", stdin=stdin)
    plain = heedful("translate", tmp_path / "bundle", "--scores", stdin=stdin)
    scores = [[float(line.split("\t")[0]) for line in each.out.splitlines()] for each in (covered, plain)]
    assert all(one < other for one, other in zip(*scores, strict=True))
