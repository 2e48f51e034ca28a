"""Several corpora in one epoch: their shares and order are a pure function of (seed, epoch)."""

from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import heedful
from hypothesis import given
from hypothesis import strategies as st
from ten_pairs import ENGLISH, GERMAN, as_options

from heedful.data.batches import BatchSource, Mixture
from heedful.data.files import ParallelText
from heedful.data.store import ParallelStore, build_store
from heedful.errors import ConfigError, TokenizerError
from heedful.settings.loading import load_config, to_toml
from heedful.settings.run import Config, CorpusConfig, TokenizerConfig
from heedful.tasks.card import shared_config
from heedful.tasks.directory import RunDirectory
from heedful.tasks.notices import Notices
from heedful.tasks.setup import HeldOut, PreparedRun, set_up_training
from heedful.tasks.training import DecodingValidator
from heedful.text import SpecialTokens, TokenizerPair, train_tokenizers

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=4)


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    sizes = draw(SIZES)
    weights = [draw(st.floats(0.1, 10)) for _ in sizes]
    return Mixture(tuple(sizes), tuple(weight / sum(weights) for weight in weights), ())


@given(mixtures(), st.integers(0, 2**63), st.integers(1, 12))
def test_each_corpus_has_its_share_and_no_pair_comes_again_before_the_others(
    mixture: Mixture, seed: int, epochs: int
) -> None:
    total = sum(mixture.sizes)
    for count, share in zip(mixture.counts(), mixture.shares, strict=True):
        assert abs(count - share * total) <= 1
    drawn = [mixture.indices(seed, epoch) for epoch in range(epochs)]
    seen = Counter(np.concatenate(drawn).tolist())
    for (start, end), count in zip(
        pairwise(accumulate(mixture.sizes, initial=0)), mixture.counts(epochs), strict=True
    ):
        times = [seen[i] for i in range(start, end)]
        assert sum(times) == count
        assert max(times) - min(times) <= 1
    assert [each.tolist() for each in drawn] == [mixture.indices(seed, i).tolist() for i in range(epochs)]


@given(SIZES, st.integers(0, 2**63), st.integers(0, 9))
def test_shares_by_size_are_an_epoch_of_all(sizes: list[int], seed: int, epoch: int) -> None:
    mixture = Mixture(tuple(sizes), tuple(size / sum(sizes) for size in sizes), ())
    assert mixture.indices(seed, epoch).tolist() == list(range(sum(sizes)))


def test_a_share_of_less_than_a_pair_has_its_turn() -> None:
    mixture = Mixture((300, 640), (1 / 5001, 5000 / 5001), ())
    drawn = [mixture.indices(1, epoch) for epoch in range(20)]
    assert mixture.counts()[0] == 0
    assert [int((indices < 300).sum()) for indices in drawn].count(1) == 4  # 20 * 940 / 5001


