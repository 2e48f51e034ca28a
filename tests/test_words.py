"""The field's words: code, docs and README use none of the words that only this project used."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "heedful"

# Refused everywhere, as whole words.
RETIRED = {
    "begun": "started; prefix",
    "by chance": "sampled, at random",
    "chance": "random generator",
    "fed": "input, prefetched",
    "follower": "worker",
    "held back": "penalised",
    "judge": "check, validate",
    "judged": "checked, validated",
    "leader": "rank 0",
    "longer side": "max(src_len, tgt_len)",
    "made up": "synthetic, random",
    "made-up": "synthetic, random",
    "milestone": "regular checkpoint",
    "milestones": "regular checkpoints",
    "piece": "token; chunk",
    "pieces": "tokens; chunks",
    "processor": "CPU",
    "processors": "CPUs",
    "room": "buffer, space, capacity",
    "setback": "rollback",
    "setbacks": "rollbacks",
    "sides": "source and target",
    "such as it is": "say it plainly",
    "surroundings": "trainer callbacks",
    "team": "process group",
    "told": "overrides, options",
    "wish": "option",
    "wishes": "overrides, options",
}
# Refused as a part of a name: in prose they are ordinary English.
RETIRED_NAMES = {
    "ended": "finished",
    "feed": "data_loader",
    "found": "results, matches",
    "given": "references, overrides",
    "kept": "retained",
    "place": "position, index, slot",
    "places": "positions",
    "side": "source or target; text, stack",
    "together": "batch",
    "wanted": "requested, targets",
}
# Parts of names that are right: terms of the field, of libraries, and of stored files.
RIGHT_NAMES = re.compile(
    "in_place|feed_?forward|not_?found|num_kept|SentencePiece(Processor)?|id_to_piece|piece_to_id|get_piece_size|decode_pieces",
    re.IGNORECASE,
)
# (file, word): keys and names of formats, names of Python's library, and the tokenizers' method.
ALLOWED = {
    ("verbs/score.py", "piece"),
    ("text/sentencepiece_tokenizer.py", "pieces"),
    ("text/vocabulary_tokenizer.py", "pieces"),
    ("text/vocabulary_tokenizer.py", "piece"),
    ("training/checkpoint.py", "milestones"),
    ("training/checkpoint.py", "setbacks"),
    ("verbs/inspect.py", "processor"),
    ("documents/encodings.py", "feed"),
}
PROSE = re.compile(rf"(?<![\w-])({'|'.join(sorted(RETIRED, key=len, reverse=True))})(?![\w-])", re.IGNORECASE)


def words_in(name: str) -> list[str]:
    """Split `snake_case` and `CamelCase` into lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", RIGHT_NAMES.sub("", name))]


def retired_in_prose(text: str, where: str) -> Iterator[tuple[str, str]]:
    """Yield each retired word of a text, with a message."""
    for number, line in enumerate(text.split("\n"), start=1):
        for word in PROSE.findall(line):
            yield word.lower(), f"{where}:{number}: {word!r} is retired; say: {RETIRED[word.lower()]}"


def retired_in_code(source: str, where: str) -> Iterator[tuple[str, str]]:
    """Yield each retired word of Python code, with a message: names, comments and strings."""
    retired = {word: field for word, field in RETIRED.items() if word.isalpha()} | RETIRED_NAMES
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "NAME":
            for word in words_in(token.string):
                if word in retired:
                    yield word, f"{where}:{token.start[0]}: {token.string} is retired; say: {retired[word]}"
        elif kind in {"COMMENT", "STRING", "FSTRING_MIDDLE"}:
            for word, message in retired_in_prose(token.string, where):
                yield word, f"{message} (from line {token.start[0]} on)"


def test_the_code_uses_the_fields_words() -> None:
    violations = []
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        found = retired_in_code(file.read_text(encoding="utf-8"), path)
        violations += [message for word, message in found if (path, word) not in ALLOWED]
    assert violations == []


def test_the_docs_use_the_fields_words() -> None:
    # docs/reference/ is made from the code.
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"]
    files = [*sorted(pages), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    assert len(files) > 5
    violations = []
    for file in files:
        # Links, paths and names in code are what they are.
        prose = re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", "", file.read_text(encoding="utf-8"))
        violations += [message for _, message in retired_in_prose(prose, file.name)]
    assert violations == []


def test_each_exception_is_used() -> None:
    for path, word in ALLOWED:
        source = (PACKAGE / path).read_text(encoding="utf-8")
        assert word in {found for found, _ in retired_in_code(source, path)}, (path, word)


@pytest.mark.parametrize("word", RETIRED)
def test_each_retired_word_is_refused(word: str) -> None:
    for code in (
        f'"""Return the {word}."""',
        f"x = 1  # the {word.upper()}",
        f'raise ValueError(f"no {word}")',
    ):
        assert [found for found, _ in retired_in_code(code + "\n", "a.py")] == [word]
    assert [found for found, _ in retired_in_prose(f"Of the {word}, again.", "a.md")] == [word]


@pytest.mark.parametrize("word", [word for word in RETIRED if word.isalpha()] + list(RETIRED_NAMES))
def test_each_retired_name_is_refused(word: str) -> None:
    for code in (
        f"{word} = 1",
        f"def of_{word}(): ...",
        f"class The{word.capitalize()}: ...",
        f"f({word}_of=1)",
    ):
        ast.parse(code)
        assert [found for found, _ in retired_in_code(code + "\n", "a.py")] == [word]


@pytest.mark.parametrize(
    "code",
    [
        '"""Return the pairs found in a file, as given; no mushroom is fedora."""',
        "self.feed_forward = FeedForward(512, 2048)",
        "from heedful.text import SentencePieceTokenizer",
        "def add_in_place(total): ...",
        "except_ = FileNotFoundError",
        "held_out = survey.held_out",
    ],
)
def test_ordinary_words_are_not_refused(code: str) -> None:
    assert list(retired_in_code(code + "\n", "a.py")) == []


def test_the_glossary_is_sorted_and_true() -> None:
    _, terms = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("## Terms")
    rows = re.findall(r"^\| (?!term|-)(.+?) \| .+? \| (.+?) in \[(.+?)\]\(", terms, re.MULTILINE)
    assert len(rows) > 40
    names = [term.replace("`", "").lower() for term, _, _ in rows]
    assert names == sorted(names)
    for _, symbols, path in rows:
        source = (PACKAGE / path).read_text(encoding="utf-8")
        for symbol in re.findall(r"`(\w+)`", symbols):
            assert re.search(rf"^(class|def) {symbol}\b|^{symbol}\b.*=", source, re.MULTILINE), symbol
