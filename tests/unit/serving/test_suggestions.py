"""Suggestions of better translations are on the disk before they are answered."""

import errno
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from asked_service import ask

from heedful.errors import InputError
from heedful.serving.suggestions import Suggestion, SuggestionFile

_SENT = {"q": "The cat", "s": "Die Katze", "source": "en", "target": "de"}


def test_a_suggestion_is_a_line_with_client_and_time(tmp_path: Path) -> None:
    file = tmp_path / "suggestions.jsonl"
    answer = ask("POST", "/suggest", suggestions=SuggestionFile(file), data=_SENT)
    assert answer.json() == {"success": True}
    stored = json.loads(file.read_text())
    assert datetime.fromisoformat(stored.pop("time")) <= datetime.now(UTC)
    assert stored == _SENT | {"client": ""}


@pytest.mark.parametrize("field", _SENT)
def test_an_incomplete_suggestion_is_not_stored(tmp_path: Path, field: str) -> None:
    file = tmp_path / "suggestions.jsonl"
    assert (
        ask("POST", "/suggest", suggestions=SuggestionFile(file), data=_SENT | {field: ""}).status_code == 400
    )
    assert not file.exists()


def test_servers_without_a_file_refuse() -> None:
    assert ask("POST", "/suggest", data=_SENT).status_code == 403


def test_pages_of_others_may_not_suggest(tmp_path: Path) -> None:
    file = SuggestionFile(tmp_path / "suggestions.jsonl")
    headers = {"Origin": "https://b.example"}
    assert ask("POST", "/suggest", suggestions=file, data=_SENT, headers=headers).status_code == 403


def test_suggestions_at_the_same_time_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "suggestions.jsonl"
    sent = [
        Suggestion(time=datetime.now(UTC), client="", source="en", target="de", q=f"{number}\n", s="x" * 5000)
        for number in range(40)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda suggestion: SuggestionFile(path).add(suggestion), sent))
    stored = [Suggestion.model_validate_json(line) for line in path.read_text().splitlines()]
    assert sorted(found.q for found in stored) == sorted(suggestion.q for suggestion in sent)


def test_nothing_stays_of_a_line_that_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "suggestions.jsonl"
    assert ask("POST", "/suggest", suggestions=SuggestionFile(path), data=_SENT).status_code == 200
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr("os.fsync", fail)
    assert ask("POST", "/suggest", suggestions=SuggestionFile(path), data=_SENT).status_code == 503
    assert path.read_bytes() == before


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        SuggestionFile(tmp_path / "missing" / "suggestions.jsonl")
