"""What the README says is run here: its commands on little text, its Python, its links."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import heedful
from ten_pairs import ENGLISH, GERMAN, as_options
from tiny_bundle import save_memorised

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Added to the README's training commands, so that they are over in seconds.
SHORT = {
    "tokenizer.vocab_size": 200,
    "train.max_minutes": 0.02,
    "train.threads": 1,
    "valid.decode_sentences": 2,
    "data.cache_dir": "cache",
    "data.allow_overlap": "true",  # validation here is the first of ten pairs
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith("heedful ")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for side, text in (("en", ENGLISH), ("de", GERMAN)):
        for name in ("train", "valid", "val", "test", "input"):
            lines = text if name == "train" else text[:3]
            Path(f"{name}.{side}").write_text("\n".join([*lines, ""]), encoding="utf-8")
    shutil.copytree(ROOT / "recipes", "recipes")
    save_memorised(Path("runs/demo"))
    return tmp_path


def test_every_command_of_the_readme_runs(folder: Path) -> None:
    verbs = []
    for command in commands():
        words, stdin, stdout = [], b"", None
        arguments = iter(command[1:])
        for word in arguments:
            if word == "<":
                stdin = Path(next(arguments)).read_bytes()
            elif word == ">":
                stdout = Path(next(arguments))
            else:
                words.append(word)
        if words[0] == "train":
            words += as_options(SHORT)
        outcome = heedful(*words, stdin=stdin)
        assert outcome.code == 0, (command, outcome.err)
        if stdout is not None:
            stdout.write_text(outcome.out, encoding="utf-8")
        verbs.append(words[0])
    assert {"train", "translate", "evaluate", "attention", "plot"} <= set(verbs)
    assert len((folder / "output.de").read_text(encoding="utf-8").splitlines()) == 3
    assert (folder / "map.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "runs/en-de/curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_python_of_the_readme_runs(folder: Path) -> None:
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})


def test_the_make_targets_of_the_readme_exist() -> None:
    targets = re.findall(r"^make (\w+)$", "".join(blocks("sh")), re.MULTILINE)
    assert targets == ["demo", "test", "serve"]
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
)
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / link).exists(), link


def test_the_paper_map_names_files_that_exist() -> None:
    named = re.findall(r"`(src/[^`]+)`", (ROOT / "docs/paper-map.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    for path in named:
        assert (ROOT / path).exists(), path
