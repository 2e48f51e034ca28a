"""The front matter of a model card, read back by the hub's own library and by a YAML parser."""

import math

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import FLOAT64, close

from heedful.settings.run import Config
from heedful.tasks.card import front_matter

DATA = {"src": "a/train.en", "tgt": "a/train.de", "valid_src": "a/val.en", "valid_tgt": "a/val.de"}
BLEU = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def config(**sections: dict[str, object]) -> Config:
    return Config.model_validate(sections)


def read(text: str) -> dict[str, object]:
    assert text.startswith("---\n")
    assert text.endswith("\n---\n")
    return dict(yaml.safe_load(text.removesuffix("---\n")))


def result(kind: str, name: str, value: float, signature: str | None = None) -> EvalResult:
    return EvalResult(
        task_type="translation",
        task_name="Translation",
        dataset_type="text",
        dataset_name="val.en and val.de",
        dataset_split="validation",
        metric_type=kind,
        metric_name=name,
        metric_value=value,
        metric_args={"signature": signature} if signature else None,
    )


def test_the_hubs_library_reads_every_score_with_its_signature() -> None:
    text = front_matter(
        config(data=DATA),
        title="Transformer 6+6 x 512",
        scores={"nll": 1.5, "perplexity": 4.48168907, "bleu": 38.62, "chrf": 62.0, "exact": 7.1, "per": 0.5},
        signatures={"bleu": BLEU},
    )
    data = ModelCard(f"{text}\n# Title\n").data
    assert (data.library_name, data.pipeline_tag, data.language) == ("heedful", "translation", ["en", "de"])
    assert data.tags == ["transformer", "encoder-decoder"]
    assert data.license is None
    assert data.model_name == "Transformer 6+6 x 512"
    assert data.eval_results == [
        result("nll", "Negative log-likelihood per token", 1.5),
        result("perplexity", "Perplexity per token", 4.4817),
        result("sacrebleu", "BLEU", 38.62, BLEU),
        result("chrf", "chrF", 62.0),
        result("exact_match", "Exact match (%)", 7.1),
        result("per", "per", 0.5),
    ]


def test_without_scores_there_is_no_table_of_them() -> None:
    for scores in (None, {}, {"perplexity": math.inf, "bleu": math.nan}):
        assert read(front_matter(Config(), title="x", scores=scores)) == {
            "library_name": "heedful",
            "pipeline_tag": "translation",
            "tags": ["transformer", "encoder-decoder"],
        }


@given(value=st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=50)
def test_every_finite_score_stays_a_number(value: float) -> None:
    found = read(front_matter(config(data=DATA), title="x", scores={"bleu": value}))
    [model] = found["model-index"]
    assert model["results"][0]["metrics"][0]["value"] == close(value, FLOAT64.ELEMENT.printed(4))


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0")))
@settings(max_examples=200)
def test_any_text_comes_back_as_it_was(text: str) -> None:
    made = front_matter(
        config(data={"valid_pairs": f"folder/{text.replace('/', '')}x"}),
        title=text,
        scores={"bleu": 1.0},
        signatures={"bleu": f"{text}."},
        base_model=text,
    )
    found = read(made)
    assert ModelCard(made).data.model_name == text
    assert found.get("base_model", "") == text
    [model] = found["model-index"]
    assert model["name"] == text
    assert model["results"][0]["dataset"]["name"] == f"{text.replace('/', '')}x"
    assert model["results"][0]["metrics"][0]["args"] == {"signature": f"{text}."}


@pytest.mark.parametrize(
    ("sections", "languages"),
    [
        ({"languages": {"src_tag": "eng_Latn", "tgt_tag": "deu_Latn"}}, ["eng", "deu"]),
        ({"languages": {"src_tag": "en_XX", "tgt_tag": "ro_RO"}}, ["en", "ro"]),
        ({"languages": {"src_tag": "__en__", "tgt_tag": "__de__"}}, ["en", "de"]),
        ({"languages": {"tgt_tag": ">>fra<<"}}, ["fra"]),
        ({"languages": {"tgt_tag": "<formal>"}}, None),
        ({"data": {"src": "x/train.no.gz", "tgt": "x/train.en.gz"}}, ["no", "en"]),
        ({"data": {"src": "x/train.en", "tgt": "y/corrected.en"}}, ["en"]),
        ({"data": {"src": "train.word", "tgt": "train.phones"}}, None),
        ({"data": {"src": "train.xx", "tgt": "train.en"}}, None),
        ({"data": {"pairs": "train.tsv"}}, None),
    ],
)
def test_languages_are_named_where_they_are_known(sections: dict, languages: list[str] | None) -> None:
    assert read(front_matter(config(**sections), title="x")).get("language") == languages


def test_scores_of_held_out_pairs_name_the_training_text() -> None:
    found = read(front_matter(config(data={"pairs": "a/all.tsv"}), title="x", scores={"nll": 1.0}))
    assert found["model-index"][0]["results"][0]["dataset"] == {"type": "text", "name": "all.tsv"}
