"""What docs/serving.md shows is run here: its curl commands, against a real server.

The model has learned the sentences of the page by heart. A slow test in test_docs_examples.py does the same
with the model that the page is about, the demo's.
"""

import shutil
from pathlib import Path

import pytest
from shown_commands import Runner, blocks
from tiny_bundle import SHOWN_PAIRS, save_memorised
from translation_server import translation_server

PAGE = "docs/serving.md"


def test_the_page_has_examples_of_each_dialect() -> None:
    commands = [line for _, text in blocks(PAGE) for line in text.splitlines() if line.startswith("curl ")]
    text = " ".join(commands)
    assert len(commands) > 10
    named = ("/translate", "/detect", "/languages", "/v2/translate", "?from=en", "/explain", "/health")
    assert all(path in text for path in named)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_answers_are_those_that_the_page_shows(tmp_path: Path) -> None:
    with translation_server(f"en-de={save_memorised(tmp_path / 'tiny', SHOWN_PAIRS)}") as server:
        runner = Runner(server=server.url.split("/")[2], compare_tags=False)
        runner.run(PAGE)
    translated = [each for each in runner.answers if "Das Haus ist klein." in each]
    assert len(translated) >= 4


@pytest.mark.parametrize(
    ("shown", "out"),
    [
        ("Das Haus ist klein.", "Das Haus ist klein. Ja.\n"),
        ('{"a": "b"}', '{"a": "b", "c": 1}'),
        ('{"a": "b", ...}', '{"a": "c", "d": 1}'),
        ('[{"a": 1}, ...]', "[]"),
        ('{"a": "<b>das</b> Haus"}', '{"a": "das <b>Haus</b>"}'),
    ],
)
def test_another_answer_than_the_one_shown_is_noticed(shown: str, out: str) -> None:
    with pytest.raises(AssertionError):
        Runner().compare(shown, out)
    Runner().compare(shown, shown.replace(", ...", ""))
