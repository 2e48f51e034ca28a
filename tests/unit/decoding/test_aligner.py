"""The guided aligner: its loss and gradients against torch, what it learns, and its place in a bundle."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_bundle import PAIRS, SOURCES, TARGETS, save_memorised
from tolerances import FLOAT32, FLOAT64, assert_close, close
from torch.nn.functional import cross_entropy

from heedful.decoding import aligner
from heedful.decoding.aligner import ALIGNER_FILE, Aligner, guided_loss, learn_aligner
from heedful.decoding.alignment import BY_ATTENTION
from heedful.decoding.translator import Translator
from heedful.errors import BundleError
from heedful.storage.bundle import Bundle, load_bundle
from heedful.storage.description import add_file, bundle_file_names


@pytest.fixture
def stored(tmp_path: Path) -> Bundle:
    return load_bundle(save_memorised(tmp_path / "b"))


def learned(bundle: Bundle, pairs: int = 3_000) -> Aligner:
    src, tgt = bundle.tokenizers.src.encode_batch(SOURCES), bundle.tokenizers.tgt.encode_batch(TARGETS)
    return learn_aligner(src, tgt, bundle, record={"pairs": len(PAIRS)}, pairs=pairs)


def test_the_loss_is_torchs_cross_entropy_and_its_gradient_autograds() -> None:
    rng = np.random.default_rng(3)
    scores, links = rng.normal(size=(5, 7)), (rng.random((5, 7)) < 0.3).astype(float)
    links[2] = 0  # a target token without links counts for nothing
    loss, gradient = guided_loss(scores, links)
    rows = torch.from_numpy(scores).requires_grad_()
    some = links.sum(axis=1) > 0
    expected = torch.from_numpy(links[some] / links[some].sum(axis=1, keepdims=True))
    by_torch = cross_entropy(rows[torch.from_numpy(some)], expected, reduction="sum")
    by_torch.backward()
    assert loss == close(by_torch.item(), FLOAT64.ROW)
    assert rows.grad is not None
    assert_close(gradient, rows.grad.numpy(), FLOAT64.ROW)


def test_the_gradients_of_a_batch_are_autograds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligner, "_DROPOUT", 0.0)
    rng = np.random.default_rng(5)
    width, size = 3, 11
    embeddings = rng.normal(size=(2, size, width)).astype(np.float32)
    shape = 3 * width + 16, width
    query, key = rng.normal(size=(2, *shape)).astype(np.float32)
    found = Aligner(query, key, np.array([2.0], np.float32), *embeddings, null_id=1, record={})
    batch = [([3, 4, 5], [6, 7], {(0, 0), (2, 0)}), ([8, 2], [9, 9, 3, 4, 10], {(1, 2), (1, 4), (0, 0)})]
    q, k, slope = (torch.from_numpy(each).double().requires_grad_() for each in (query, key, found.slope))

    def places(count: int) -> torch.Tensor:
        return (torch.arange(count).double() + 0.5) / count

    def features(ids: list[int], table: np.ndarray) -> torch.Tensor:
        own = torch.from_numpy(table).double()[ids]
        beside = torch.zeros(1, width)
        angles = places(len(ids))[:, None] * torch.arange(8) * np.pi
        neighbours = torch.cat([beside, own[:-1]]), torch.cat([own[1:], beside])
        return torch.cat([own, *neighbours, angles.cos(), angles.sin()], dim=1)

    by_rows, by_columns = [], []
    for src, tgt, links in batch:
        keys = features([*src, 1], embeddings[0]) @ k
        scores = features(tgt, embeddings[1]) @ q @ keys.T / width**0.5
        scores = scores - slope * (places(len(tgt))[:, None] - places(len(src) + 1)).abs()
        for t, row in enumerate(scores.log_softmax(1)):
            by_rows.append(-row[[s for s, each in links if each == t] or [len(src)]].mean())
        for s, column in enumerate(scores.log_softmax(0).T[:-1]):
            if linked := [t for each, t in links if each == s]:
                by_columns.append(-column[linked].mean())
    (torch.stack(by_rows).mean() + torch.stack(by_columns).mean()).backward()
    gradients = aligner._gradients(found, batch, rng)
    for gradient, weight in zip(gradients, (q, k, slope), strict=True):
        assert weight.grad is not None
        assert_close(gradient, weight.grad.numpy(), FLOAT32.MODEL)


def test_it_finds_the_translations_of_tokens_in_another_order(
    stored: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_BATCH", 8), ("_RATE", 0.01), ("_DROPOUT", 0.0)):
        monkeypatch.setattr(aligner, name, value)
    size = stored.config.model.src_vocab_size
    rng = np.random.default_rng(7)
    translation = rng.permutation(np.arange(4, size))  # of each token from 4 on

    def pair() -> tuple[list[int], list[int]]:
        src = rng.choice(np.arange(4, size), 8, replace=False)
        swapped = translation[src - 4].reshape(4, 2)[:, ::-1]  # each with its neighbour
        return src.tolist(), swapped.ravel().tolist()

    src, tgt = zip(*(pair() for _ in range(300)), strict=True)
    found = learn_aligner(src, tgt, stored, record={}, pairs=3_000)
    words = [[i] for i in range(8)]
    right = {(i, i ^ 1) for i in range(8)}
    unseen = [found.align_words(*pair(), words, words).links for _ in range(50)]
    assert sum(len(right & set(links)) for links in unseen) >= 0.95 * 50 * 8
    assert sum(len(set(links) - right) for links in unseen) <= 0.05 * 50 * 8


def test_a_bundle_has_it_with_a_checksum_and_may_get_another(stored: Bundle) -> None:
    path = stored.path or Path()
    first = learned(stored, pairs=200)
    for each in (first, learned(stored, pairs=400)):
        assert each.add_to(path) == path / ALIGNER_FILE
        found = Aligner.load(load_bundle(path))
        assert found is not None
        np.testing.assert_array_equal(found.query, each.query)
        assert found.record == {"pairs": 6}
        assert ALIGNER_FILE in bundle_file_names(path)
    assert not np.array_equal(found.query, first.query)
    (path / ALIGNER_FILE).write_bytes(b"other")
    with pytest.raises(BundleError, match="truncated or altered"):
        load_bundle(path)


def test_without_it_and_where_a_layer_is_named_attention_is_read(stored: Bundle) -> None:
    path = stored.path or Path()
    by_attention = Translator(stored).align(SOURCES, TARGETS)
    learned(stored, pairs=200).add_to(path)
    translator = Translator(load_bundle(path))
    assert translator.align(SOURCES, TARGETS, method=BY_ATTENTION) == by_attention
    by_aligner = translator.align(SOURCES, TARGETS)
    assert by_aligner != by_attention
    for each, links in zip(translator.translations(SOURCES, aligned=True), by_aligner, strict=True):
        assert each.hypotheses[0].alignment == links
    nothing = Aligner.load(load_bundle(path))
    assert nothing is not None
    assert nothing.align_words([4, 5], [], [[0], [1]], []).links == ()  # an output of the end token alone
    assert nothing.align_words([], [4, 5], [], [[0], [1]]).links == ()
    assert translator.align(["", "the cat"], ["x", " "]) == [type(by_attention[0])(())] * 2


def test_one_of_other_weights_is_left_alone_and_one_that_is_no_aligner_refused(stored: Bundle) -> None:
    path = stored.path or Path()
    learned(stored, pairs=200).add_to(path)
    description = json.loads((path / "config.json").read_text(encoding="utf-8"))
    del description["sha256"][ALIGNER_FILE]  # as after another training run, which keeps unknown files
    (path / "config.json").write_text(json.dumps(description), encoding="utf-8")
    assert Aligner.load(load_bundle(path)) is None
    for content in (b"", (path / "model.safetensors").read_bytes()):
        add_file(path, ALIGNER_FILE, content)
        with pytest.raises(BundleError, match="learn it again"):
            Aligner.load(load_bundle(path))
