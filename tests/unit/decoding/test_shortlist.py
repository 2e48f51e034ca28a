"""What a shortlist holds, and how it is kept."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tagged_bundle import nllb_like
from tiny_bundle import PAIRS, memorised

from heedful.decoding.shortlist import Shortlist, check_shortlist
from heedful.decoding.translator import Translator
from heedful.errors import InputError

TOKENIZERS = memorised().tokenizers
SRC = TOKENIZERS.src.encode_batch([source for source, _ in PAIRS])
TGT = TOKENIZERS.tgt.encode_batch([target for _, target in PAIRS])


def learned(candidates: int = 3, frequent: int = 2) -> Shortlist:
    return Shortlist.learn(
        SRC, TGT, memorised(), candidates=candidates, frequent=frequent, record={"by": "me"}
    )


def test_a_sentence_may_have_its_translation_the_special_pieces_and_its_own() -> None:
    shortlist = learned(candidates=6)
    tgt = TOKENIZERS.tgt
    for source, target in zip(SRC, TGT, strict=True):
        found = shortlist.ids([*source, TOKENIZERS.src.eos_id])
        assert np.array_equal(found, np.unique(found))
        assert set(target) | set(source) <= set(found.tolist())
        assert {tgt.pad_id, tgt.unk_id, tgt.bos_id, tgt.eos_id} <= set(found.tolist())
        assert len(found) < tgt.vocab_size
    assert set(shortlist.ids([])) < set(shortlist.ids([], besides=[40, 41])) >= {40, 41}


def test_the_frequent_pieces_come_first_and_all_of_them_are_the_vocabulary() -> None:
    size = memorised().model.config.tgt_vocab_size
    counts = np.bincount(np.concatenate(TGT), minlength=size)
    nothing, some = (set(learned(candidates=0, frequent=n).ids([]).tolist()) for n in (0, 5))
    frequent = some - nothing
    assert len(frequent) == 5
    assert min(counts[list(frequent)]) >= max(counts[i] for i in range(size) if i not in some)
    assert learned(frequent=size).ids([]).tolist() == list(range(size))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    shortlist, path = learned(), tmp_path / "list.safetensors"
    shortlist.save(path)
    again = Shortlist.load(path)
    check_shortlist(again, memorised())
    assert again.record == {"candidates": 3, "frequent": 2, "pairs": 6, "by": "me"}
    for source in [*SRC, [], [1, 2]]:
        np.testing.assert_array_equal(again.ids(source, besides=[7]), shortlist.ids(source, besides=[7]))
    assert [file.name for file in tmp_path.iterdir()] == ["list.safetensors"]


def test_another_models_shortlist_is_refused() -> None:
    with pytest.raises(InputError, match="shortlist"):
        Translator(nllb_like(), shortlist=learned())


def test_files_that_are_no_shortlists_are_named(tmp_path: Path) -> None:
    path = tmp_path / "list.safetensors"
    with pytest.raises(InputError, match=r"list\.safetensors"):
        Shortlist.load(path)
    path.write_bytes(b"no such thing")
    with pytest.raises(InputError, match=r"list\.safetensors"):
        Shortlist.load(path)
    save_file({"always": np.zeros(3, np.int32)}, path)
    with pytest.raises(InputError, match=r"list\.safetensors"):
        Shortlist.load(path)
    with pytest.raises(InputError, match="cannot be written"):
        learned().save(tmp_path / "nowhere" / "list.safetensors")


@pytest.mark.parametrize(
    ("name", "value"), [("always", 10_000), ("always", -1), ("candidates", 10_000), ("starts", 3)]
)
def test_numbers_that_no_vocabulary_has_and_newer_formats_are_refused(
    name: str, value: int, tmp_path: Path
) -> None:
    path = tmp_path / "list.safetensors"
    learned().save(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(path)
    save_file({}, path, metadata={key: text.replace(": 1,", ": 2,", 1) for key, text in metadata.items()})
    with pytest.raises(InputError, match="format_version 2"):
        Shortlist.load(path)
    arrays[name][0] = value
    save_file(arrays, path, metadata=metadata)
    with pytest.raises(InputError, match="damaged"):
        Shortlist.load(path)
