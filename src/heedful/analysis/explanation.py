"""How a sentence was translated: tokens, their probabilities, the n-best list, and what attended to what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from heedful.analysis.attention_maps import AttentionKind, AttentionMaps, attention_maps
from heedful.decoding.alignment import cut, texts_of_tokens
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.storage.bundle import Bundle

_DIGITS = 4


@dataclass(frozen=True)
class ExplainedSentence:
    """A sentence, its n-best list, and all attention of its best translation.

    Attributes:
        translation: the sentence and its hypotheses, best first; at least one.
        maps: the attention maps of the best hypothesis.
        source_texts: the part of the sentence that each source token stands for; "" for special ones.
        tokens: the tokens of each hypothesis, with the end token.
        texts: the part of the text that each token stands for.
    """

    translation: Translation
    maps: AttentionMaps
    source_texts: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]
    texts: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, translator: Translator, translation: Translation) -> Self:
        """Return an explanation of a translation, with the attention of this translator's model."""
        bundle, hypotheses = translator.bundle, translation.hypotheses
        tgt = bundle.tokenizers.tgt
        backend = translator.generator.backend
        maps = attention_maps(bundle, translation.source, hypotheses[0].ids, backend=backend)
        return cls(
            translation,
            maps,
            source_texts=_source_texts(bundle, translation.source, maps.source_tokens),
            tokens=tuple(tuple(tgt.tokens(output.written_ids)) for output in hypotheses),
            texts=tuple(texts_of_tokens(tgt, output.text, output.written_ids) for output in hypotheses),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the maps."""
        return sum(layer.weights.nbytes for layer in self.maps.layers)

    def as_dict(self, attention: AttentionKind | None, layer: int | None) -> dict[str, Any]:
        """Return the explanation for JSON; the maps of heads as `heads[head][row][column]`.

        Args:
            attention: the kind of attention with the maps of all heads; None: without them.
            layer: one of its layers, from 1; None: all.
        """
        hypotheses, cross = self.translation.hypotheses, self.maps.of("cross")
        rows = len(hypotheses[0].token_log_probs)
        mean = sum(of_layer.weights.mean(axis=0) for of_layer in cross) / len(cross)
        answer: dict[str, Any] = {
            "source": {
                "text": self.translation.source,
                "tokens": list(self.maps.source_tokens),
                "texts": list(self.source_texts),
            },
            "hypotheses": [
                {
                    "text": each.text,
                    "score": _rounded(each.score),
                    "log_prob": _rounded(each.log_prob),
                    "finished": each.finished,
                    "tokens": list(tokens),
                    "texts": list(texts),
                    "log_probs": _rounded(each.token_log_probs),
                    "confidence": each.confidence
                    and {name: _rounded(value) for name, value in vars(each.confidence).items()},
                }
                for each, tokens, texts in zip(hypotheses, self.tokens, self.texts, strict=True)
            ],
            "cross": _rounded(mean[:rows]),
            "layers": {kind: len(self.maps.of(kind)) for kind in ("cross", "encoder", "decoder")},
        }
        if attention is not None:
            answer["attention"] = self._attention(attention, layer)
        return answer

    def _attention(self, kind: AttentionKind, layer: int | None) -> dict[str, Any]:
        maps = self.maps.of(kind)
        rows, columns = self.maps.labels(kind)
        return {
            "kind": kind,
            "rows": list(rows),
            "columns": list(columns),
            "maps": [
                {"layer": of_layer.layer, "heads": [_rounded(head) for head in of_layer.weights]}
                for of_layer in maps
                if layer in (None, of_layer.layer)
            ],
        }


def _rounded(numbers: Any) -> Any:  # noqa: ANN401
    """Round a number, or the numbers in nested lists, to four digits."""
    return np.asarray(numbers, np.float64).round(_DIGITS).tolist()


def _source_texts(bundle: Bundle, text: str, tokens: Sequence[str]) -> tuple[str, ...]:
    """Cut a text into the parts of its tokens, which are all of it; special tokens around them have none."""
    tokenizer = bundle.tokenizers.src
    ends = [end for _, end in tokenizer.spans(text)]
    own = tokenizer.tokens(tokenizer.encode(text))
    first = next((at for at in range(len(tokens)) if list(tokens[at : at + len(own)]) == own), 0)
    parts = cut(text, ends)
    return (*[""] * first, *parts, *[""] * (len(tokens) - first - len(parts)))
