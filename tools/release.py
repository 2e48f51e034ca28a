"""Check that a release can be made, use its files in empty environments, and write its notes: `make release`.

    python tools/release.py check                    # changelog, working tree, tags
    python tools/release.py try DIST PYTHON...       # installs and uses the wheel and the sdist of a folder
    python tools/release.py notes DIST > notes.md    # from the changelog
    python tools/release.py version

The environments have no compiler on their PATH, and no torch but where it is tried.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUNDLE = ROOT / "tests/golden/ten-pairs"
CHECK_WHEEL = ROOT / "tools/check_wheel.py"
SOURCE = "Please close the window before you leave."
TARGET = "Bitte schließen Sie das Fenster, bevor Sie gehen."
OLDEST = (3, 11)
FIND_PYTHON = "import sys, venv, ensurepip; print(*sys.version_info[:2], sys.executable)"
NOUNS = ("house", "dog", "ship", "garden", "letter", "window", "teacher", "clock")


class ReleaseError(Exception):
    """Why there is no release, in one line."""


def version_of(root: Path) -> str:
    """Return the version of the project."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def cited_versions(root: Path) -> dict[str, str]:
    """Return the version that each file with a citation names."""
    entries = {"CITATION.cff": r"^version: (\S+)$", "README.md": r"^  version = \{(\S+)\},$"}
    return {
        name: found[1]
        for name, entry in entries.items()
        if (found := re.search(entry, (root / name).read_text(encoding="utf-8"), re.MULTILINE))
    }


def section_of(changelog: str, version: str) -> str:
    """Return the entries of a version; a `ReleaseError` says that there are none, or no date."""
    sections = re.split(r"^## (.*)\n", changelog, flags=re.MULTILINE)
    for heading, text in zip(sections[1::2], sections[2::2], strict=True):
        if not heading.startswith(f"[{version}]"):
            continue
        if not re.fullmatch(r"\[.+\] - \d{4}-\d{2}-\d{2}", heading):
            raise ReleaseError(
                f"CHANGELOG.md: '## {heading}' has no date; write '## [{version}] - YYYY-MM-DD'"
            )
        if not re.search(r"^- ", text, re.MULTILINE):
            raise ReleaseError(f"CHANGELOG.md: the section of {version} has no entries")
        return text.strip()
    raise ReleaseError(
        f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'; name the entries of it so"
    )


def check(root: Path) -> None:
    """Check that this tree can become a release; a `ReleaseError` says why not."""
    version = version_of(root)
    section_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    for name, cited in cited_versions(root).items():
        if cited != version:
            raise ReleaseError(f"{name} cites version {cited}; write {version}")
    if _git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists; raise project.version in pyproject.toml")
    if changed := _git(root, "status", "--porcelain"):
        raise ReleaseError(f"the working tree differs from the last commit (first: {changed[0][3:]}); commit")


def _git(root: Path, *arguments: str) -> list[str]:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(done.stderr.strip().splitlines()[0])
    return done.stdout.splitlines()


