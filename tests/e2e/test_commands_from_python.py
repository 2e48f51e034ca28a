"""What a command does, its function in Python does: the same bytes come out."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import heedful as command
from command_line import text
from ten_pairs import as_options, write_sides
from tiny_bundle import SOURCES, TARGETS, memorised, save_memorised, save_untrained

import heedful
from heedful.interop.ctranslate2.export import export_ctranslate2

HTML = "<html><body><p>the cat <b>sleeps</b> .</p><p>the dog sleeps .</p></body></html>"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with models, lines, shards and documents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("heedful.bulk.lines.CHUNK_LINES", 4)
    save_memorised(Path("run"))
    save_untrained(Path("other"))
    Path("in.en").write_bytes(text([*SOURCES, "", *SOURCES]))
    Path("ref.de").write_bytes(text([*TARGETS, "", *TARGETS[::-1]]))
    Path("in.en.gz").write_bytes(gzip.compress(text(SOURCES)))
    Path("terms.tsv").write_text("cat\tKatze\n", encoding="utf-8")
    Path("shards").mkdir()
    for name, lines in (("a.txt", SOURCES[:2]), ("b.txt", SOURCES[2:])):
        Path("shards", name).write_bytes(text(lines))
    Path("site/sub").mkdir(parents=True)
    for name in ("page.html", "site/index.html", "site/sub/index.html"):
        Path(name).write_text(HTML, encoding="utf-8")
    Path("site/style.css").write_text("p {}", encoding="utf-8")
    return tmp_path


def content(path: Path) -> dict[str, bytes]:
    """A file, or the files of a directory, which may name it."""
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    return {str(each.relative_to(path)): each.read_bytes().replace(path.name.encode(), b"") for each in files}


@pytest.mark.parametrize(
    ("source", "output", "options"),
    [
        ("in.en", "lines", {}),
        ("in.en", "best.gz", {"n_best": 2, "beam_size": 3, "length_penalty": 1.0}),
        ("in.en.gz", "objects", {"json": True, "glossary": "terms.tsv", "sample": False}),
        ("in.en", "drawn", {"scores": True, "sample": True, "seed": 5, "precision": "bf16"}),
        ("in.en", "together", {"ensemble": "other", "batch_tokens": 50}),
        ("shards", "shards", {"scores": True}),
        ("shards/b*", "some", {"beam_size": 1}),
        ("page.html", "page.html", {}),
        ("site", "site", {"document": True}),
    ],
)
def test_a_file_is_translated_as_by_the_command(
    folder: Path, source: str, output: str, options: dict[str, object]
) -> None:
    words = [] if source.endswith(".html") or "document" in options else ["--input"]
    words = [*(words or ["--document"]), source]
    for name, value in options.items():
        if value is not False and name != "document":
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    by_command, by_python = Path(f"by-command-{output}"), Path(f"by-python-{output}")
    outcome = command("translate", "run", *words, "--output", by_command)
    assert outcome.code == 0, outcome.err
    heedful.translate_file("run", source, by_python, **options)
    assert content(by_python) == content(by_command) != {}
    if {"precision", "ensemble"}.isdisjoint(options):
        heedful.translate_file(heedful.Translator.load("run"), Path(source), f"again-{output}", **options)
        assert content(Path(f"again-{output}")) == content(by_command)


def test_a_translation_goes_on_where_it_was_interrupted(folder: Path) -> None:
    translator, notices = heedful.Translator.load("run"), list[str]()
    heedful.translate_file(translator, "in.en", "whole.de")
    good = Path("in.en").read_bytes()
    Path("in.en").write_bytes(good.replace(text(["", *SOURCES[:1]]), b"\n\xff\n"))
    with pytest.raises(heedful.CorpusError):
        heedful.translate_file(translator, "in.en", "out.de")
    assert not Path("out.de").exists()
    Path("in.en").write_bytes(good)
    with pytest.raises(heedful.HeedfulError, match="beam_size"):
        heedful.translate_file(translator, "in.en", "out.de", resume=True, beam_size=1)
    heedful.translate_file(translator, "in.en", "out.de", resume=True, notify=notices.append)
    assert notices == ["resuming after line 4"]
    assert Path("out.de").read_bytes() == Path("whole.de").read_bytes()


def test_a_translation_of_a_model_in_memory_goes_on_with_that_model_alone(folder: Path) -> None:
    lines = Path("in.en").read_bytes()
    Path("bad.en").write_bytes(lines.replace(text(["", *SOURCES[:1]]), b"\n\xff\n"))
    with pytest.raises(heedful.CorpusError):
        heedful.translate_file(heedful.Translator(memorised()), "bad.en", "out.de")
    bundle = replace(memorised(), network=heedful.load_model("run"))
    bundle.model.load_state_dict({name: -each for name, each in bundle.model.state_dict().items()})
    with pytest.raises(heedful.HeedfulError, match="model"):
        heedful.translate_file(heedful.Translator(bundle), "in.en", "out.de", resume=True)
    heedful.translate_file(heedful.Translator(memorised()), "in.en", "out.de", resume=True)
    heedful.translate_file("run", "in.en", "whole.de")
    assert Path("out.de").read_bytes() == Path("whole.de").read_bytes()


@pytest.mark.parametrize("given", ["path", "translator", "outputs"])
def test_scores_are_those_of_the_command(folder: Path, given: str) -> None:
    options = ["--metric", "bleu,chrf,ter,exact", "--resamples", 20, "--beam-size", 1, "--json"]
    shown = json.loads(command("evaluate", "run", "--src", "in.en", "--ref", "ref.de", *options).out)
    translator = heedful.Translator.load("run")
    system = {
        "path": "run",
        "translator": translator,
        "outputs": translator.translate(Path("in.en").read_text().splitlines(), beam_size=1),
    }[given]
    search = {} if given == "outputs" else {"beam_size": 1}
    report = heedful.evaluate(
        system, src="in.en", ref="ref.de", metric="bleu,chrf,ter,exact", resamples=20, **search
    )
    assert json.loads(json.dumps(report.as_dict())).items() <= shown.items()


def test_models_are_exchanged_as_by_the_command(folder: Path) -> None:
    assert command("export", "run", "--to", "ctranslate2", "-o", "by-command-ct2").code == 0
    heedful.export_model("run", to="ctranslate2", output="by-python-ct2")
    assert content(Path("by-python-ct2")) == content(Path("by-command-ct2"))
    export_ctranslate2(memorised(), Path("ct2"), quantization=None)
    assert command("import", "ct2", "-o", "by-command").code == 0
    assert heedful.import_model("ct2", output="by-python") == Path("by-python")
    assert content(Path("by-python")) == content(Path("by-command"))


def test_a_training_is_that_of_the_command(folder: Path) -> None:
    write_sides(train=8, valid=2)
    settings: dict[str, object] = {
        "model.d_model": 8, "model.num_heads": 2, "model.d_ff": 8, "tokenizer.vocab_size": 200,
        "data.allow_overlap": True, "data.cache_dir": "cache", "train.max_steps": 2, "train.threads": 1,
        "train.processes": 1, "valid.decode_sentences": 2,
    }  # fmt: skip
    texts = {"src": "train.en", "tgt": "train.de", "valid_src": "valid.en", "valid_tgt": "valid.de"}
    words = [word for name, file in texts.items() for word in (f"--{name.replace('_', '-')}", file)]
    words += as_options({key: "true" if value is True else value for key, value in settings.items()})
    outcome = command("train", "--preset", "tiny", *words, "-o", "by-command")
    assert outcome.code == 0, outcome.err
    heedful.train(preset="tiny", settings=settings, output="by-python", **texts)
    for name in ("best", "last"):
        by_python, by_command = (content(Path(run, name)) for run in ("by-python", "by-command"))
        for file in by_command.keys() - {"README.md"}:  # it has the command
            assert by_python[file] == by_command[file], file
        assert by_python.keys() == by_command.keys()


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: heedful.evaluate(["Das Haus."], ref=["Das Haus."], metrics="chrf"), "metric"),
        (lambda: heedful.train(src="train.en", tgt="train.de", presett="tiny"), "preset"),
        (lambda: heedful.translate_file("model", "text.en", "text.de", documents=True), "document"),
        (lambda: heedful.import_model("model", output="bundle", layouts="marian"), "layout"),
        (lambda: heedful.distill("teacher", src="text.en", output="run", setting={}), "settings"),
        (lambda: heedful.train(src="train.en", tgt="train.de", max_step=2), "train.max_steps"),
    ],
)
def test_a_misspelt_parameter_is_corrected(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(heedful.HeedfulError, match=repr(meant)):
        call()
