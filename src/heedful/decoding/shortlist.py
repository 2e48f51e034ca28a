"""Shortlists: for each sentence, the few target tokens that its translation may have."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from heedful.data.lexicon import Ids, Lexicon, learn_lexicon
from heedful.decoding.steps import Ints
from heedful.errors import InputError
from heedful.runtime.durable import why_not_written, write_atomically
from heedful.settings.parsing import is_whole, parse_json
from heedful.storage.bundle import Bundle
from heedful.storage.weights_file import utf_8_name
from heedful.text import TokenizerPair

FORMAT_VERSION = 1
_KEY = "heedful-shortlist"  # in the metadata
_LARGEST_VOCABULARY = 2**24  # as in settings/run.py


class Shortlist:
    """A lexical shortlist: candidate translations of each source token, and tokens allowed in every output.

    All other tokens have probability 0, and the probabilities of the shortlist sum to 1.
    """

    def __init__(
        self,
        always: Ints,
        candidates: Lexicon,
        *,
        vocab_sizes: tuple[int, int],
        copies: bool,
        tokenizers: str,
        record: Mapping[str, Any],
        multiple: int = 1,
    ) -> None:
        """Make a shortlist of its parts; see `learn`.

        Args:
            always: target ids that every sentence may have.
            candidates: for each source id the target ids that it allows; probabilities do not matter.
            vocab_sizes: the sizes of the source and target vocabularies.
            copies: whether the output may have the source ids, because both share a vocabulary.
            tokenizers: the fingerprint of the tokenizers.
            record: how it was made, for people.
            multiple: the size of each shortlist is rounded up to a multiple of this number, with the lowest
                missing ids after `always`; 8 for Marian's shortlists.
        """
        self.multiple = multiple
        self.src_vocab_size, self.tgt_vocab_size = vocab_sizes
        self.copies = copies
        self.tokenizers = tokenizers
        self.record = dict(record)
        self._always, self._candidates = always, candidates.tgt
        self._starts = np.searchsorted(candidates.src, np.arange(self.src_vocab_size + 1))
        self._is_always = np.zeros(self.tgt_vocab_size, dtype=bool)
        self._is_always[always] = True

    @classmethod
    def learn(
        cls, src: Ids, tgt: Ids, bundle: Bundle, *, candidates: int, frequent: int, record: Mapping[str, Any]
    ) -> Self:
        """Learn from sentence pairs what translates what (see `learn_lexicon`).

        Args:
            src: the ids of source texts, not empty and without the special tokens around a text.
            tgt: the ids of their translations.
            bundle: the bundle of the model; its special tokens are always allowed.
            candidates: the number of most probable translations per source token, frequent tokens excluded.
            frequent: the number of most frequent target tokens, which are always allowed.
            record: how it was made, for people.
        """
        sizes = bundle.config.model.src_vocab_size, bundle.config.model.tgt_vocab_size
        tokenizers = bundle.tokenizers
        counts = np.bincount(np.fromiter(chain.from_iterable(tgt), np.int64), minlength=sizes[1])
        most_frequent = (-counts).argsort(kind="stable")[:frequent]
        always = np.union1d(most_frequent, _special_ids(tokenizers, sizes[1]))
        empty_word = sizes[0]  # target tokens may come from it
        lexicon = learn_lexicon([[empty_word, *ids] for ids in src], tgt)
        best = lexicon.best(candidates, without=always.tolist())
        is_token = best.src < empty_word
        return cls(
            always,
            Lexicon(best.src[is_token], best.tgt[is_token], best.probabilities[is_token]),
            vocab_sizes=sizes,
            copies=tokenizers.joint,
            tokenizers=tokenizers.fingerprint(),
            record={"candidates": candidates, "frequent": frequent, "pairs": len(src), **record},
        )

    def ids(self, source: Sequence[int], *, besides: Sequence[int] = ()) -> Ints:
        """Return the target ids, ascending, that the translation of a source may have.

        Args:
            source: the ids that the encoder reads.
            besides: further target ids, for example of a prefix.
        """
        is_in = self._is_always.copy()
        for token in set(source):
            is_in[self._candidates[self._starts[token] : self._starts[token + 1]]] = True
        if self.copies:
            is_in[[token for token in source if token < self.tgt_vocab_size]] = True
        is_in[[token for token in besides if token < self.tgt_vocab_size]] = True
        if missing := -int(is_in.sum()) % self.multiple:
            others = np.flatnonzero(~is_in)
            is_in[others[others >= len(self._always)][:missing]] = True
        return np.flatnonzero(is_in)

    def save(self, path: Path) -> None:
        """Write the shortlist as a safetensors file, atomically.

        Raises:
            InputError: the file cannot be written.
        """
        description = {
            "format_version": FORMAT_VERSION,
            "src_vocab_size": self.src_vocab_size,
            "tgt_vocab_size": self.tgt_vocab_size,
            "copies": self.copies,
            "tokenizers": self.tokenizers,
            "record": self.record,
            "multiple": self.multiple,
        }
        arrays: dict[str, NDArray[Any]] = {
            "always": self._always.astype(np.int32),
            "candidates": self._candidates.astype(np.int32),
            "starts": self._starts.astype(np.int64),
        }
        try:
            write_atomically(path, save(arrays, metadata={_KEY: json.dumps(description)}))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {why_not_written(error)}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a shortlist.

        Raises:
            InputError: there is no such file, or it is damaged, or of a newer format.
        """
        problem = "not a shortlist, or damaged"
        try:
            with utf_8_name(path) as named, safe_open(named, framework="numpy") as file:
                read = parse_json((file.metadata() or {}).get(_KEY, ""))
                description = read if isinstance(read, dict) else {}
                version = description.get("format_version")
                if is_whole(version, least=FORMAT_VERSION + 1):
                    problem = f"format_version {version} is newer than {FORMAT_VERSION}: upgrade heedful"
                elif version == FORMAT_VERSION:
                    arrays = [file.get_tensor(name) for name in ("always", "candidates", "starts")]
                    if _is_possible(description, *arrays):
                        return cls._of_file(description, *(array.astype(np.int64) for array in arrays))
        except FileNotFoundError:
            problem = "no such file"
        except (OSError, SafetensorError, ValueError) as error:
            problem = f"{problem} ({error})"
        raise InputError(f"{path}: {problem}; make one with heedful shortlist")

    @classmethod
    def _of_file(
        cls,
        description: Mapping[str, Any],
        always: Ints,
        candidates: Ints,
        starts: Ints,
    ) -> Self:
        sizes = description["src_vocab_size"], description["tgt_vocab_size"]
        src, record = np.repeat(np.arange(sizes[0]), np.diff(starts)), description.get("record")
        return cls(
            always,
            Lexicon(src, candidates, np.ones(len(src))),
            vocab_sizes=sizes,
            copies=description.get("copies") is True,
            tokenizers=str(description.get("tokenizers")),
            record=record if isinstance(record, dict) else {},
            multiple=description.get("multiple", 1),
        )


