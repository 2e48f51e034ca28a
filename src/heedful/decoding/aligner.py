"""A guided aligner: word alignments learned from the links of a statistical model, for a trained model.

Garg et al. (2019, "Jointly Learning to Align and Translate with Transformer Models") train a head of the
decoder towards such links. Here a separate attention is trained, from target tokens to source tokens, over
the model's embeddings of the tokens and their neighbours. The model and its translations do not change.
Because both texts are known, it needs no decoder pass and no recorded attention. Both directions are learned
at once, and the probability of a link is their product (Dou and Neubig, 2021, "Word Alignment by Fine-tuning
Embeddings on Parallel Corpora").
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from heedful.data.lexicon import Ids, mutual_links, relative_positions
from heedful.decoding.alignment import Alignment
from heedful.decoding.steps import Ints, Singles, softmax
from heedful.errors import BundleError
from heedful.settings.parsing import parse_json
from heedful.storage.bundle import Bundle, StoredModel
from heedful.storage.description import WEIGHTS_FILE, add_file, bundle_file_names
from heedful.storage.weights_file import embedding_names, utf_8_name

ALIGNER_FILE = "aligner.safetensors"  # in a bundle
FORMAT_VERSION = 1
_KEY = "heedful-aligner"  # in the metadata
_WAVES = 8  # the number of cosines and of sines for the position of a token
_LEAST = 0.1  # the lowest probability of a link between words


def guided_loss(scores: Singles, links: Singles) -> tuple[float, Singles]:
    """Return the loss of guided alignment (Garg et al., 2019, equation 5), and its gradient by the scores.

    It is the cross-entropy between the attention of each target token and a uniform distribution over its
    links. Target tokens without links do not count.

    Args:
        scores: (T, S), the score of target token t and source token s before the softmax.
        links: (T, S), 1 for a link, otherwise 0.
    """
    counts = links.sum(axis=1, keepdims=True)
    expected = links / np.maximum(counts, 1)
    attention = softmax(scores)
    loss = -float((expected * np.log(np.maximum(attention, 1e-30))).sum())
    return loss, attention * (counts > 0) - expected


@dataclass(frozen=True)
class Aligner:
    """Attention from target to source tokens, over the embeddings of a model.

    Attributes:
        query: (F, D), for target tokens; the F features of a token are its embedding, the embeddings of the
            tokens before and after it, and its position.
        key: (F, D), for source tokens.
        slope: (1,), the decrease of a score with the distance from the diagonal, which is from 0 to 1.
        src_embeddings: (V, D), with a mean square of 1.
        tgt_embeddings: the same for the target vocabulary.
        null_id: the end token of the source; a link to it means no link.
        record: how it was learned, for people.
    """

    query: Singles
    key: Singles
    slope: Singles
    src_embeddings: Singles
    tgt_embeddings: Singles
    null_id: int
    record: Mapping[str, Any]

    def align_words(
        self,
        src: Sequence[int],
        tgt: Sequence[int],
        src_words: Ids,
        tgt_words: Ids,
    ) -> Alignment:
        """Align words by the probabilities of links between their tokens.

        Each word of both texts is linked with its most probable word of the other text, if the probability is
        high enough.

        Args:
            src: the ids of the source, without special tokens.
            tgt: the ids of the target, without special tokens.
            src_words: for each source token, the words that it is a part of (usually one).
            tgt_words: the same for each target token.
        """
        if not tgt:
            return Alignment(())
        scores = self._scores([*src, self.null_id], tgt)
        tokens = (softmax(scores) * softmax(scores.T).T)[:, :-1]
        of_src, of_tgt = _parts(src_words), _parts(tgt_words)
        words = of_tgt / np.maximum(of_tgt.sum(axis=1, keepdims=True), 1) @ tokens @ of_src.T
        if not words.size:
            return Alignment(())
        links = {(s, t) for t, s in enumerate(words.argmax(axis=1).tolist())}
        links |= set(enumerate(words.argmax(axis=0).tolist()))
        return Alignment.of((s, t) for s, t in links if words[t, s] > _LEAST)

    def _scores(self, src: Sequence[int], tgt: Sequence[int]) -> Singles:
        """Return the scores (T, S) of target tokens for source tokens, before any softmax."""
        queries = _features(tgt, self.tgt_embeddings) @ self.query
        keys = _features(src, self.src_embeddings) @ self.key
        result: Singles = queries @ keys.T * np.float32(keys.shape[1] ** -0.5)
        return result - self.slope * _distances(len(src), len(tgt))

    def add_to(self, bundle: Path) -> Path:
        """Write the aligner, without the embeddings, to a bundle's directory; return the path of the file.

        Raises:
            BundleError: it cannot be written.
        """
        metadata = {_KEY: json.dumps({"format_version": FORMAT_VERSION, "record": dict(self.record)})}
        arrays = {"query": self.query, "key": self.key, "slope": self.slope}
        return add_file(bundle, ALIGNER_FILE, save(arrays, metadata=metadata))

    @classmethod
    def load(cls, bundle: Bundle) -> Self | None:
        """Return the aligner of a bundle; None if it has none.

        Raises:
            BundleError: the aligner is damaged, of a newer format, or of another model.
        """
        if bundle.path is None or (stored := stored_aligner(bundle.path)) is None:
            return None
        (query, key, slope), record = stored
        embeddings, null_id = stored_embeddings(bundle), bundle.tokenizers.src.eos_id
        width = _num_features(embeddings[0].shape[1])
        if query.shape != key.shape or query.shape[0] != width or slope.shape != (1,):
            raise BundleError(
                f"{bundle.path / ALIGNER_FILE}: belongs to another model; learn it again with heedful align "
                "--learn"
            )
        return cls(query, key, slope, *embeddings, null_id, record)


def stored_aligner(bundle: Path) -> tuple[tuple[Singles, ...], dict[str, Any]] | None:
    """Return query, key and slope of the aligner in a bundle's directory, and its record; None: no aligner.

    Raises:
        BundleError: the aligner is damaged, or of a newer format.
    """
    if ALIGNER_FILE not in bundle_file_names(bundle):
        return None
    path = bundle / ALIGNER_FILE
    try:
        with utf_8_name(path) as named, safe_open(named, framework="numpy") as file:
            description = parse_json((file.metadata() or {}).get(_KEY, ""))
            if isinstance(description, dict) and description.get("format_version") == FORMAT_VERSION:
                record = description.get("record")
                arrays = tuple(file.get_tensor(name) for name in ("query", "key", "slope"))
                return arrays, record if isinstance(record, dict) else {}
            problem = "unknown format"
    except (OSError, SafetensorError, ValueError) as error:
        problem = str(error)
    raise BundleError(f"{path}: damaged or of a newer heedful ({problem}); learn it again")


def stored_embeddings(bundle: Bundle) -> tuple[Singles, Singles]:
    """Return the source and target embeddings of a bundle on disk, (V, D) each, with a mean square of 1.

    Raises:
        BundleError: they cannot be read.
    """
    assert bundle.path is not None
    src, tgt, _ = embedding_names(bundle.config.model)
    stored = StoredModel(bundle.path / WEIGHTS_FILE, bundle.config.model)
    of_src = _scaled(stored.weight(src))
    return of_src, of_src if src == tgt else _scaled(stored.weight(tgt))


def learn_aligner(
    src: Ids, tgt: Ids, bundle: Bundle, *, record: Mapping[str, Any], pairs: int | None = None, seed: int = 1
) -> Aligner:
    """Learn an aligner with Adam from sentence pairs, towards the links that `mutual_links` finds.

    A target token without a link is linked with the end token of the source.

    Args:
        src: the ids of each source text, not empty and without special tokens.
        tgt: the ids of each translation.
        bundle: the bundle of the model, on disk.
        record: how it was learned, for people.
        pairs: the number of pairs to learn from; None: each pair ten times, but at most 15,000.
        seed: the seed of the order, the first weights and dropout.
    """
    links = mutual_links(src, tgt)
    pairs = min(10 * len(src), 15_000) if pairs is None else pairs
    embeddings, null_id = stored_embeddings(bundle), bundle.tokenizers.src.eos_id
    width = embeddings[0].shape[1]
    rng = np.random.default_rng(seed)
    query, key = (rng.normal(0, 0.02, (_num_features(width), width)).astype(np.float32) for _ in range(2))
    slope = np.full(1, _SLOPE, np.float32)
    aligner = Aligner(query, key, slope, *embeddings, null_id, record)
    moments = [(np.zeros_like(each), np.zeros_like(each)) for each in (query, key, slope)]
    batches = list(_batches([len(each) for each in src], pairs, rng))
    for step, batch in enumerate(batches, start=1):
        some = [(src[i], tgt[i], links[i]) for i in batch]
        done = step / len(batches)
        rate = _RATE * min(done / _WARMUP, 1) * (1 - done)
        gradients = _gradients(aligner, some, rng)
        for weight, gradient, (mean, square) in zip((query, key, slope), gradients, moments, strict=True):
            mean += (1 - _BETAS[0]) * (gradient - mean)
            square += (1 - _BETAS[1]) * (gradient**2 - square)
            unbiased = np.sqrt(square / (1 - _BETAS[1] ** step)) + 1e-8
            weight -= rate * mean / (1 - _BETAS[0] ** step) / unbiased
    return aligner


_SLOPE, _RATE, _WARMUP, _BETAS, _DROPOUT, _BATCH = 4.0, 1e-3, 0.1, (0.9, 0.999), 0.1, 64


def _batches(lengths: Sequence[int], pairs: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Yield the indices of each batch, until this number of pairs is reached."""
    done = 0
    while done < pairs:
        order = rng.permutation(len(lengths))[: pairs - done]
        for start in range(0, len(order), _BATCH):
            yield order[start : start + _BATCH]
        done += len(order)


