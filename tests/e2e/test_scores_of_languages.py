"""Commands score a language as sacreBLEU does, wherever its name stands; training chooses its best by it."""

import gzip
import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful, text
from huggingface_hub import ModelCard
from sacrebleu.metrics.bleu import BLEU
from tagged_bundle import nllb_like
from ten_pairs import as_options
from tiny_bundle import save_untrained

import heedful as package
from heedful.settings.run import Config
from heedful.storage.bundle import save_bundle
from heedful.tasks.training import tokenizer_of

REFERENCES = ["今天天气很好，我们去公园散步。", "他昨天买了一本新书。"]
OUTPUTS = ["今天天气不错，我们去公园走走。", "他昨天买了一本旧书。"]
KANJI = ["東京大学", "日本国憲法第九条"]  # Japanese, though its script says Chinese
# (English, Chinese): a grammar that a small model learns in a minute.
SUBJECTS = [
    ("the cat", "猫"),
    ("a dog", "狗"),
    ("the teacher", "老师"),
    ("my sister", "我妹妹"),
    ("the child", "孩子"),
]
VERBS = [("sees", "看见"), ("buys", "买"), ("likes", "喜欢"), ("finds", "找到"), ("carries", "搬")]
OBJECTS = [
    ("a house", "一座房子"),
    ("the book", "那本书"),
    ("an apple", "一个苹果"),
    ("the car", "那辆车"),
    ("a flower", "一朵花"),
]
TIMES = [("today", "今天"), ("again", "又"), ("here", "在这里"), ("slowly", "慢慢地")]


def signature(*args: object) -> str:
    """Return the signature of BLEU that `heedful evaluate` prints."""
    outcome = heedful("evaluate", *args, "--metric", "bleu", "--json")
    assert outcome.code == 0, outcome.err
    return str(json.loads(outcome.out)["signatures"]["bleu"])


def test_files_are_scored_in_the_language_of_their_names_or_their_text(tmp_path: Path) -> None:
    (tmp_path / "hyp").write_bytes(text(OUTPUTS))
    for name in ("ref.zh", "ref"):
        (tmp_path / name).write_bytes(text(REFERENCES))
    (tmp_path / "ref.en-zh.zh.gz").write_bytes(gzip.compress(text(REFERENCES)))
    score = BLEU(tokenize="zh").corpus_score(OUTPUTS, [REFERENCES]).score
    for name in ("ref.zh", "ref", "ref.en-zh.zh.gz"):
        files = ["--hyp", tmp_path / "hyp", "--ref", tmp_path / name]
        outcome = heedful("evaluate", *files, "--metric", "bleu,ter,wer", "--resamples", 0)
        assert outcome.out.startswith(f"bleu {score:.2f}  nrefs:1|case:mixed|eff:no|tok:zh|"), outcome.err
        assert f"{score:.2f}" == "58.24"
        assert "\nter 20.00 " in outcome.out
        assert "\nwer 20.00 " in outcome.out


def test_the_language_and_the_tokenizer_can_be_chosen(tmp_path: Path) -> None:
    for name in ("hyp", "ref", "ref.ja"):
        (tmp_path / name).write_bytes(text(KANJI))
    files = ["--hyp", tmp_path / "hyp", "--ref", tmp_path / "ref"]
    assert "tok:zh" in signature(*files)
    japanese = signature("--hyp", tmp_path / "hyp", "--ref", tmp_path / "ref.ja")
    assert "tok:zh" not in japanese  # words by MeCab, or characters
    assert signature(*files, "--tgt-lang", "jpn_Jpan") == japanese
    assert "tok:intl" in signature(*files, "--tokenize", "intl", "--tgt-lang", "ja")
    assert_one_clear_line(heedful("evaluate", *files, "--tokenize", "mecab"), 2, "ja-mecab")
    assert_one_clear_line(heedful("evaluate", *files, "--metric", "spbleu"), 2, "flores200")


@pytest.mark.parametrize(("languages", "tokenizer"), [({"tgt": "ko"}, "ko-mecab"), ({}, "13a")])
def test_a_bundle_states_its_language(tmp_path: Path, languages: dict[str, str], tokenizer: str) -> None:
    known = nllb_like()  # from eng_Latn into deu_Latn
    config = known.config.replace(languages=known.config.languages.replace(**languages).model_dump())
    save_bundle(replace(known, config=config), tmp_path / "bundle", card="# A model\n")
    (tmp_path / "src").write_bytes(text(["the cat", "a dog"]))
    (tmp_path / "ref").write_bytes(text(REFERENCES))  # though its script says Chinese
    found = signature(tmp_path / "bundle", "--src", tmp_path / "src", "--ref", tmp_path / "ref")
    assert f"tok:{tokenizer}" in found or (tokenizer == "ko-mecab" and "tok:char" in found)


def test_a_language_can_be_given_for_a_model_of_one_language(tmp_path: Path) -> None:
    path = save_untrained(tmp_path / "model")
    (tmp_path / "src").write_bytes(text(["the cat sleeps .", "the dog sleeps ."]))
    (tmp_path / "ref").write_bytes(text(REFERENCES))
    files = path, "--src", tmp_path / "src", "--ref", tmp_path / "ref"
    assert "tok:zh" in signature(*files)
    assert "tok:char" in signature(*files, "--tgt-lang", "th")
    assert_one_clear_line(heedful("evaluate", *files, "--src-lang", "de"), 1, "src_lang='de'")


