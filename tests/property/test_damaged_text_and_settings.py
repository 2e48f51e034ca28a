"""Text, stores of ids and settings, damaged: what `heedful train` reads before it trains."""

import gzip
import json
import tomllib
from functools import cache
from pathlib import Path

import pytest
from damage import CHANGES, WOUNDS, Change, Wound, changed, few_or_many, json_text, read_many, wounded
from hypothesis import strategies as st
from ten_pairs import ENGLISH, GERMAN

from heedful.data.files import PairFiles, ParallelText, load_text
from heedful.data.store import ParallelStore, build_store
from heedful.settings.loading import load_config, parse_override, to_toml
from heedful.settings.run import Config, TokenizerConfig
from heedful.text import TokenizerPair, train_tokenizers

SOURCES, TARGETS = [*ENGLISH], [*GERMAN]
PAIRS = [*zip(SOURCES, TARGETS, strict=True)]


@cache
def tokenizers() -> TokenizerPair:
    return train_tokenizers(SOURCES, TARGETS, TokenizerConfig(vocab_size=60), seed=1)


@few_or_many
def test_parallel_text(cases: int, tmp_path: Path) -> None:
    contents = {
        "text.en": "".join(f"{line}\n" for line in SOURCES).encode(),
        "pairs.tsv": "".join(f"{src}\t{tgt}\r\n" for src, tgt in PAIRS).encode(),
        "pairs.jsonl": "".join(json.dumps({"src": src, "tgt": tgt}) + "\n" for src, tgt in PAIRS).encode(),
    }
    contents |= {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in contents.items()}
    other = tmp_path / "text.de"
    other.write_text("".join(f"{line}\n" for line in TARGETS), encoding="utf-8")

    def read(case: tuple[str, list[Wound], list[Change], bool]) -> None:
        name, wounds, changes, as_json = case
        content = wounded(contents[name], wounds)
        if as_json and name == "pairs.jsonl":
            lines = [json_text(changed({"src": src, "tgt": tgt}, changes)) for src, tgt in PAIRS]
            content = "\n".join(lines).encode()
        (tmp_path / name).write_bytes(content)
        paths = (tmp_path / name, other) if "text" in name else (tmp_path / name,)
        text = load_text(PairFiles(paths))
        tokenizers().src.encode_batch(text.src)
        assert len(text.src) == len(text.tgt)

    read_many(cases * 4, st.tuples(st.sampled_from([*contents]), WOUNDS, CHANGES, st.booleans()), read)


@few_or_many
def test_stores_of_ids(cases: int, tmp_path: Path) -> None:
    text = ParallelText(SOURCES, TARGETS)
    built = [
        build_store(
            text, tokenizers(), max_length=99, cache_dir=tmp_path / str(keep_text), keep_text=keep_text
        )
        for keep_text in (False, True)
    ]
    contents = [store.path.read_bytes() for store in built]

    def read(case: tuple[bool, list[Wound]]) -> None:
        path = tmp_path / "damaged.arrow"
        path.unlink(missing_ok=True)
        path.write_bytes(wounded(contents[case[0]], case[1]))
        store = ParallelStore(path)
        assert sum(len(src) + len(tgt) for src, tgt in (store[i] for i in range(len(store)))) > 0
        if store.has_text:
            assert all(isinstance(each, str) for i in range(len(store)) for each in store.text(i))

    read_many(cases * 2, st.tuples(st.booleans(), WOUNDS), read)


@pytest.mark.slow
@few_or_many
def test_settings_files(cases: int, tmp_path: Path) -> None:
    text = to_toml(Config()).encode()
    file = tmp_path / "config.toml"
    deep = [
        b"a = " + b"[" * 5000,
        b"a = " + b"{a=" * 900,
        b"a." * 3000 + b"a = 1",
        b"[" + b"a." * 3000 + b"a]",
    ]
    deep += [b"a = 0x" + b"f" * 6000, b"a = 1" + b"0" * 6000, b'a = "\\ud800"', b"preset = " + b"9" * 400]
    deep += [b"[model]\nd_model = 0x" + b"f" * 6000, b"[data]\nsrc = '\\u0000'", b'[data]\nsrc = "\\u0000"']

    def read(case: tuple[list[Wound], int]) -> None:
        wounds, number = case
        more = deep[number % len(deep)] + b"\n" if number < 3 * len(deep) else b""
        file.write_bytes(more + wounded(text, wounds) if number % 2 else wounded(text, wounds) + b"\n" + more)
        to_toml(load_config(file))

    read_many(cases * 4, st.tuples(WOUNDS, st.integers(0, 99)), read)


@pytest.mark.slow
@few_or_many
def test_settings_of_other_types(cases: int, tmp_path: Path) -> None:
    document = Config().model_dump()

    def read(changes: list[Change]) -> None:
        damaged = json_text(changed(document, changes))
        try:
            settings = json.loads(damaged)
        except (ValueError, RecursionError):
            return
        config = Config(**settings if isinstance(settings, dict) else {"model": settings})
        assert tomllib.loads(to_toml(config))

    read_many(cases * 4, CHANGES, read)


KEYS = [f"{section}.{key}" for section, values in Config().model_dump().items() for key in values]
ODD_TEXTS = st.sampled_from(
    [
        "[" * 3000,
        "{" * 3000,
        "0x" + "f" * 6000,
        "9" * 6000,
        "\udcff",
        "\0",
        "'",
        "1e999",
        "nan",
        "[1, 'a']",
        "{a=1}",
    ]
)


@pytest.mark.slow
@few_or_many
def test_settings_on_the_command_line(cases: int, tmp_path: Path) -> None:
    def read(case: tuple[str, str]) -> None:
        key, value = case
        to_toml(load_config(overrides=[parse_override(f"{key}={value}")])).encode()

    keys = (
        st.sampled_from(KEYS)
        | st.text(max_size=9)
        | st.sampled_from(["model", "a.b", ".", "model.d_model.x"])
    )
    values = ODD_TEXTS | st.text(max_size=20) | st.integers().map(str) | st.floats().map(str)
    read_many(cases * 4, st.tuples(keys, values), read)
