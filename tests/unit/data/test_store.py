import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
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
    # A normalisation that removes some characters.
    config = TokenizerConfig(kind="char", joint=False, normalization="nmt_nfkc")
    return train_tokenizers(SRC, TGT, config, seed=1)


def build(
    tmp_path: Path,
    tokenizers: TokenizerPair,
    text: ParallelText = TEXT,
    *,
    max_length: int = 100,
    keep_text: bool = False,
    processes: int = 1,
) -> ParallelStore:
    return build_store(
        text, tokenizers, max_length=max_length, cache_dir=tmp_path, keep_text=keep_text, processes=processes
    )


@pytest.fixture
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows of a record batch, few enough for several batches."""
    number: int = getattr(request, "param", 4)
    monkeypatch.setattr(store, "_ROWS", number)
    return number


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8192], indirect=True)
def test_a_store_holds_each_pair_with_eos(tmp_path: Path, tokenizers: TokenizerPair, rows: int) -> None:
    built = build(tmp_path, tokenizers, keep_text=True)
    assert len(built) == 5
    for i, (src, tgt) in enumerate(zip(SRC, TGT, strict=True)):
        src_ids, tgt_ids = built[i]
        assert src_ids.tolist() == [*tokenizers.src.encode(src), tokenizers.src.eos_id]
        assert tgt_ids.tolist() == [*tokenizers.tgt.encode(tgt), tokenizers.tgt.eos_id]
        assert (built.src_lengths[i], built.tgt_lengths[i]) == (len(src_ids), len(tgt_ids))
        assert built.text(i) == (src, tgt)
    assert built[0][0].dtype == np.int32
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


@pytest.mark.parametrize("rows", [2, 8192], indirect=True)
def test_pairs_with_a_long_side_are_left_out_and_counted(
    tmp_path: Path, tokenizers: TokenizerPair, rows: int
) -> None:
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


@pytest.mark.parametrize(
    ("text", "max_length", "named"),
    [
        (TEXT, 3, r"train\.en and train\.de.*data\.max_length=3"),
        (ParallelText(["\u200b"], ["\u200b"]), 100, "no pair"),
        (ParallelText([], []), 100, "no pair"),
    ],
    ids=["all too long", "normalised to nothing", "no text"],
)
def test_nothing_left_says_why_and_leaves_no_file(
    tmp_path: Path, tokenizers: TokenizerPair, text: ParallelText, max_length: int, named: str
) -> None:
    with pytest.raises(CorpusError, match=named):
        build(tmp_path, tokenizers, text, max_length=max_length)
    assert list(tmp_path.iterdir()) == []


def test_the_ratio_of_lengths_is_weighted_by_source_tokens(tmp_path: Path) -> None:
    """The few tokens of a short pair with a long translation say nothing about long sentences."""
    tokenizers = train_tokenizers(["ab"], ["ab"], TokenizerConfig(kind="char", vocab_size=10), seed=1)

    def ratio(*lengths: tuple[int, int]) -> float:  # without the sign of the space and the end token
        text = ParallelText(["a" * (src - 2) for src, _ in lengths], ["b" * (tgt - 2) for _, tgt in lengths])
        return build_store(text, tokenizers, max_length=9999, cache_dir=tmp_path).length_ratio

    assert ratio((10, 20), (40, 100), (30, 30)) == 2.5
    assert ratio((3, 60), (40, 100)) == 20
    assert ratio((3, 60), (4000, 9000)) == 2.25


class Encoding:
    """Counts what is tokenised, and may end it in some call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.last = list[int](), 10**9
        encode = SentencePieceTokenizer.encode_batch

        def counted(tokenizer: SentencePieceTokenizer, texts: Sequence[str]) -> list[list[int]]:
            self.calls.append(len(texts))
            if len(self.calls) == self.last:
                raise KeyboardInterrupt
            return encode(tokenizer, texts)

        monkeypatch.setattr(SentencePieceTokenizer, "encode_batch", counted)


@pytest.fixture
def encoding(monkeypatch: pytest.MonkeyPatch) -> Encoding:
    return Encoding(monkeypatch)


def test_an_unchanged_corpus_is_not_tokenised_again(
    tmp_path: Path, tokenizers: TokenizerPair, encoding: Encoding
) -> None:
    first = build(tmp_path, tokenizers)
    encoding.calls.clear()
    second = build(tmp_path, tokenizers)
    assert (second.path, second.report) == (first.path, first.report)
    assert encoding.calls == []