def test_the_name_of_the_source_file_does_not_say_the_language_of_the_target(tmp_path: Path) -> None:
    for name in ("a.zh", "a.ja"):
        (tmp_path / name).write_bytes(text(KANJI))
    report = package.evaluate(KANJI, src=tmp_path / "a.zh", ref=tmp_path / "a.ja", metric="bleu")
    assert "tok:zh" not in report.signatures["bleu"]


@pytest.mark.parametrize(
    ("sections", "lines", "tokenizer"),
    [
        ({}, ["漢字"], "zh"),
        ({"data": {"valid_src": "v.en", "valid_tgt": "v.ja.gz"}}, ["漢字"], "ja"),
        ({"data": {"src": "t.zh", "tgt": "t.ja"}}, ["漢字"], "ja"),
        ({"data": {"pairs": "t.jsonl", "src_key": "en", "tgt_key": "ja"}}, ["漢字"], "ja"),
        ({"data": {"src": "t.en", "tgt": "t.ja"}, "languages": {"tgt_tag": "zho_Hans"}}, ["漢字"], "zh"),
        ({"languages": {"tgt": "ja"}, "valid": {"tokenize": "intl"}}, ["漢字"], "intl"),
        ({"data": {"src": "t.en", "tgt": "t.de"}}, ["Ein Satz"], "13a"),
    ],
)
def test_training_finds_the_language_of_its_validation_text(
    sections: dict[str, object], lines: list[str], tokenizer: str
) -> None:
    found = tokenizer_of(Config.model_validate(sections), lines)
    assert found in ({"ja-mecab", "char"} if tokenizer == "ja" else {tokenizer})


def write_grammar(directory: Path, *, valid: int) -> list[str]:
    """Write English and Chinese, and return the arguments that train a tiny model on them."""
    rows = [
        (f"{s[0]} {v[0]} {o[0]} {t[0]}.", f"{t[1]}，{s[1]}{v[1]}{o[1]}。")
        for s, v, o, t in itertools.product(SUBJECTS, VERBS, OBJECTS, TIMES)
    ]
    random.Random(5).shuffle(rows)
    for name, part in (("valid", rows[:valid]), ("train", rows[valid:])):
        for side, lines in zip(("en", "zh"), zip(*part, strict=True), strict=True):
            (directory / f"{name}.{side}").write_bytes(text(list(lines)))
    sides = {"src": "train.en", "tgt": "train.zh", "valid-src": "valid.en", "valid-tgt": "valid.zh"}
    files = [part for option, name in sides.items() for part in (f"--{option}", str(directory / name))]
    settings: dict[str, object] = {
        "data.cache_dir": directory / "cache",
        "tokenizer.kind": "char",
        "tokenizer.normalization": "identity",
        "tokenizer.vocab_size": 100,
        "model.d_model": 64,
        "model.num_heads": 2,
        "model.d_ff": 128,
        "model.num_encoder_layers": 2,
        "model.num_decoder_layers": 2,
        "model.dropout": 0.0,
        "batch.tokens": 1024,
        "train.threads": 1,
        "train.processes": 1,
        "train.ema_decay": 0.0,
        "valid.metric": "bleu",
    }
    return [*files, "--preset", "tiny", *as_options(settings)]


def test_the_card_says_how_bleu_was_computed(tmp_path: Path) -> None:
    few = as_options({"train.max_steps": 2, "valid.every_steps": 2})
    outcome = heedful("train", *write_grammar(tmp_path, valid=20), *few, "--output", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    card = ModelCard((tmp_path / "run" / "best" / "README.md").read_text(encoding="utf-8"))
    scores = {result.metric_type: result for result in card.data.eval_results}
    assert "tok:zh" in scores["sacrebleu"].metric_args["signature"]


def test_a_tokenizer_that_is_not_there_ends_a_run_before_it_starts(tmp_path: Path) -> None:
    arguments = [*write_grammar(tmp_path, valid=20), *as_options({"valid.tokenize": "flores200"})]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heedful.evaluation.tokenization.SACREBLEU_DIR", str(tmp_path))
        outcome = heedful("train", *arguments, "--output", tmp_path / "run")
    assert outcome.code != 0
    assert "flores200" in outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_into_chinese_keeps_its_last_model(tmp_path: Path) -> None:
    steps = as_options({"train.max_steps": 300, "valid.every_steps": 50, "valid.patience": 3})
    outcome = heedful("train", *write_grammar(tmp_path, valid=60), *steps, "--output", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    validations = [each for each in map(json.loads, log) if each["event"] == "validation"]
    assert [each["step"] for each in validations] == [50, 100, 150, 200, 250, 300]
    assert validations[-1]["is_best"]
    assert validations[-1]["bleu"] > 90.0
    files = ["--src", tmp_path / "valid.en", "--ref", tmp_path / "valid.zh", "--beam-size", 1]
    report = json.loads(heedful("evaluate", tmp_path / "run", *files, "--json").out)
    assert abs(report["bleu"] - validations[-1]["bleu"]) < 2  # in bf16, and float32
