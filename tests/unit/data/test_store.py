import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from heedful.data import store
from heedful.data.files import ParallelText, read_parallel
from heedful.data.store import CorpusReport, ParallelStore, build_store, evict, mark_used
from heedful.errors import CorpusError
from heedful.settings.run import TokenizerConfig
from heedful.text import SentencePieceTokenizer, TokenizerPair, train_tokenizers

SRC = ["the cat", "a dog ate", "my homework is here", "cat and dog", "here"]
TGT = ["die Katze", "ein Hund fraß es auf", "hier", "Katze und Hund", "meine Hausaufgaben sind hier"]
TEXT = ParallelText(SRC, TGT, ("train.en", "train.de"), num_empty=2)


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return train_tokenizers(SRC, TGT, TokenizerConfig(kind="char", joint=False), seed=1)


def build(
    tmp_path: Path, tokenizers: TokenizerPair, text: ParallelText = TEXT, **changes: int
) -> ParallelStore:
    return build_store(
        text,
        tokenizers,
        max_length=changes.get("max_length", 100),
        cache_dir=tmp_path,
        keep_text=bool(changes.get("keep_text", 0)),
    )


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8192])
def test_a_store_holds_each_pair_with_eos(
    tmp_path: Path, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(store, "_ROWS", rows)
    built = build(tmp_path, tokenizers, keep_text=1)
    assert len(built) == 5
    for i, (src, tgt) in enumerate(zip(SRC, TGT, strict=True)):
        src_ids, tgt_ids = built[i]
        assert src_ids.tolist() == [*tokenizers.src.encode(src), tokenizers.src.eos_id]
        assert tgt_ids.tolist() == [*tokenizers.tgt.encode(tgt), tokenizers.tgt.eos_id]
        assert (built.src_lengths[i], built.tgt_lengths[i]) == (len(src_ids), len(tgt_ids))
        assert built.text(i) == (src, tgt)
    assert built[0][0].dtype == np.int32


def test_indices_outside_the_store_are_refused(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    built = build(tmp_path, tokenizers)
    for index in (-1, 5):
        with pytest.raises(IndexError):
            built[index]


def test_ids_are_views_of_the_mapped_file(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    built = build(tmp_path, tokenizers)
    assert not built[0][0].flags.owndata
    assert not built[0][0].flags.writeable
    before = pa.total_allocated_bytes()
    again = build(tmp_path, tokenizers)
    assert len(again) == 5
    assert pa.total_allocated_bytes() - before < 1024


@pytest.mark.parametrize("rows", [2, 8192])
def test_pairs_with_a_long_side_are_left_out_and_counted(
    tmp_path: Path, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(store, "_ROWS", rows)
    lengths = [
        (len(tokenizers.src.encode(s)) + 1, len(tokenizers.tgt.encode(t)) + 1)
        for s, t in zip(SRC, TGT, strict=True)
    ]
    limit = 16
    kept = [pair for pair in lengths if max(pair) <= limit]
    assert max(kept[-1]) == limit  # eos is counted, and a side of exactly the limit stays
    built = build(tmp_path, tokenizers, max_length=limit)
    assert list(zip(built.src_lengths.tolist(), built.tgt_lengths.tolist(), strict=True)) == kept
    assert built.report == CorpusReport(
        num_read=7,
        num_kept=len(kept),
        num_empty=2,
        num_too_long=5 - len(kept),
        max_length=limit,
        longest_src=max(s for s, _ in lengths),
        longest_tgt=max(t for _, t in lengths),
        num_src_tokens=sum(s for s, _ in kept),
        num_tgt_tokens=sum(t for _, t in kept),
    )
    assert built.max_length == limit


def test_a_side_that_normalises_to_nothing_is_empty(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    text = ParallelText(["\u200b", *SRC], ["hier", *TGT])
    report = build(tmp_path, tokenizers, text).report
    assert (report.num_read, report.num_empty, report.num_kept) == (6, 1, 5)


def test_nothing_left_says_why_and_leaves_no_file(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    with pytest.raises(
        CorpusError, match=r"train\.en and train\.de: no pair is left, 5 .*data\.max_length=3"
    ):
        build(tmp_path, tokenizers, max_length=3)
    with pytest.raises(CorpusError, match="no pair is left"):
        build(tmp_path, tokenizers, ParallelText(["\u200b"], ["\u200b"]))
    with pytest.raises(CorpusError, match="no pair is left"):
        build(tmp_path, tokenizers, ParallelText([], []))
    assert list(tmp_path.iterdir()) == []


def forbid_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: SentencePieceTokenizer, texts: Sequence[str]) -> list[list[int]]:
        raise AssertionError("built again")

    monkeypatch.setattr(SentencePieceTokenizer, "encode_batch", refuse)


def test_an_unchanged_corpus_is_not_tokenised_again(
    tmp_path: Path, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(tmp_path, tokenizers)
    forbid_encoding(monkeypatch)
    second = build(tmp_path, tokenizers)
    assert second.path == first.path
    assert second.report == first.report


def test_each_change_makes_another_store(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    others = train_tokenizers(SRC, TGT, TokenizerConfig(kind="char"), seed=1)
    stores = [
        build(tmp_path, tokenizers),
        build(tmp_path, tokenizers, max_length=99),
        build(tmp_path, tokenizers, keep_text=1),
        build(tmp_path, others),
        build(tmp_path, tokenizers, ParallelText(SRC, [*TGT[:-1], "hier!"])),
        build(tmp_path, tokenizers, ParallelText(["the", "cat"], ["die", "Katze"])),
        build(tmp_path, tokenizers, ParallelText(["the", "catdie"], ["", "Katze"])),
    ]
    assert len({s.path for s in stores}) == len(stores)
    assert not stores[0].has_text


@pytest.mark.parametrize("cut", [0, 1, 8, 100, -1, -8, -200])
def test_a_truncated_store_is_built_again(tmp_path: Path, tokenizers: TokenizerPair, cut: int) -> None:
    whole = build(tmp_path, tokenizers).path.read_bytes()
    path = only_file(tmp_path)
    path.unlink()
    path.write_bytes(whole[:cut])
    with pytest.raises(CorpusError, match=r"not a complete store of ids; delete it"):
        ParallelStore(path)
    assert build(tmp_path, tokenizers)[1][0].tolist()[-1] == tokenizers.src.eos_id
    assert only_file(tmp_path).read_bytes() == whole


def test_an_altered_id_is_noticed(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    built = build(tmp_path, tokenizers)
    content, needle = built.path.read_bytes(), built[1][1].tobytes()
    changed = content.replace(needle, needle[:-4] + b"\xff\xff\x00\x00")
    assert changed != content
    path = built.path
    path.unlink()
    path.write_bytes(changed)
    with pytest.raises(CorpusError, match="not a complete store"):
        ParallelStore(path)
    assert build(tmp_path, tokenizers)[1][1].tolist()[-1] == tokenizers.tgt.eos_id


def test_an_arrow_file_of_something_else_is_no_store(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2]})
    for name, batches in (("one.arrow", table.to_batches()), ("none.arrow", [])):
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        with pytest.raises(CorpusError, match="not a complete store"):
            ParallelStore(tmp_path / name)


def test_a_full_disk_is_one_line_and_leaves_no_file(
    tmp_path: Path, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CorpusError, match=r"the disk is full\); free some space or set data\.cache_dir"):
        build(tmp_path, tokenizers)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_directory_that_is_a_file_is_named(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CorpusError, match=r"ids cannot be written .*data\.cache_dir"):
        build(tmp_path / "file", tokenizers)


def test_an_interrupted_build_leaves_no_file(
    tmp_path: Path, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: SentencePieceTokenizer, texts: Sequence[str]) -> list[list[int]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(SentencePieceTokenizer, "encode_batch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, tokenizers)
    assert list(tmp_path.iterdir()) == []


def test_the_default_place_is_the_users_cache(
    tmp_path: Path, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.platformdirs, "user_cache_path", lambda name: tmp_path / name)
    built = build_store(TEXT, tokenizers, max_length=100)
    assert built.path.parent == tmp_path / "heedful"


@pytest.mark.parametrize(
    ("folder", "src", "tgt", "kind"),
    [("multi30k", "val.en", "val.de", "bpe"), ("g2p-cmudict", "valid.word", "valid.phones", "word")],
)
def test_real_pairs_come_back_as_text(
    tmp_path: Path, real_data: Path, folder: str, src: str, tgt: str, kind: str
) -> None:
    text = read_parallel(real_data / folder / src, real_data / folder / tgt)
    config = TokenizerConfig.model_validate({"kind": kind, "vocab_size": 2000, "joint": kind == "bpe"})
    pair = train_tokenizers(text.src, text.tgt, config, seed=1)
    built = build_store(text, pair, max_length=256, cache_dir=tmp_path)
    assert built.report.num_kept == len(text) == len(built)
    for i in range(0, len(text), 7):
        src_ids, tgt_ids = built[i]
        assert pair.src.decode(src_ids) == " ".join(text.src[i].split())
        assert pair.tgt.decode(tgt_ids) == " ".join(text.tgt[i].split())


DAY = 24 * 3600


def file(folder: Path, name: str, *, days: float, size: int = 100) -> Path:
    path = folder / name
    path.write_bytes(bytes(size))
    used = time.time() - days * DAY
    os.utime(path, (used, used))
    return path


def stored(folder: Path, letter: str, *, days: float) -> Path:
    return file(folder, f"{letter * 40}.arrow", days=days)


def test_the_least_recently_used_go_until_the_rest_fits(tmp_path: Path) -> None:
    oldest, old, recent = (
        stored(tmp_path, letter, days=days) for letter, days in zip("abc", (9, 5, 2), strict=True)
    )
    assert evict(tmp_path, max_bytes=300) == []
    assert evict(tmp_path, max_bytes=200) == [oldest]
    mark_used(old)
    assert evict(tmp_path, max_bytes=100) == [recent]
    assert old.exists()


def test_what_was_used_within_a_day_stays(tmp_path: Path) -> None:
    path = stored(tmp_path, "a", days=0.5)
    assert evict(tmp_path, max_bytes=0) == []
    assert path.exists()


def test_files_of_others_stay_and_those_of_a_killed_run_go(tmp_path: Path) -> None:
    others = [file(tmp_path, name, days=99) for name in ("notes.txt", "a.arrow", "abc.tmp", "ctranslate2-x")]
    left_over = file(tmp_path, f"{'d' * 40}.x8f.tmp", days=3)
    assert evict(tmp_path, max_bytes=10**9) == [left_over]
    assert evict(tmp_path, max_bytes=0) == []
    assert all(path.exists() for path in others)
