"""heedful align: Pharaoh lines from files and stdin."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from machine_class import need_native
from tiny_bundle import PAIRS, SOURCES, TARGETS, save_memorised

from heedful.decoding.alignment import BY_ATTENTION, AlignmentMethod
from heedful.decoding.backends.choice import EngineChoice
from heedful.decoding.translator import Translator
from heedful.storage.bundle import load_bundle
from heedful.tasks.options import ShortlistOptions
from heedful.tasks.shortlist import learn_shortlist

pytestmark = pytest.mark.by_class


def expected(run: Path, method: AlignmentMethod | None = BY_ATTENTION, engine: EngineChoice = "auto") -> str:
    """Align with the stored bundle: the model in memory may be packed for a level of another test."""
    sources, targets = zip(*PAIRS, strict=True)
    translator = Translator(load_bundle(run / "best"), engine=engine)
    return "".join(f"{each}\n" for each in translator.align(sources, targets, method=method))


def test_files_and_stdin_are_aligned_line_by_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "t.gz").write_bytes(gzip.compress(text(TARGETS)))
    files = ["align", run, "--src", tmp_path / "s", "--tgt"]
    assert heedful(*files, tmp_path / "t.gz") == Outcome(0, expected(run), "")
    assert heedful(*files, "-", stdin=text(TARGETS)) == Outcome(0, expected(run), "")
    chosen = AlignmentMethod(layer=2, shift=True)
    outcome = heedful(*files, tmp_path / "t.gz", "--layer", 2, "--shift", "--output", tmp_path / "out")
    assert outcome == Outcome(0, "", "")
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected(run, chosen) != expected(run)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_the_hypotheses_of_json_are_aligned_as_their_texts(
    run: Path, tmp_path: Path, engine: EngineChoice
) -> None:
    if engine == "native":
        need_native()
    lines = [*SOURCES, "", "the mouse sees the old house and the dog ."]
    arguments = ["translate", run, "--json", "--n-best", 2, "--engine", engine]
    records = [json.loads(line) for line in heedful(*arguments, stdin=text(lines)).out.splitlines()]
    pairs = [(record["source"], each) for record in records for each in record["hypotheses"]]
    (tmp_path / "s").write_bytes(text([source for source, _ in pairs]))
    targets = text([each["text"] for _, each in pairs])
    outcome = heedful("align", run, "--src", tmp_path / "s", "--tgt", "-", "--engine", engine, stdin=targets)
    links = [" ".join(f"{src}-{tgt}" for src, tgt in each["alignment"]) for _, each in pairs]
    assert links == outcome.out.splitlines()
    assert len(links) == 2 * (len(lines) - 1)


def test_the_computation_is_chosen_as_for_a_translation(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text(SOURCES))
    files = ["align", run, "--src", tmp_path / "s", "--tgt", "-"]
    chosen = heedful(*files, "--device", "cpu", "--engine", "torch", "--threads", 1, stdin=text(TARGETS))
    assert chosen == Outcome(0, expected(run, engine="torch"), "")
    for option, value in (("device", "abacus"), ("precision", "int3"), ("engine", "steam")):
        outcome = heedful(*files, f"--{option}", value, stdin=text(TARGETS))
        assert_one_clear_line(outcome, 2, f"--{option}", value)


def test_empty_lines_stay_empty_lines(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text([SOURCES[0], "", SOURCES[1]]))
    (tmp_path / "t").write_bytes(text([TARGETS[0], "", ""]))
    outcome = heedful("align", run, "--src", tmp_path / "s", "--tgt", tmp_path / "t")
    assert outcome == Outcome(0, expected(run).split("\n")[0] + "\n\n\n", "")


def test_what_cannot_be_aligned_is_one_clear_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "t").write_bytes(text(TARGETS[:-1]))
    files = ["align", run, "--src", tmp_path / "s", "--tgt"]
    unequal = heedful(*files, tmp_path / "t", "--output", tmp_path / "out")
    assert_one_clear_line(unequal, 1, "5 lines", "6", "first unmatched line: 6")
    assert not (tmp_path / "out").exists()
    streamed = heedful(*files, "-", stdin=text(TARGETS[:-1]))
    assert_one_clear_line(streamed, 1, "stdin: 5 lines", "first unmatched line: 6")
    assert_one_clear_line(heedful(*files, "-", "--layer", 3), 1, "layer 3", "layers 1 to 2")
    assert_one_clear_line(heedful(*files, tmp_path / "none"), 1, "none: cannot be read")
    assert_one_clear_line(heedful(*files, "-", "--output", tmp_path / "s"), 1, "is the input too")
    assert_one_clear_line(heedful("align", run, "--src", "-", "--tgt", "-"), 2, "cannot both be stdin")


def test_an_aligner_is_learned_into_the_bundle_and_used(run: Path, tmp_path: Path) -> None:
    own = tmp_path / "run"
    shutil.copytree(run, own)
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "t").write_bytes(text(TARGETS))
    files = ["align", own, "--src", tmp_path / "s", "--tgt", tmp_path / "t"]
    by_attention, translations = heedful(*files), heedful("translate", own, stdin=text(SOURCES))
    learned = heedful(*files, "--learn")
    assert (learned.code, learned.err.startswith("warning: 6 pairs are few")) == (0, True)
    assert learned.out.startswith(f"{own / 'best' / 'aligner.safetensors'}\n  learned   from 6 pairs in ")
    assert heedful(*files) == Outcome(0, expected(own, None), "") != by_attention
    assert heedful(*files, "--layer", 1) == by_attention
    assert heedful("translate", own, stdin=text(SOURCES)) == translations
    records = [
        json.loads(each) for each in heedful("translate", own, "--json", stdin=text(SOURCES)).out.splitlines()
    ]
    (tmp_path / "h").write_bytes(text([each["text"] for each in records]))
    links = [each["hypotheses"][0]["alignment"] for each in records]
    shown = [" ".join(f"{src}-{tgt}" for src, tgt in each) for each in links]
    assert heedful(*files[:-1], tmp_path / "h").out.splitlines() == shown
    for option in (["--layer", 1], ["--shift"], ["--output", tmp_path / "out"]):
        assert_one_clear_line(heedful(*files, "--learn", *option), 2, option[0], "--learn")
    file = own / "best" / "aligner.safetensors"
    shown = heedful("inspect", own).out
    size = f"{file.stat().st_size / 1e6:,.1f} MB"
    assert f"\n  aligner   learned from 6 pairs of 's' and 't', {size}\n" in shown
    found = json.loads(heedful("inspect", own, "--json").out)["bundle"]["aligner"]
    assert found == {"text": ["s", "t"], "pairs": 6, "num_bytes": file.stat().st_size}
    assert "aligner" not in heedful("inspect", run).out
    (tmp_path / "t").write_bytes(text(["", *TARGETS[:-2], ""]))
    (tmp_path / "s").write_bytes(text([SOURCES[0], *[""] * 4, SOURCES[1]]))
    assert_one_clear_line(heedful(*files, "--learn"), 1, str(tmp_path / "s"))


def test_text_that_no_aligner_can_learn_from_is_refused(run: Path, tmp_path: Path) -> None:
    own = tmp_path / "run"
    shutil.copytree(run, own)
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "t").write_bytes(text(TARGETS))
    (tmp_path / "one").write_bytes(text(SOURCES[:1]))
    before = sorted(own.rglob("*"))

    def learned(src: Path | str, tgt: Path | str, *options: object) -> Outcome:
        return heedful("align", own, "--src", src, "--tgt", tgt, "--learn", *options)

    assert_one_clear_line(learned(tmp_path / "one", tmp_path / "one"), 1, str(tmp_path / "one"))
    assert_one_clear_line(learned("-", "-"), 2, "--src and --tgt")
    assert_one_clear_line(learned(tmp_path / "s", "-"), 1, "stdin")
    files = tmp_path / "s", tmp_path / "t"
    for option in ("--src-lang", "--tgt-lang"):
        refused = heedful("align", own, "--src", files[0], "--tgt", files[1], option, "xx")
        assert_one_clear_line(learned(*files, option, "xx"), 1, refused.err.strip())
    assert sorted(own.rglob("*")) == before
    (own / "best" / "aligner.safetensors").mkdir()  # so it cannot be written
    assert_one_clear_line(learned(*files), 1, "aligner.safetensors")
    assert sorted(own.rglob("*")) == sorted([*before, own / "best" / "aligner.safetensors"])


SRC = "".join(f"{source}\n" for source, _ in PAIRS)
TGT = "".join(f"{target}\n" for _, target in PAIRS)


@pytest.fixture(scope="module")
def run_with_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_with_text = save_memorised(tmp_path_factory.mktemp("runs") / "demo" / "best").parent
    (run_with_text / "train.en").write_text(SRC, encoding="utf-8")
    (run_with_text / "train.de").write_text(TGT, encoding="utf-8")
    return run_with_text


def learn(run_with_text: Path, output: Path, *settings: object) -> list[object]:
    files = ["--src", run_with_text / "train.en", "--tgt", run_with_text / "train.de", "--output", output]
    return ["shortlist", run_with_text, *files, *settings]


def test_the_progress_of_a_check_is_that_of_its_translations(run_with_text: Path, tmp_path: Path) -> None:
    src, tgt = (run_with_text / f"train.{side}" for side in ("en", "de"))
    shown: list[tuple[str, float]] = []
    report = learn_shortlist(
        ShortlistOptions(run=run_with_text, src=src, tgt=tgt, output=tmp_path / "list", check=src),
        on_progress=lambda what, done: shown.append((what, done)),
    )
    assert report.effect is not None
    shares = [number / 6 for number in range(1, 7)]
    assert shown == [
        ("learning", 0.0),
        *((f"translating {how} it", share) for how in ("without", "with") for share in shares),
    ]


def test_a_shortlist_is_measured_and_used(run_with_text: Path, tmp_path: Path) -> None:
    good, none = tmp_path / "good", tmp_path / "none"
    outcome = heedful(*learn(run_with_text, good, "--check", run_with_text / "train.en", "--json"))
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert (found["path"], found["pairs"]) == (str(good), 6)
    assert found["effect"]["tokens_outside"] == found["effect"]["texts_changed"] == 0
    assert found["effect"]["sentences"] == 6 < found["effect"]["tokens"]
    assert outcome.err == (
        "warning: 6 pairs are few: learned from fewer than 10,000, a shortlist lacks many translations; take "
        "more text, or measure its effect with --check\n"
    )
    shown = heedful(
        *learn(run_with_text, none, "--candidates", 0, "--frequent", 0, "--check", run_with_text / "train.en")
    ).out
    assert "6 of 6 texts" in shown

    stdin, translate = SRC.encode(), ("translate", run_with_text)
    assert heedful(*translate, "--shortlist", good, stdin=stdin).out == TGT
    assert heedful(*translate, "--shortlist", none, stdin=stdin).out != TGT
    files = ("--src", run_with_text / "train.en", "--ref", run_with_text / "train.de", "--json")
    scores = [
        json.loads(heedful("evaluate", run_with_text, *files, "--shortlist", each).out)["bleu"]
        for each in (good, none)
    ]
    assert scores[0] > 99 > 50 > scores[1]


def test_score_finds_impossible_what_the_shortlist_has_not(run_with_text: Path, tmp_path: Path) -> None:
    path = tmp_path / "list"
    heedful(*learn(run_with_text, path, "--candidates", 0, "--frequent", 0))
    outcome = heedful(
        "score",
        run_with_text,
        "--src",
        run_with_text / "train.en",
        "--tgt",
        run_with_text / "train.de",
        "--shortlist",
        path,
    )
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("-inf\t-inf\tdie Katze")


def test_shortlists_that_cannot_be_read_or_written_are_refused(run_with_text: Path, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("x")
    translate = ("translate", run_with_text, "--shortlist")
    for arguments in (learn(run_with_text, path), [*translate, tmp_path / "missing"], [*translate, path]):
        name = arguments[-1] if arguments[0] == "translate" else path
        assert_one_clear_line(heedful(*arguments, stdin=b"the cat\n"), 1, f"{name}: ")