def test_each_change_makes_another_store(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    others = train_tokenizers(SRC, TGT, TokenizerConfig(kind="char"), seed=1)
    stores = [
        build(tmp_path, tokenizers),
        build(tmp_path, tokenizers, max_length=99),
        build(tmp_path, tokenizers, keep_text=True),
        build(tmp_path, others),
        build(tmp_path, tokenizers, ParallelText(SRC, [*TGT[:-1], "hier!"])),
        build(tmp_path, tokenizers, ParallelText(["the", "cat"], ["die", "Katze"])),
        build(tmp_path, tokenizers, ParallelText(["the", "catdie"], ["", "Katze"])),
    ]
    assert len({s.path for s in stores}) == len(stores)
    assert not stores[0].has_text


def assert_refused_and_built_again(
    folder: Path, tokenizers: TokenizerPair, whole: bytes, damaged: bytes
) -> None:
    path = only_file(folder)
    path.unlink()
    path.write_bytes(damaged)
    with pytest.raises(CorpusError, match=str(path)):
        ParallelStore(path)
    build(folder, tokenizers)
    assert only_file(folder).read_bytes() == whole


@pytest.mark.parametrize("cut", [0, 1, 8, 100, -1, -8, -200])
def test_a_truncated_store_is_built_again(tmp_path: Path, tokenizers: TokenizerPair, cut: int) -> None:
    whole = build(tmp_path, tokenizers).path.read_bytes()
    assert_refused_and_built_again(tmp_path, tokenizers, whole, whole[:cut])


def test_an_altered_id_is_noticed(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    built = build(tmp_path, tokenizers)
    whole, ids = built.path.read_bytes(), built[1][1].tobytes()
    changed = whole.replace(ids, ids[:-4] + b"\xff\xff\x00\x00")
    assert changed != whole
    assert_refused_and_built_again(tmp_path, tokenizers, whole, changed)


def test_an_arrow_file_of_something_else_is_no_store(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2]})
    for name, batches in (("one.arrow", table.to_batches()), ("none.arrow", [])):
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        with pytest.raises(CorpusError, match="heedful prepare"):
            ParallelStore(tmp_path / name)
    with pytest.raises(CorpusError, match="heedful prepare --resume"):
        ParallelStore(tmp_path / "missing.arrow")


def test_a_full_disk_is_one_line_and_leaves_no_file(
    tmp_path: Path, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CorpusError, match=r"data\.cache_dir"):
        build(tmp_path, tokenizers)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_directory_that_is_a_file_is_named(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CorpusError, match=r"data\.cache_dir"):
        build(tmp_path / "file", tokenizers)


def test_an_interrupted_build_leaves_no_file(
    tmp_path: Path, tokenizers: TokenizerPair, encoding: Encoding
) -> None:
    encoding.last = 1
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, tokenizers)
    assert list(tmp_path.iterdir()) == []


MANY = ParallelText([f"{src} {i}" for i in range(9) for src in SRC], [*TGT] * 9, ("many.en", "many.de"))


@pytest.mark.representatives(1)
@pytest.mark.parametrize("keep_text", [False, True])
@pytest.mark.usefixtures("rows")
def test_a_store_does_not_depend_on_the_number_of_processes(
    tmp_path: Path, tokenizers: TokenizerPair, keep_text: bool
) -> None:
    alone, together = (
        build(tmp_path / str(processes), tokenizers, MANY, processes=processes, keep_text=keep_text)
        for processes in (1, 2)
    )
    assert together.path.read_bytes() == alone.path.read_bytes()
    assert together.report == alone.report


@pytest.mark.parametrize("damaged", [False, True])
def test_an_interrupted_build_is_continued(
    tmp_path: Path, tokenizers: TokenizerPair, encoding: Encoding, rows: int, damaged: bool
) -> None:
    whole = build(tmp_path / "whole", tokenizers, MANY).path.read_bytes()
    encoding.calls.clear()
    encoding.last = 15  # in the eighth batch
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "part", tokenizers, MANY)
    part = only_file(tmp_path / "part")
    if damaged:  # an id of the sixth batch
        content, last = part.read_bytes(), ParallelStore(tmp_path / "whole" / f"{part.name[:40]}.arrow")[23]
        at = content.rindex(last[0].tobytes())
        part.write_bytes(content[:at] + b"\x09" + content[at + 1 :])
    encoding.calls.clear()
    continued = build(tmp_path / "part", tokenizers, MANY)
    kept = 5 if damaged else 7
    assert continued.num_continued == kept * rows
    assert len(encoding.calls) == 2 * (12 - kept)
    assert only_file(tmp_path / "part") == continued.path
    assert continued.path.read_bytes() == whole