def check_shortlist(shortlist: Shortlist, bundle: Bundle) -> None:
    """Check that a shortlist belongs to a model.

    Raises:
        InputError: it was learned for other vocabularies.
    """
    config, tokenizers = bundle.config.model, bundle.tokenizers.fingerprint()
    is_of_model = (shortlist.tokenizers, shortlist.src_vocab_size, shortlist.tgt_vocab_size) == (
        tokenizers, config.src_vocab_size, config.tgt_vocab_size,
    )  # fmt: skip
    if not is_of_model or bundle.tokenizers.tgt.eos_id not in shortlist.ids(()):  # no output could end
        raise InputError(
            "shortlist: was learned for another model's vocabulary, or is damaged; learn one for this model "
            "with heedful shortlist"
        )


def _is_possible(
    description: Mapping[str, Any], always: NDArray[Any], candidates: NDArray[Any], starts: NDArray[Any]
) -> bool:
    """Return whether a stored shortlist has whole numbers, and ids of vocabularies of its sizes."""
    src_size, tgt_size = (cast(int, description.get(f"{role}_vocab_size")) for role in ("src", "tgt"))
    if not all(is_whole(size, most=_LARGEST_VOCABULARY) for size in (src_size, tgt_size)):
        return False
    for array in (always, candidates, starts):
        if array.ndim != 1 or array.dtype not in (np.int32, np.int64):
            return False
    if not is_whole(description.get("multiple", 1), least=1, most=tgt_size) or len(starts) != src_size + 1:
        return False
    ids = np.concatenate([always, candidates])
    are_starts = (starts[0], starts[-1]) == (0, len(candidates)) and bool((np.diff(starts) >= 0).all())
    return are_starts and bool(0 <= ids.min(initial=0) <= ids.max(initial=0) < tgt_size)


def _special_ids(tokenizers: TokenizerPair, vocab_size: int) -> list[int]:
    """Return the target ids that stand for no text."""
    tgt = tokenizers.tgt
    return [i for i in (tgt.pad_id, tgt.unk_id, tgt.bos_id, tgt.eos_id) if i < vocab_size]
