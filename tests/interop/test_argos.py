"""Argos packages translate here as in Argos Translate, and are served as they are."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import sacremoses
from argos_packages import make_package, packed, repacked, sentences, translated_by_argos, unpacked_copy
from command_line import assert_one_clear_line, heedful, text
from ctranslate2_files import translator
from small_tokenizers import fsmt_files, phrases
from tolerances import FLOAT32, assert_close
from translation_server import translation_server

from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.interop.ctranslate2.argos import is_package
from heedful.serving.languages import Catalogue
from heedful.serving.models import load_models
from heedful.serving.options import ServiceOptions
from heedful.storage.bundle import load_bundle
from heedful.tasks.exchange import import_model
from heedful.tasks.loading import local_bundle
from heedful.text.languages import Pair


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "heedful" / "imported"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("packages"), "en", "de")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("quantization", ["int8", "float16", None])
def test_texts_and_scores_are_those_of_argos(quantization: str | None, tmp_path: Path) -> None:
    package = make_package(tmp_path, "en", "de", quantization=quantization)
    texts, scores = translated_by_argos(package, sentences())
    assert len({*texts}) > 6
    assert any(" " in each for each in texts)
    for source in (package, packed(package)):
        import_model(source, output=tmp_path / f"bundle-of-{source.name}")
        bundle = load_bundle(tmp_path / f"bundle-of-{source.name}")
        assert not bundle.config.tokenizer.source_eos
        found = Translator(bundle).translations(
            sentences(), options=SearchOptions.from_config(bundle.config.decode)
        )
        assert [each.text for each in found] == texts
        ours = [each.hypotheses[0].score for each in found]
        assert_close(ours, scores, FLOAT32.SENTENCE)


def test_the_settings_of_the_search_and_the_languages_are_the_packages(package: Path, tmp_path: Path) -> None:
    config = load_bundle(import_model(package, output=tmp_path / "bundle")).config
    assert (config.languages.src, config.languages.tgt) == ("en", "de")
    decode = config.decode
    assert (decode.beam_size, decode.length_penalty, decode.length_normalization) == (4, 0.2, "power")
    assert (decode.replace_unknown, decode.early_stopping, decode.renormalize) == (True, "first", True)
    assert "layout `argos`" in (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")


def test_underscores_of_the_output_are_spaces(package: Path, tmp_path: Path) -> None:
    import_model(package, output=tmp_path / "bundle")
    tokenizer = load_bundle(tmp_path / "bundle").tokenizers.tgt
    size = tokenizer.vocab_size
    assert tokenizer.tokens([size - 2, size - 1]) == ["a_b", "▁__x__"]
    assert tokenizer.decode([size - 1, size - 2, size - 1]) == "x  a b   x"


def test_a_target_prefix_is_written_first_and_left_out_of_the_text(tmp_path: Path) -> None:
    """Greedily: in the score of a beam, the probability of a prefix is 1 here, but the model's there."""
    package = make_package(tmp_path, "en", "pb", target_prefix="▁__x__")
    texts, _ = translated_by_argos(package, sentences(), prefix="▁__x__", beam_size=1)
    config = load_bundle(import_model(package, output=tmp_path / "bundle")).config
    assert (config.languages.tgt, config.languages.tgt_tag) == ("pt-BR", "▁__x__")
    found = Translator(load_bundle(tmp_path / "bundle")).translations(
        sentences(), options=SearchOptions.from_config(config.decode.replace(beam_size=1))
    )
    assert [each.text for each in found] == texts


def test_a_package_is_translated_with_as_it_is_and_imported_once(
    package: Path, tmp_path: Path, cache: Path
) -> None:
    texts, _ = translated_by_argos(package, sentences())
    file = packed(unpacked_copy(package, tmp_path))
    for _ in range(2):
        outcome = heedful("translate", file, stdin=text(sentences()))
        assert (outcome.code, outcome.out) == (0, "".join(f"{each}\n" for each in texts))
    [bundle] = cache.iterdir()
    assert local_bundle(file) == bundle
    assert local_bundle(package) != bundle  # other bytes


@pytest.mark.slow
def test_a_folder_of_packages_is_served_with_pivots(tmp_path: Path) -> None:
    first, second = (
        make_package(tmp_path, *pair, seed=i) for i, pair in enumerate((("en", "de"), ("de", "zt")))
    )
    arguments = [str(first), str(packed(second))]
    models = load_models(ServiceOptions(models=arguments))
    pairs = frozenset(pair for model in models for pair in model.pairs)
    assert pairs == {Pair("en", "de"), Pair("de", "zh-Hant")}
    route = Catalogue(pairs).required_route("en", "zh-Hant")
    assert route.pivot == "de"
    german = [found.text for found in models[0].translate(Pair("en", "de"), sentences(), alternatives=0)]
    assert german == translated_by_argos(first, sentences())[0]