TOKENISE = """
import sys
from pathlib import Path
from heedful.data import store
from heedful.data.files import ParallelText
from heedful.text import TokenizerPair

if __name__ == "__main__":
    store._ROWS = 8
    src, tgt = (Path(sys.argv[1], name).read_text("utf-8").splitlines() for name in ("src", "tgt"))
    tokenizers = TokenizerPair.load(Path(sys.argv[1], "tokenizers"))
    text = ParallelText(src, tgt)
    store.build_store(text, tokenizers, max_length=100, cache_dir=sys.argv[1] + "/part", processes=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("rows", [8], indirect=True)
@pytest.mark.usefixtures("rows")
def test_a_killed_build_ends_its_processes_and_is_continued(
    tmp_path: Path, tokenizers: TokenizerPair, encoding: Encoding
) -> None:
    text = ParallelText([f"{src} {i}" for i in range(2000) for src in SRC], [*TGT] * 2000)
    for name, lines in (("src", text.src), ("tgt", text.tgt)):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "tokenizers").mkdir()
    tokenizers.save(tmp_path / "tokenizers")
    (tmp_path / "tokenise.py").write_text(TOKENISE)
    (tmp_path / "part").mkdir()
    with subprocess.Popen([sys.executable, tmp_path / "tokenise.py", tmp_path]) as process:
        while not any(part.stat().st_size > 100_000 for part in (tmp_path / "part").iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    continued = build(tmp_path / "part", tokenizers, text).path
    assert sum(encoding.calls) < 2 * len(text)
    assert continued.read_bytes() == build(tmp_path / "whole", tokenizers, text).path.read_bytes()


def test_a_large_store_is_verified_once_and_after_each_change(
    tmp_path: Path, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LARGE", 0)
    built = build(tmp_path, tokenizers)
    mark_used(built.path)
    verified: list[int] = []
    update = store._update_checksum
    monkeypatch.setattr(store, "_update_checksum", lambda *given: verified.append(given[0]) or update(*given))
    assert ParallelStore(built.path)[1][0].tolist() == built[1][0].tolist()
    assert verified == []
    with built.path.open("r+b") as opened:
        opened.seek(built.path.read_bytes().index(built[1][1].tobytes()))
        opened.write(b"\x01")
    with pytest.raises(CorpusError, match="arrow"):
        ParallelStore(built.path)
    assert verified == [0]
    for path in tmp_path.iterdir():
        make_older(path, days=9)
    assert evict(tmp_path, max_bytes=0) == [built.path]
    assert [*tmp_path.iterdir()] == []


def test_the_use_of_a_verified_store_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, stamp = stored(tmp_path, "a", days=9), file(tmp_path, f"{'a' * 40}.verified", days=9)
    mark_used(path)
    assert stamp.stat().st_mtime - path.stat().st_mtime > DAY
    assert evict(tmp_path, max_bytes=0) == []
    assert path.exists()
    assert stamp.exists()


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


def make_older(path: Path, *, days: float) -> None:
    used = path.stat().st_mtime - days * DAY
    os.utime(path, (used, used))


def file(folder: Path, name: str, *, days: float, size: int = 100) -> Path:
    path = folder / name
    path.write_bytes(bytes(size))
    make_older(path, days=days)
    return path


def stored(folder: Path, letter: str, *, days: float) -> Path:
    return file(folder, f"{letter * 40}.arrow", days=days)


def test_the_least_recently_used_go_until_the_rest_fits(tmp_path: Path) -> None:
    oldest, old, recent, today = (
        stored(tmp_path, letter, days=days) for letter, days in zip("abcd", (9, 5, 2, 0.5), strict=True)
    )
    assert evict(tmp_path, max_bytes=400) == []
    assert evict(tmp_path, max_bytes=300) == [oldest]
    mark_used(old)
    assert evict(tmp_path, max_bytes=200) == [recent]
    assert evict(tmp_path, max_bytes=0) == []
    assert {*tmp_path.iterdir()} == {old, today}


def test_files_of_others_stay_and_those_of_a_killed_run_go(tmp_path: Path) -> None:
    others = [file(tmp_path, name, days=99) for name in ("notes.txt", "a.arrow", "abc.tmp", "ctranslate2-x")]
    left_over = file(tmp_path, f"{'d' * 40}.x8f.tmp", days=3)
    folder = tmp_path / f"{'0' * 40}.x8f.tmp"
    folder.mkdir()
    file(folder, "part-0.tsv", days=3)
    make_older(folder, days=3)
    assert sorted(evict(tmp_path, max_bytes=10**9)) == [folder, left_over]
    assert evict(tmp_path, max_bytes=0) == []
    assert all(path.exists() for path in others)
