"""Students and back-translation: one command each, killed at any stage they end in the same bundle."""

import json
import shutil
import signal
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful, text
from struck_commands import assert_killed
from ten_pairs import as_options
from tiny_bundle import PAIRS, SOURCES, TARGETS, save_memorised, save_untrained

import heedful as package
from heedful.storage.bundle import load_bundle
from heedful.storage.description import file_sha256

SETTINGS: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.decoder_unit": "ssru",
    "data.cache_dir": "cache",
    "batch.tokens": 60,
    "train.max_steps": 6,
    "train.checkpoint_every_steps": 3,
    "train.threads": 1,
    "train.processes": 1,
    "train.precision": "float32",
    "valid.every_steps": 4,
    "valid.decode_sentences": 2,
    "decode.max_length": 20,
}
TRAINING = ["--preset", "tiny", *as_options(SETTINGS)]
# The teacher knows all pairs by heart, so its last two are those of the validation text, which are removed.
DISTILL = ["teacher", "--src", "text.en", "--valid-src", "valid.en", "--valid-tgt", "valid.de", *TRAINING]
BACK_TRANSLATE = ["reverse", "--mono", "mono.de", "--src", "few.en", "--tgt", "few.de", *TRAINING]
BACK_TRANSLATE += as_options({"tokenizer.vocab_size": 60, "data.allow_overlap": "true"})

