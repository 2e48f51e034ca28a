from pathlib import Path

import pytest
from command_line import heedful
from tagged_bundle import nllb_like

from heedful.decoding.translator import Translator
from heedful.storage.model_files import save_bundle

LINES = "the house\na cat and a dog\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "bundle"
    save_bundle(nllb_like(), path, card="# Many languages\n")
    return path


def test_translate_takes_the_languages(bundle: Path) -> None:
    outcome = heedful(
        "translate", bundle, "--src-lang", "deu_Latn", "--tgt-lang", "fra_Latn", stdin=LINES.encode()
    )
    expected = Translator(nllb_like()).for_languages(src_lang="deu_Latn", tgt_lang="fra_Latn")
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines() == expected.translate(LINES.splitlines())


def test_evaluate_takes_the_languages(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text(LINES)
    outputs = tmp_path / "outputs"
    files = ["--src", tmp_path / "src", "--ref", tmp_path / "src", "--output", outputs]
    outcome = heedful("evaluate", bundle, *files, "--tgt-lang", "fra_Latn")
    assert outcome.code == 0, outcome.err
    expected = Translator(nllb_like()).for_languages(tgt_lang="fra_Latn")
    assert outputs.read_text().splitlines() == expected.translate(LINES.splitlines())


def test_attention_takes_the_languages(bundle: Path, tmp_path: Path) -> None:
    outcome = heedful("attention", bundle, "the house", "-o", tmp_path / "a.json", "--tgt-lang", "fra_Latn")
    assert outcome.code == 0, outcome.err
    assert '"fra_Latn"' in (tmp_path / "a.json").read_text()


def test_an_unknown_language_is_one_line_and_writes_nothing(bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    outcome = heedful("translate", bundle, "--tgt-lang", "fra", "-o", output, stdin=LINES.encode())
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        "error: tgt_lang: 'fra' is not a tag of this model; did you mean 'fra_Arab' or 'fra_Latn'?"
    ]
    assert not output.exists()