def _gradients(
    aligner: Aligner,
    pairs: Sequence[tuple[Sequence[int], Sequence[int], set[tuple[int, int]]]],
    rng: np.random.Generator,
) -> tuple[Singles, Singles, Singles]:
    """Return the gradients of a batch's mean loss with respect to query, key and slope."""
    of_slope, scale = np.zeros_like(aligner.slope), aligner.query.shape[1] ** -0.5
    of_src = [
        _dropped(_features([*src, aligner.null_id], aligner.src_embeddings), rng) for src, _, _ in pairs
    ]
    of_tgt = [_dropped(_features(tgt, aligner.tgt_embeddings), rng) for _, tgt, _ in pairs]
    src_features, tgt_features = np.concatenate(of_src), np.concatenate(of_tgt)
    keys_of_all, queries_of_all = src_features @ aligner.key, tgt_features @ aligner.query
    grad_keys, grad_queries = np.zeros_like(keys_of_all), np.zeros_like(queries_of_all)
    s = t = 0
    num_rows = sum(len(tgt) for _, tgt, _ in pairs)
    num_columns = max(1, sum(len({s for s, _ in links}) for _, _, links in pairs))
    for src, tgt, links in pairs:
        sources, targets = slice(s, s + len(src) + 1), slice(t, t + len(tgt))
        s, t = sources.stop, targets.stop
        distances = _distances(len(src) + 1, len(tgt))
        keys, queries = keys_of_all[sources], queries_of_all[targets]
        scores = scale * queries @ keys.T - aligner.slope * distances
        expected = np.zeros_like(scores)
        for source, target in links:
            expected[target, source] = 1
        _, of_columns = guided_loss(scores.T[:-1], expected.T[:-1])
        expected[expected.sum(axis=1) == 0, -1] = 1
        gradient = guided_loss(scores, expected)[1] / num_rows
        gradient[:, :-1] += of_columns.T / num_columns
        grad_queries[targets] = scale * gradient @ keys
        grad_keys[sources] = scale * gradient.T @ queries
        of_slope -= (gradient * distances).sum()
    return tgt_features.T @ grad_queries, src_features.T @ grad_keys, of_slope