@pytest.mark.slow
def test_the_service_answers_from_a_package(package: Path) -> None:
    line = sentences()[0]
    with translation_server(str(packed(package))) as server:
        reply = server.post("/translate", {"q": line, "source": "en", "target": "de"})
    wanted = translated_by_argos(package, [line])[0][0]
    assert (reply.status, reply.json["translatedText"]) == (200, wanted)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.slow
def test_the_service_answers_from_a_folder_of_packages_through_a_pivot(
    is_packed: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "packages"
    pairs = (("en", "de"), ("de", "fr"))
    made = [make_package(folder, *pair, seed=i) for i, pair in enumerate(pairs)]
    wanted = [line := sentences()[0]]
    for package in made:
        wanted = translated_by_argos(package, wanted)[0]
    if is_packed:
        for package in made:
            packed(package)
            shutil.rmtree(package)
    with translation_server(*map(str, sorted(folder.iterdir()))) as server:
        languages = {each["code"]: each["targets"] for each in server.ask("GET", "/languages").json}
        reply = server.post("/translate", {"q": line, "source": "en", "target": "fr"})
    assert {"de", "fr"} <= {*languages["en"]}
    found = reply.json["translatedText"], reply.json["pivot"]
    assert (reply.status, *found) == (200, wanted[0], "de")


def refusal(source: Path, tmp_path: Path, message: str) -> None:
    outcome = heedful("import", source, "-o", tmp_path / "bundle", "--layout", "argos")
    assert_one_clear_line(outcome, 1, message)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../evil", "leads out of it"),
        ("/etc/evil", "leads out of it"),
        ("en_de/model/../../evil", "leads out of it"),
        ("other/metadata.json", "'metadata.json' comes twice"),
        ("en_de/model/bomb", "it grows more than 20 times when it is unpacked"),
    ],
)
def test_archives_that_are_not_packages_are_refused(
    name: str, message: str, package: Path, tmp_path: Path
) -> None:
    content = bytes(10**8) if name.endswith("bomb") else b"x"
    refusal(repacked(unpacked_copy(package, tmp_path), name, content), tmp_path, message)
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("changes", [{"type": "sbd"}, {"from_code": None}, {"target_prefix": "__xx__"}])
def test_metadata_that_is_not_supported_is_named(
    changes: dict[str, object], package: Path, tmp_path: Path
) -> None:
    copy = unpacked_copy(package, tmp_path)
    metadata = json.loads((copy / "metadata.json").read_text(encoding="utf-8"))
    (copy / "metadata.json").write_text(json.dumps(metadata | changes), encoding="utf-8")
    [(key, value)] = changes.items()
    refusal(copy, tmp_path, f"{key}={value!r}")


@pytest.mark.parametrize(
    ("codes", "named"),
    [
        (None, "sentencepiece.model"),
        (b"\xff", "bpe.model: "),
        (b"#version: 0.1\na b\n", "'#version: 0.1'"),
        (b"#version: 0.2\na b\nab\n", "code 2, 'ab'"),
    ],
)
def test_codes_that_cannot_be_used_are_named(
    codes: bytes | None, named: str, package: Path, tmp_path: Path
) -> None:
    copy = unpacked_copy(package, tmp_path)
    (copy / "sentencepiece.model").unlink()
    if codes is not None:
        (copy / "bpe.model").write_bytes(codes)
    refusal(copy, tmp_path, named)


def test_a_damaged_archive_is_refused(package: Path, tmp_path: Path) -> None:
    file = packed(package)
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])
    assert is_package(file)
    refusal(file, tmp_path, file.name)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a/metadata.json", "{}")
    assert not is_package(tmp_path / "other.zip")


def segmented(word: str, codes: list[tuple[str, str]]) -> list[str]:
    """The byte-pair encoding of a word, code by code (Sennrich et al., 2016)."""
    symbols = [*word[:-1], f"{word[-1]}</w>"]
    for one, other in codes:
        i = 0
        while i < len(symbols) - 1:
            if (symbols[i], symbols[i + 1]) == (one, other):
                symbols[i : i + 2] = [one + other]
            i += 1
    return [*(f"{each}@@" for each in symbols[:-1]), symbols[-1].removesuffix("</w>")]