def test_epochs_and_seeds_differ() -> None:
    mixture = Mixture((100, 100), (0.25, 0.75), ())
    drawn = [mixture.indices(seed, epoch).tolist() for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert len({tuple(each) for each in drawn}) == 3


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return train_tokenizers(ENGLISH, GERMAN, TokenizerConfig(vocab_size=120), seed=1)


def test_two_stores_by_size_are_the_store_of_both(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    def stored(start: int, stop: int) -> ParallelStore:
        text = ParallelText(ENGLISH[start:stop], GERMAN[start:stop])
        return build_store(text, tokenizers, max_length=99, cache_dir=tmp_path)

    whole, both = stored(0, 10), ParallelStore(stored(0, 7).path, stored(7, 10).path)
    assert len(both) == 10
    assert both.report == whole.report
    assert both.fingerprint not in (whole.fingerprint, both.path.stem)
    plain = SpecialTokens.plain(tokenizers)
    mixture = Mixture((7, 3), (0.7, 0.3), (plain, plain))
    for epoch in range(3):
        expected = BatchSource(whole, tokenizers, tokens=60, seed=1)
        mixed = BatchSource(both, tokenizers, tokens=60, seed=1, mixture=mixture)
        assert [rows.tolist() for rows in mixed.plan(epoch)] == [
            rows.tolist() for rows in expected.plan(epoch)
        ]
        for one, other in zip(mixed.batches(epoch), expected.batches(epoch), strict=True):
            assert one.src.equal(other.src)
            assert one.tgt_out.equal(other.tgt_out)


def write(folder: Path) -> dict[str, str]:
    texts = {"a.en": ENGLISH[:8], "a.de": GERMAN[:8], "b.de": GERMAN[6:], "b.en": ENGLISH[6:]}
    for name, lines in texts.items():
        (folder / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return {name: str(folder / name) for name in texts}


def prepared(folder: Path, **data: object) -> PreparedRun:
    model = {"d_model": 16, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    settings = {
        "data": {"cache_dir": str(folder / "cache"), **data},
        "model": model,
        "tokenizer": {"vocab_size": 150, "sampling": 0.1},
        "train": {"processes": 1},
    }
    return set_up_training(Config(**settings), RunDirectory(folder / "run"), Notices([]), resume=False)


def test_tags_come_before_the_sources_of_their_corpora(tmp_path: Path) -> None:
    files = write(tmp_path)
    there = {"src": files["a.en"], "tgt": files["a.de"], "tag": ">>deu<<", "weight": 1}
    back = {"src": files["b.de"], "tgt": files["b.en"], "tag": ">>eng<<", "weight": 3}
    run = prepared(tmp_path, corpora=[there, back])
    tokenizer = run.tokenizers.src
    assert tokenizer.tags() == [">>deu<<", ">>eng<<"]
    deu, eng = tokenizer.tag_id("deu"), tokenizer.tag_id(">>eng<<")
    assert run.config.languages.src_tag == ">>deu<<"  # of validation and use, unless another one is given
    assert {int(batch.src[0, 0]) for batch in run.valid_source.batches(0)} == {deu}
    first = Counter(int(row[0]) for batch in run.source.batches(0) for row in batch.src)  # sampled
    assert first == {deu: 3, eng: 9}
    assert load_config_of(run.config) == run.config
    shared = shared_config(run.config).data.corpora
    assert [(each.src, each.tgt, each.tag, each.weight) for each in shared] == [
        ("a.en", "a.de", ">>deu<<", 1.0),
        ("b.de", "b.en", ">>eng<<", 3.0),
    ]


def test_tags_stand_where_a_model_has_them(tmp_path: Path) -> None:
    files = write(tmp_path)
    there = {"src": files["a.en"], "tgt": files["a.de"], "tag": ">>deu<<"}
    back = {"src": files["b.de"], "tgt": files["b.en"], "tag": ">>eng<<"}
    one = prepared(tmp_path, corpora=[there, back])
    both = Config(languages={"src_tag": ">>eng<<", "tgt_tag": ">>eng<<"})
    deu, eng = (one.tokenizers.src.tag_id(tag) for tag in ("deu", "eng"))
    of_both = there | {"src_tag": ">>deu<<"}
    templates = [
        SpecialTokens.of(HeldOut(one.valid[0].text, CorpusConfig(**corpus)).config(config), one.tokenizers)
        for config, corpus in ((one.config, there), (both, there), (both, of_both))
    ]
    assert [(template.src_prefix, template.tgt_prefix) for template in templates] == [
        ((deu,), ()),
        ((eng,), (deu,)),
        ((deu,), (deu,)),
    ]
    with pytest.raises(ConfigError, match="give it as tag"):
        HeldOut(one.valid[0].text, CorpusConfig(**there | {"src_tag": ">>eng<<"})).config(one.config)


def test_each_direction_is_validated_in_its_language(tmp_path: Path) -> None:
    files = write(tmp_path)
    there = {"src": files["a.en"], "tgt": files["a.de"], "tag": ">>deu<<"}
    back = {"src": files["b.de"], "tgt": files["b.en"], "tag": ">>eng<<"}
    for corpus in (there, back):
        corpus |= {"valid_src": corpus["src"], "valid_tgt": corpus["tgt"]}
    run = prepared(tmp_path, corpora=[there, back], allow_overlap=True)
    deu, eng = (run.tokenizers.src.tag_id(tag) for tag in ("deu", "eng"))
    first = Counter(int(row[0]) for batch in run.valid_source.batches(0) for row in batch.src)
    assert first == {deu: 8, eng: 4}
    validator = DecodingValidator(run)
    scores = validator(run.model)
    for metric in ("bleu", "chrf", "exact"):
        of_each = [scores[f"{metric}/{tag}"] for tag in (">>deu<<", ">>eng<<")]
        assert scores[metric] == pytest.approx(sum(of_each) / 2)
    assert {f"bleu/{tag}" for tag in (">>deu<<", ">>eng<<")} <= validator.signatures.keys()


@pytest.mark.parametrize(
    ("valid", "refusal"),
    [({"valid_src": "v.en"}, "valid_tgt"), ({"valid_src": "v.en", "valid_tgt": "v.de"}, "not both")],
)
def test_validation_text_is_of_all_directions_or_of_each(valid: dict[str, str], refusal: str) -> None:
    corpora = [{"src": "a.en", "tgt": "a.de", **valid}]
    with pytest.raises(ConfigError, match=refusal):
        Config(data={"corpora": corpora, "valid_src": "all.en", "valid_tgt": "all.de"})


def load_config_of(config: Config) -> Config:
    import tomllib

    return Config(**tomllib.loads(to_toml(config)))


def test_a_tag_of_provenance_is_no_default(tmp_path: Path) -> None:
    files = write(tmp_path)
    true = {"src": files["a.en"], "tgt": files["a.de"]}
    run = prepared(tmp_path, corpora=[true, {"src": files["b.en"], "tgt": files["b.de"], "tag": "<bt>"}])
    assert run.config.languages.src_tag is None
    tag = run.tokenizers.src.tag_id("<bt>")
    first = [int(row[0]) for batch in run.source.batches(0) for row in batch.src]
    assert (len(first), first.count(tag)) == (12, 4)


def test_one_corpus_is_a_plain_text(tmp_path: Path) -> None:
    files = write(tmp_path)
    text = {"src": files["a.en"], "tgt": files["a.de"]}
    plain, one = prepared(tmp_path, **text), prepared(tmp_path, corpora=[text | {"weight": 2}])
    assert one.source.store.path == plain.source.store.path
    assert one.source.mixture is None
    assert [rows.tolist() for rows in one.source.plan(3)] == [rows.tolist() for rows in plain.source.plan(3)]


MISTAKES = {
    "no text": ({"corpora": [{"weight": 1.0}]}, "data.corpora: give each corpus src and tgt, or pairs"),
    "half a text": ({"corpora": [{"src": "a"}]}, "data.corpora: give each corpus src and tgt, or pairs"),
    "two texts": (
        {"corpora": [{"src": "a", "tgt": "b", "pairs": "c"}]},
        "data.corpora: give each corpus src and tgt, or pairs",
    ),
    "both": (
        {"corpora": [{"pairs": "c"}], "pairs": "d"},
        "give data.corpora, or data.src and data.tgt, or data.pairs, not both",
    ),
    "some weights": (
        {"corpora": [{"pairs": "c", "weight": 1.0}, {"pairs": "d"}]},
        "data.corpora: give every corpus a weight, or none",
    ),
    "weights and temperature": (
        {"corpora": [{"pairs": "c", "weight": 1.0}], "temperature": 5},
        "data.temperature=5 is for data.corpora without weights; leave one out",
    ),
    "a tag of two words": (
        {"corpora": [{"pairs": "c", "tag": "to French"}]},
        "data.corpora: tag='to French': write a tag without spaces, such as >>fra<<",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_nonsense_is_one_clear_error(mistake: str) -> None:
    data, message = MISTAKES[mistake]
    with pytest.raises(ConfigError) as caught:
        Config(data=data)
    assert str(caught.value) == message


@pytest.mark.parametrize(("key", "value"), [("weight", -1), ("weight", 0), ("weigth", 1), ("tag", 3)])
def test_a_wrong_value_names_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"data\.corpora\.0\.{key}"):
        Config(data={"corpora": [{"pairs": "c", key: value}]})


RECIPE = """
preset = "tiny"

[data]
temperature = 3
cache_dir = "{folder}/cache"

[[data.corpora]]
src = "{folder}/a.en"
tgt = "{folder}/a.de"
tag = ">>deu<<"

[[data.corpora]]
src = "{folder}/b.de"
tgt = "{folder}/b.en"
tag = ">>eng<<"
"""
QUICK = {
    "tokenizer.vocab_size": 150,
    "model.d_model": 16,
    "model.d_ff": 32,
    "batch.tokens": 60,
    "train.checkpoint_every_steps": 1,
    "train.precision": "float32",
    "train.threads": 1,
    "train.processes": 1,
    "valid.decode_sentences": 0,
    "schedule.name": "constant",
    "schedule.warmup_steps": 2,
}


@pytest.mark.slow
def test_a_resumed_mixture_is_the_uninterrupted_one(tmp_path: Path) -> None:
    write(tmp_path)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=tmp_path), encoding="utf-8")

    def train(run: str, steps: int, *more: str) -> bytes:
        settings = as_options(QUICK | {"train.max_steps": steps})
        outcome = heedful("train", recipe, *settings, "--output", tmp_path / run, *more)
        assert outcome.code == 0, outcome.err
        return (tmp_path / run / "last" / "model.safetensors").read_bytes()

    whole = train("whole", 9)
    assert train("part", 4) != whole
    assert train("part", 9, "--resume") == whole
    assert load_config(tmp_path / "part" / "config.toml").data.corpora[1].tag == ">>eng<<"
    outcome = heedful("translate", tmp_path / "part", "--tgt-lang", "eng", stdin=b"Er hat.\n")
    assert outcome.code == 0, outcome.err
    changed = recipe.read_text(encoding="utf-8").replace("temperature = 3", "temperature = 1")
    recipe.write_text(changed, encoding="utf-8")
    outcome = heedful("train", recipe, *as_options(QUICK), "--output", tmp_path / "part", "--resume")
    assert (outcome.code, outcome.err.splitlines()[-1][:7]) == (1, "error: ")


def test_a_tag_that_a_base_model_lacks_is_named(tokenizers: TokenizerPair) -> None:
    with pytest.raises(TokenizerError, match=r"languages\.src_tag: '>>fra<<'"):
        SpecialTokens.of(Config(languages={"src_tag": ">>fra<<"}), tokenizers)