def interpreters(names: list[str]) -> dict[str, str]:
    """Return the Pythons that are there and can make environments, by version."""
    found: dict[str, str] = {}
    for name in names:
        try:
            done = subprocess.run([name, "-c", FIND_PYTHON], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            major, minor, executable = done.stdout.rstrip("\n").split(" ", 2)
            if (int(major), int(minor)) >= OLDEST:
                found.setdefault(f"{major}.{minor}", executable)
    if not found:
        raise ReleaseError(f"no Python of at least 3.11 with its venv module (looked for: {' '.join(names)})")
    return found


class Environment:
    """The programs of a virtual environment, which have no others on their PATH; they run in a folder."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs.absolute(), folder.absolute()
        own = ("PYTHON", "VIRTUAL_ENV", "HEEDFUL", "CC", "CXX", "MAKE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        self._env = inherited | {"PATH": str(self.programs)}

    @classmethod
    def empty(cls, python: str, folder: Path) -> "Environment":
        """Make one with nothing installed."""
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        return cls(folder / "bin", folder)

    def start(self, program: str, *arguments: object) -> "subprocess.Popen[str]":
        """Start one of its programs."""
        command, pipe = [str(self.programs / program), *map(str, arguments)], subprocess.PIPE
        return subprocess.Popen(
            command, env=self._env, cwd=self.folder, encoding="utf8", stdin=pipe, stdout=pipe, stderr=pipe
        )

    def run(self, program: str, *arguments: object, text: str = "", code: int = 0) -> tuple[str, str]:
        """Run one of its programs, which has to end with this code; return its stdout and stderr."""
        process = self.start(program, *arguments)
        out, err = process.communicate(text)
        if process.returncode != code:
            last = (err.strip() or out.strip()).splitlines()[-1:]
            shown = f"{program} {' '.join(map(str, arguments))} in {self.folder}"
            raise ReleaseError(f"{shown}: exit code {process.returncode} ({''.join(last)})")
        return out, err

    def install(self, *requirements: object) -> None:
        """Install packages."""
        self.run("python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *requirements)
        self.run("python", "-m", "pip", "--disable-pip-version-check", "check")


def expect(what: str, found: object, expected: object) -> None:
    """Raise a ReleaseError where a result is another."""
    if found != expected:
        raise ReleaseError(f"{what}: {found!r}, expected {expected!r}")


def use_without_torch(environment: Environment, version: str) -> None:
    """Translate, score, inspect and serve."""
    find = "import importlib.util as u; print(u.find_spec('torch'))"
    expect("torch", environment.run("python", "-c", find)[0], "None\n")
    expect("--version", environment.run("heedful", "--version")[0], f"heedful {version}\n")
    environment.run("python", CHECK_WHEEL)
    expect("translate", environment.run("heedful", "translate", BUNDLE, text=f"{SOURCE}\n")[0], f"{TARGET}\n")
    sides = []
    for side, line in (("src", SOURCE), ("tgt", TARGET)):
        (environment.folder / side).write_text(f"{line}\n", encoding="utf-8")
        sides += [f"--{side}", environment.folder / side]
    scores = environment.run("heedful", "score", BUNDLE, *sides)[0]
    expect("score", scores.rstrip("\n").split("\t")[2:], [TARGET])
    described = json.loads(environment.run("heedful", "inspect", BUNDLE, "--json")[0])
    expect("inspect", described["config"]["model"]["d_model"], 32)
    serve(environment)
    train = environment.run("heedful", "train", *sides, code=1)[1]
    expect("train names torch", ("torch" in train, train.count("\n")), (True, 1))


def serve(environment: Environment) -> None:
    """Start the service, translate with it, and end it."""
    process = environment.start("heedful", "serve", f"en-de={BUNDLE}", "--port", 0)
    assert process.stderr is not None
    try:
        shown = ""
        while (address := re.search(r"running on (http://\S+)", shown)) is None:
            if not (line := process.stderr.readline()):
                raise ReleaseError(f"heedful serve ended: {shown.strip()[-200:]}")
            shown += line
        body = json.dumps({"q": SOURCE, "source": "en", "target": "de"}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address[1]}/translate", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            expect("serve", json.load(answer), {"translatedText": TARGET})
    finally:
        process.terminate()
        process.communicate(timeout=60)
    expect("serve, exit code", process.returncode, 0)


def use_with_torch(environment: Environment, *, native: bool) -> None:
    """Take a few training steps, and translate with what came of them."""
    folder = environment.folder
    lines = [f"The {one} is near the {other}.\n" for one in NOUNS for other in NOUNS]
    (folder / "text").write_text("".join(lines), encoding="utf-8")
    settings = ("tokenizer.vocab_size=100", "train.max_steps=3", f"data.cache_dir={folder / 'cache'}")
    options = [part for each in settings for part in ("--set", each)]
    sides, run = ["--src", folder / "text", "--tgt", folder / "text"], folder / "run"
    environment.run("heedful", "train", *sides, "--preset", "tiny", "-o", run, *options)
    environment.run("heedful", "translate", run, text=f"{SOURCE}\n")
    out = environment.run("heedful", "translate", BUNDLE, "--engine", "torch", text=f"{SOURCE}\n")[0]
    expect("translate --engine torch", out, f"{TARGET}\n")
    machine = environment.run("heedful", "inspect", "--machine")[0]
    expect("the native library", "no working C compiler" not in machine, native)


def try_files(dist: Path, names: list[str], folder: Path) -> None:
    """Use the wheel with each Python, and torch and the sdist with the version of this one."""
    version, pythons = version_of(ROOT), interpreters(names)
    [wheel], [sdist] = ([path.resolve() for path in dist.glob(form)] for form in ("*.whl", "*.tar.gz"))
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name, python in pythons.items():
        environment = Environment.empty(python, folder / f"wheel-{name}")
        environment.install(f"{wheel}[serve]")
        use_without_torch(environment, version)
        print(f"Python {name}: the wheel works without torch or a compiler", flush=True)
        if name == own:
            environment.install("--constraint", ROOT / "constraints.txt", f"{wheel}[torch]")
            use_with_torch(environment, native=True)
            print(f"Python {name}: the wheel trains with torch", flush=True)
    environment = Environment.empty(sys.executable, folder / f"sdist-{own}")
    environment.install("--constraint", ROOT / "constraints.txt", f"{sdist}[torch]")
    use_with_torch(environment, native=False)
    print(f"Python {own}: the sdist installs without a compiler, and trains and translates with torch")
    if missing := [name for name in ("3.11", "3.12", "3.13") if name not in pythons]:
        print(f"not tried, because they are not here: Python {', '.join(missing)}")


def notes(root: Path, dist: Path) -> str:
    """Return the notes of the release: its entries of the changelog, and the checksums of its files."""
    version = version_of(root)
    section = section_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    files = sorted(path for path in dist.iterdir() if path.name.endswith((".whl", ".tar.gz")))
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    return f"# heedful {version}\n\n{section}\n\n### Files (SHA-256)\n\n```\n{sums}```\n"


def main(arguments: list[str]) -> None:
    """Do one of these."""
    try:
        match arguments:
            case ["check"]:
                check(ROOT)
            case ["try", dist, *names] if names:
                try_files(Path(dist), names, ROOT / "build/release")
            case ["notes", dist]:
                print(notes(ROOT, Path(dist)), end="")
            case ["version"]:
                print(version_of(ROOT))
            case _:
                sys.exit("usage: python tools/release.py check | try DIST PYTHON... | notes DIST | version")
    except ReleaseError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