@pytest.mark.slow
def test_byte_pair_codes_come_after_moses_rules(tmp_path: Path) -> None:
    """As Argos Translate does: normalised punctuation, Moses' words, codes, and Moses' detokeniser."""
    fsmt_files(tmp_path / "fsmt")
    lines = (tmp_path / "fsmt" / "merges.txt").read_text(encoding="utf-8").splitlines()
    codes = [(line.split()[0], line.split()[1]) for line in lines]
    rules = {lang: sacremoses.MosesTokenizer(lang) for lang in ("en", "de")}
    pieces = {
        piece
        for lang, side in zip(("en", "de"), phrases(), strict=True)
        for line in side
        for word in rules[lang].tokenize(line)
        for piece in segmented(word, codes)
    }
    package = make_package(tmp_path, "en", "de", pieces=sorted(pieces))
    (package / "sentencepiece.model").unlink()
    text_of_codes = "".join(f"{one} {other}\n" for one, other in [*codes, codes[0]])
    (package / "bpe.model").write_text(f"#version: 0.2\n{text_of_codes}", encoding="utf-8")
    import_model(packed(package), output=tmp_path / "bundle")
    bundle = load_bundle(tmp_path / "bundle")
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    nasty = ["", "  ", "Don't & <b> «x» ... 3,000.50 Mr. Smith's", "a\u00a0b|c [d]", "日本語。", "the@@ @@"]
    normalizer, known = sacremoses.MosesPunctNormalizer("en"), [*src.tokens(range(src.vocab_size))]
    tokenised = []
    for line in (*sentences(), *nasty):
        words = " ".join(rules["en"].tokenize(normalizer.normalize(line))).strip("\r\n ").split(" ")
        wanted = [piece for word in words if word for piece in segmented(word, codes)]
        assert src.encode(line) == [known.index(each) if each in known else 0 for each in wanted], line
        assert len(src.spans(line)) == len(wanted)
        tokenised.append(wanted)
    results = translator(package / "model").translate_batch(
        tokenised[: len(sentences())], replace_unknowns=True, beam_size=4, length_penalty=0.2
    )
    decoder = sacremoses.MosesDetokenizer("de")
    texts = [
        decoder.detokenize(" ".join(each.hypotheses[0]).replace("@@ ", "").split(" ")) for each in results
    ]
    found = Translator(bundle).translations(
        sentences(), options=SearchOptions.from_config(bundle.config.decode)
    )
    assert [each.text for each in found] == texts
    assert len({*texts}) > 6
    assert not tgt.decode([tgt.eos_id])


@pytest.mark.slow
def test_a_package_is_fine_tuned_and_exported_again(package: Path, tmp_path: Path) -> None:
    for side, lines in zip(("en", "de"), phrases(), strict=True):
        (tmp_path / f"train.{side}").write_bytes(text(list(lines[:20])))
    files = ["--src", tmp_path / "train.en", "--tgt", tmp_path / "train.de"]
    files += ["--valid-src", tmp_path / "train.en", "--valid-tgt", tmp_path / "train.de"]
    settings = {
        "data.allow_overlap": "true", "schedule.name": "constant", "schedule.peak": 1e-3,
        "schedule.warmup_steps": 1, "train.average_checkpoints": 1, "train.max_steps": 50,
        "train.precision": "float32", "train.processes": 1, "train.threads": 1, "valid.decode_sentences": 0,
        "valid.every_steps": 50,
    }  # fmt: skip
    options = [f"--set={key}={value}" for key, value in settings.items()]
    outcome = heedful("train", "--init", packed(package), *files, *options, "-o", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    events = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines())
    before, after = (event["nll"] for event in events if event["event"] == "validation")
    assert after < before - 0.5
    assert heedful("export", tmp_path / "run", "--to", "ctranslate2", "-o", tmp_path / "ct2").code == 0
    tokenizer = load_bundle(tmp_path / "run").tokenizers.src
    pieces = [tokenizer.tokens(tokenizer.encode(line)) for line in sentences()]
    results = translator(tmp_path / "ct2").translate_batch(pieces, beam_size=1)
    theirs = ["".join(each.hypotheses[0]).replace("▁", " ").replace("_", " ").strip() for each in results]
    outcome = heedful("translate", tmp_path / "run", "--beam-size", 1, stdin=text(sentences()))
    assert outcome.out.splitlines() == theirs