# What is written at these calls: the second chunk of the translation, its record, the filtered pairs, their
# record, the first file of the run, and a bundle, after a checkpoint.
MOMENTS = {
    "chunk": ("fsync", 8),
    "translated": ("fsync", 16),
    "clean": ("rename", 1),
    "filtered": ("fsync", 18),
    "start": ("fsync", 20),
    "bundle": ("fsync", 35),
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with models and texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("heedful.bulk.lines.CHUNK_LINES", 4)
    save_memorised(tmp_path / "teacher" / "best")
    save_memorised(tmp_path / "reverse" / "best", tuple((tgt, src) for src, tgt in PAIRS))
    for name, src, tgt in (
        ("valid", SOURCES[4:], TARGETS[4:]),
        ("few", SOURCES[:2], TARGETS[:2]),
        ("text", [*SOURCES, "", *SOURCES], TARGETS),
        ("mono", SOURCES, [*TARGETS, "", *TARGETS]),
    ):
        (tmp_path / f"{name}.en").write_bytes(text(src))
        (tmp_path / f"{name}.de").write_bytes(text(tgt))
    return tmp_path


def lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def bundle(run: str) -> dict[str, bytes]:
    """The files of both bundles, without the name of the run."""
    return {
        str(path.relative_to(run)): path.read_bytes().replace(run.encode(), b"RUN")
        for name in ("best", "last")
        for path in sorted((Path(run) / name).iterdir())
    }


def test_a_student_learns_the_pairs_of_its_teacher(files: Path) -> None:
    outcome = heedful("distill", *DISTILL, "-o", "run", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["best"] == str(Path("run", "best"))
    assert lines("run/synthetic/translated.de") == [*TARGETS, "", *TARGETS]
    assert lines("run/synthetic/clean/train.en") == SOURCES[:4]
    assert lines("run/synthetic/clean/train.de") == TARGETS[:4]
    assert "9 of 13 pairs removed by filters" in outcome.err
    student, teacher = load_bundle("run"), load_bundle("teacher")
    assert student.tokenizers.fingerprint() == teacher.tokenizers.fingerprint()
    assert student.config.model.decoder_unit == "ssru"
    assert heedful("translate", "run", stdin=text(SOURCES)).code == 0


def test_the_card_says_where_the_pairs_are_from(files: Path) -> None:
    assert heedful("distill", *DISTILL, "--beam-size", 2, "-o", "run").code == 0
    card = Path("run/best/README.md").read_text(encoding="utf-8")
    weights = file_sha256(Path("teacher/best/model.safetensors"))
    assert (
        "- synthetic text, train.en and train.de: targets translated from text.en by `teacher` (weights "
        f"`{weights}`), BeamSearch(beam_size=2, early_stopping='optimal'), float32; 9 of 13 pairs removed"
    ) in card
    assert "- vocabulary: that of `teacher`" in card
    assert 'language:\n- "en"\n- "de"\n' in card
    assert "heedful distill teacher --src text.en" in card
    stored = Path("run/best/config.json").read_text(encoding="utf-8")
    assert "synthetic/" not in stored.replace("\\\\", "/")


@pytest.mark.slow
def test_several_teachers_translate_together_and_people_too(files: Path) -> None:
    save_untrained(files / "other" / "best")
    weights = ["--tgt", "text.de", "--weight", 2]
    (files / "text.en").write_bytes(text(SOURCES))
    outcome = heedful("distill", "teacher", "other", *DISTILL[1:], *weights, "-o", "run")
    assert outcome.code == 1  # which no filter changes: that text is the user's
    assert "2 of 2 validation pairs (100%) are in the training text too" in outcome.err.splitlines()[-1]
    outcome = heedful(
        "distill", "teacher", "other", *DISTILL[1:], *weights, *as_options({"data.allow_overlap": "true"}),
        "-o", "run", "--resume",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    together = heedful("translate", "teacher", "--ensemble", "other", stdin=text(SOURCES)).out
    assert lines("run/synthetic/translated.de") == together.splitlines()
    people, teachers = load_bundle("run").config.data.corpora
    assert (people.src, people.weight, people.provenance) == ("text.en", 1.0, None)
    assert (teachers.src, teachers.weight) == ("train.en", 2.0)
    assert "`teacher` (weights" in str(teachers.provenance)
    assert "and `other` (weights" in str(teachers.provenance)


def test_back_translations_are_tagged_sources(files: Path) -> None:
    search = ["--sample", "--temperature", 1.5, "--seed", 3]
    outcome = heedful("back-translate", *BACK_TRANSLATE, *search, "-o", "run")
    assert outcome.code == 0, outcome.err
    expected = heedful("translate", "reverse", *search, stdin=text(lines("mono.de"))).out
    assert lines("run/synthetic/translated.en") == expected.splitlines()
    assert set(lines("run/synthetic/clean/train.de")) <= {*TARGETS}
    student = load_bundle("run")
    people, synthetic = student.config.data.corpora
    assert (people.src, people.tag, synthetic.src, synthetic.tag) == ("few.en", None, "train.en", "<BT>")
    assert student.tokenizers.src.tag_ids("<BT>")
    card = Path("run/best/README.md").read_text(encoding="utf-8")
    assert "with the tag `<BT>`: sources translated from mono.de by `reverse` (weights `" in card
    assert "Sampling(" in card
    outcome = heedful("back-translate", *BACK_TRANSLATE, "--tag", "", "-o", "untagged")
    assert outcome.code == 0, outcome.err
    assert load_bundle("untagged").config.data.corpora[1].tag is None


OF_STUDENT = {"valid_src": "valid.en", "valid_tgt": Path("valid.de"), "src": "text.en", "beam_size": 2}
OF_SAMPLES = {
    "keep": "duplicate-pair", "mono": Path("mono.de"), "src": "few.en", "tgt": "few.de", "tag": "<MT>",
    "threads": 1, "seed": 3, "sample": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "model", "options"),
    [("distill", "teacher", OF_STUDENT), ("back-translate", "reverse", OF_SAMPLES)],
)
def test_python_makes_the_bundle_of_the_command(
    files: Path, verb: str, model: str, options: dict[str, object]
) -> None:
    settings = SETTINGS | {"train.max_steps": 2, "data.allow_overlap": True}
    settings |= {} if verb == "distill" else {"tokenizer.vocab_size": 60}
    words = [model, "--output", "by-command", "--preset", "tiny"]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    words += as_options({key: "true" if value is True else value for key, value in settings.items()})
    outcome = heedful(verb, *words)
    assert outcome.code == 0, outcome.err
    function = getattr(package, verb.replace("-", "_"))
    run = function(model, output="by-python", preset="tiny", settings=settings, **options)
    assert run.best == Path("by-python", "best")
    assert bundle("by-python") == bundle("by-command")
    made = [
        path.relative_to("by-python") for path in Path("by-python", "synthetic").rglob("*") if path.is_file()
    ]
    assert len(made) >= 5
    for path in made:
        assert ("by-python" / path).read_bytes() == ("by-command" / path).read_bytes(), path


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9")
@pytest.mark.parametrize("command", [["distill", *DISTILL], ["back-translate", *BACK_TRANSLATE]])
@pytest.mark.slow
def test_a_run_that_is_killed_at_any_stage_ends_in_the_same_bundle(files: Path, command: list[str]) -> None:
    assert_killed([(*moment, [*command, "-o", f"killed-{name}"]) for name, moment in MOMENTS.items()])
    assert any(Path("killed-chunk/synthetic").glob("translated.*.unfinished.json"))
    assert not Path("killed-clean/synthetic/clean").exists()
    assert not Path("killed-start/config.toml").exists()
    assert Path("killed-bundle/checkpoints/step-3").exists()
    assert not Path("killed-bundle/best").exists()
    assert heedful(*command, "-o", "whole").code == 0
    expected = bundle("whole")
    for name in MOMENTS:
        outcome = heedful(*command, "-o", f"killed-{name}", "--resume")
        assert outcome.code == 0, outcome.err
        assert bundle(f"killed-{name}") == expected, name


@pytest.mark.parametrize(
    ("change", "code", "name"),
    [
        (["--src", "."], 1, "."),
        (["--tgt", "few.de"], 1, "few.de"),
        (["--valid-tgt", "few.en", "--valid-src", "text.en"], 1, "few.en"),
        (["--weight", "2"], 2, "--weight"),
        (["--set", "model.nun_heads=2"], 2, "'num_heads'"),
        (["--set", "tokenizer.vocab_size=70"], 2, "tokenizer.bundle"),
        (["--tgt-lang", "fr"], 1, "tgt_lang"),
        (["nowhere"], 1, "nowhere"),
    ],
)
def test_bad_input_is_refused_before_the_translation(
    files: Path, change: list[str], code: int, name: str
) -> None:
    assert_one_clear_line(heedful("distill", *DISTILL, *change, "-o", "run"), code, name)
    assert not list(files.glob("run/synthetic/translated*"))


def test_processes_of_torchrun_are_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert_one_clear_line(heedful("distill", *DISTILL, "-o", "run"), 1, "heedful train")


@pytest.mark.parametrize("ending", ["de", "json"])
def test_a_start_that_is_continued_without_validation_text_keeps_its_pairs(files: Path, ending: str) -> None:
    shutil.copy("valid.de", "valid.json")
    options = [f"valid.{ending}" if each == "valid.de" else each for each in (*DISTILL, "-o", "run")]
    # No pair is that short, which is noticed after the translation.
    assert heedful("distill", *options, "--set", "data.max_length=1").code == 1
    translated = Path(f"run/synthetic/translated.{ending}").stat().st_mtime_ns
    at = options.index("--valid-src")
    outcome = heedful("distill", *options[:at], *options[at + 4 :], "--resume")
    assert outcome.code == 0, outcome.err
    assert Path(f"run/synthetic/translated.{ending}").stat().st_mtime_ns == translated
    assert len(list(files.glob("run/synthetic/translated*"))) == 1


def test_a_start_without_its_model_leaves_nothing_and_moves_nothing(files: Path) -> None:
    (files / "run").mkdir()
    (files / "run" / "config.toml").touch()
    missing = ["back-translate", "none", *BACK_TRANSLATE[1:], "-o"]
    assert heedful(*missing, "run", "--overwrite").code == 1
    assert heedful(*missing, "new").code == 1
    assert (files / "run" / "config.toml").exists()
    assert not (files / "new").exists()


@pytest.mark.slow
def test_an_earlier_start_is_continued_only_by_the_same_command(files: Path) -> None:
    started = ["distill", *DISTILL, "--set", "data.max_length=1", "-o", "run"]
    assert heedful(*started).code == 1  # no pair is that short, which is noticed after the translation
    translated = Path("run/synthetic/translated.de").stat().st_mtime_ns
    assert_one_clear_line(heedful("distill", *DISTILL, "-o", "run"), 1, "--resume", "--overwrite")
    for change, message in (
        (["--beam-size", 3], "strategy="),
        (["--keep", "duplicate-pair"], "--keep="),
        (["--src", "mono.en"], "checksum"),
    ):
        outcome = heedful("distill", *DISTILL, *change, "-o", "run", "--resume")
        assert_one_clear_line(outcome, 1, "synthetic: ", message, "--overwrite")
    outcome = heedful("distill", *DISTILL, "-o", "run", "--resume")  # the training may have other settings
    assert outcome.code == 0, outcome.err
    assert Path("run/synthetic/translated.de").stat().st_mtime_ns == translated
    assert_one_clear_line(heedful("distill", *DISTILL, "-o", "run"), 1, "--resume to go on")
    (files / "run" / "text.en").write_bytes(text(SOURCES))
    moved = ["--src", "run/text.en", "--overwrite"]
    outcome = heedful("distill", *DISTILL, *moved, "-o", "run")
    assert_one_clear_line(outcome, 1, "run/text.en")
    assert heedful("distill", *DISTILL, "--overwrite", "-o", "run").code == 0
    again, before = bundle("run"), bundle("run.old-1")
    assert again["best/model.safetensors"] == before["best/model.safetensors"]


def test_text_that_has_changed_is_made_again(files: Path) -> None:
    started = ["distill", *DISTILL, "--set", "data.max_length=1", "-o", "run", "--resume"]
    assert heedful(*started).code == 1  # no pair is that short, which is noticed after the filters
    folder = Path("run/synthetic")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name in ("translated.de", "clean/train.en"):
        (folder / name).write_bytes(bytes(len(before[folder / name])))
        assert heedful(*started).code == 1
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_vocabulary_without_the_tag_is_refused(files: Path) -> None:
    outcome = heedful(
        "back-translate", *BACK_TRANSLATE, *as_options({"tokenizer.bundle": "reverse"}), "-o", "run"
    )
    assert outcome.code == 1
    assert "error: languages.src_tag: " in outcome.err
    assert "<BT>" in outcome.err.splitlines()[-1]