def _dropped(features: Singles, rng: np.random.Generator) -> Singles:
    return features * (rng.random(features.shape, np.float32) >= _DROPOUT) / np.float32(1 - _DROPOUT)


def _scaled(embeddings: Singles) -> Singles:
    """Return embeddings with a mean square of 1."""
    result: Singles = embeddings / np.sqrt(np.mean(np.square(embeddings)))
    return result


def _num_features(width: int) -> int:
    return 3 * width + 2 * _WAVES


def _features(ids: Sequence[int], embeddings: Singles) -> Singles:
    """Return the features of each token of a text, (L, F): see `Aligner`."""
    own = np.zeros((len(ids) + 2, embeddings.shape[1]), np.float32)
    own[1:-1] = embeddings[np.asarray(ids, np.int64)]
    angles = relative_positions(len(ids))[:, None] * np.arange(_WAVES) * np.pi
    return np.concatenate(
        [own[1:-1], own[:-2], own[2:], np.cos(angles), np.sin(angles)], axis=1, dtype=np.float32
    )


def _distances(num_src: int, num_tgt: int) -> Singles:
    """Return the distance of each pair of positions from the diagonal, (T, S), from 0 to 1."""
    return np.abs(relative_positions(num_tgt)[:, None] - relative_positions(num_src)).astype(np.float32)


def _parts(words: Ids) -> Singles:
    """Return 1 for each token of each word, (words, tokens)."""
    num_words = 1 + max(chain.from_iterable(words), default=-1)
    parts = np.zeros((num_words, len(words)), np.float32)
    for token, of_token in enumerate(words):
        parts[list(of_token), token] = 1
    return parts
