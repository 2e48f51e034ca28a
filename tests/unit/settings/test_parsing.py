import json
from pathlib import Path

import pytest

from heedful.settings.parsing import (
    MAX_DEPTH,
    is_plain_name,
    is_whole,
    parse_json,
    parse_toml,
    read_limited,
    short,
    shown,
)


def test_json_is_what_pythons_own_reader_makes_of_it() -> None:
    for value in ({"a": [1, -2.5, None, True], "ü": {"": "x\U0001f600"}}, [], "", 0, None):
        for ascii_only in (False, True):
            text = json.dumps(value, ensure_ascii=ascii_only)
            assert (
                parse_json(text)
                == parse_json(text.encode())
                == parse_json(b"\xef\xbb\xbf" + text.encode())
                == value
            )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": 1} 2', "not valid JSON"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b'{"a": 1, "b": 2, "a": 3}', "the key 'a' is repeated"),
        (b'[{"a": {"b": 1, "b": 1}}]', "the key 'b' is repeated"),
        (b"[" * 200_000, "nested more than 64 deep"),
        (b'{"a":' * 200_000, "nested more than 64 deep"),
        (b"1" * 5000, "too many digits"),
        (rb'["\ud800"]', "half of a surrogate pair"),
        (rb'{"\udfff": 1}', "half of a surrogate pair"),
    ],
)
def test_json_that_is_none_is_a_phrase_in_one_line(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_json(content)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_the_limit_of_depth_is_exact() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        parse_json(opening * (MAX_DEPTH - 1) + "[]" + closing * (MAX_DEPTH - 1))
        with pytest.raises(ValueError, match="nested"):
            parse_json(opening * MAX_DEPTH + "[]" + closing * MAX_DEPTH)
    assert parse_toml("a = " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    for text in (
        "a = " + "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        "a = " + "[" * 50_000,
        ".".join("a" * 5000) + " = 1",
    ):
        with pytest.raises(ValueError, match="nested"):
            parse_toml(text)


def test_half_a_pair_may_be_allowed_where_lines_are_checked_one_by_one() -> None:
    assert parse_json(r'["\ud800"]', half_pairs=True) == ["\ud800"]


@pytest.mark.parametrize("text", ["a =", "a = 1\na = 2", "a = 1" + "0" * 5000])
def test_toml_that_is_none_is_a_phrase(text: str) -> None:
    with pytest.raises(ValueError, match=r"not valid TOML|too many digits"):
        parse_toml(text)


def test_a_file_without_end_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3000)
    assert len(read_limited(tmp_path / "file", max_bytes=3000)) == 3000
    with pytest.raises(ValueError, match="larger than"):
        read_limited(tmp_path / "file", max_bytes=2999)
    if Path("/dev/zero").exists():
        with pytest.raises(ValueError, match="larger than 1 MiB"):
            read_limited(Path("/dev/zero"), max_bytes=2**20)


def test_only_whole_numbers_in_their_limits_are_whole() -> None:
    assert [is_whole(value) for value in (0, 5, 2**53 - 1)] == [True] * 3
    assert not any(is_whole(value) for value in (True, 1.0, -1, 2**53, "1", None, [1], float("nan")))
    assert is_whole(-1, least=-1)
    assert not is_whole(3, most=2)


def test_a_plain_name_is_of_a_file_in_its_own_directory() -> None:
    assert all(
        map(is_plain_name, ("model.safetensors", "pytorch_model-00001-of-00002.bin", "a", "vocab+1.json"))
    )
    for name in (
        "",
        ".",
        "..",
        "../x",
        "/x",
        "a/b",
        "a\\b",
        "*.json",
        ".hidden",
        "a\0",
        "a\n",
        "a" * 300,
        3,
        None,
    ):
        assert not is_plain_name(name)


def test_what_is_shown_is_short_and_one_line_whatever_it_is() -> None:
    bomb: list[object] = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]
    for value in (
        bomb,
        {str(i): bomb for i in range(1000)},
        "x" * 10**6,
        10**10_000,
        [10**10_000],
        object(),
        b"x" * 999,
    ):
        assert len(shown(value)) <= 60
        assert "\n" not in shown(value)
    assert [shown(value) for value in (None, True, 1.5, "a", [1, "b"])] == [
        "None",
        "True",
        "1.5",
        "'a'",
        "[1, 'b']",
    ]
    assert short("a\nb") == "a b"
