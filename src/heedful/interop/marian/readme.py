"""The README of a model that was exported for transformers' MarianMTModel."""

from collections.abc import Iterable
from string import Template

from heedful.bundle import Bundle
from heedful.config import DecodeConfig
from heedful.text import SentencePieceTokenizer
from heedful.text.framing import Framing

_README = Template("""---
library_name: transformers
pipeline_tag: translation
---
# MarianMT $size

Exported from heedful for transformers.

```python
from transformers import MarianMTModel, MarianTokenizer

tokenizer = MarianTokenizer.from_pretrained("path/to/this/directory")
model = MarianMTModel.from_pretrained("path/to/this/directory")
batch = tokenizer(["$example..."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

$notes
""")


def readme(bundle: Bundle, framing: Framing, *, max_positions: int) -> str:
    """Write it, in Markdown.

    Args:
        bundle: what was exported.
        framing: the special-token template.
        max_positions: how long a sequence may be there.
    """
    model, src = bundle.model.config, bundle.tokenizers.src
    return _README.substitute(
        size=f"{model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}",
        example="".join(f"{tag} " for tag in src.pieces(framing.src_prefix)),
        notes="\n".join(f"- {note}" for note in _notes(bundle, framing, max_positions)),
    )


def can_be_said(search: DecodeConfig) -> bool:
    """Whether `generate` has settings of the same meaning."""
    return search.length_normalization == "average" and _has_one_limit(search)


def _has_one_limit(search: DecodeConfig) -> bool:
    return search.max_length is not None and search.max_length_offset >= search.max_length


def _notes(bundle: Bundle, framing: Framing, max_positions: int) -> Iterable[str]:
    search = bundle.config.decode
    yield "The logits are those of the bundle that it was exported from."
    if bundle.model.config.positions == "sinusoidal":
        yield "The dimensions of its states stand in the order of Marian's sinusoids, sines before cosines."
    if framing.src_prefix:
        yield f"Each text begins with the tag of its target language, here `{_tag(bundle, framing)}`."
    if search.beam_size > 1 and search.length_normalization == "gnmt":
        yield (
            f"heedful divided log-probabilities by ((5 + length) / 6) ** {search.length_penalty}, which "
            f"`generate` cannot: it divides by length ** {search.length_penalty}, which comes to the same in "
            "long outputs, and favours length more in short ones."
        )
    if search.beam_size > 1 and search.early_stopping == "optimal" and not can_be_said(search):
        yield (
            "heedful searched on until nothing better could come; `generate` ends a sentence by an estimate "
            '(`early_stopping=False`), which rarely makes a difference and is much faster than `"never"`.'
        )
    if not _has_one_limit(search):
        yield (
            f"heedful ended an output {search.max_length_offset} tokens after the length of its input; "
            "`generate` knows one maximum for all, `max_length`."
        )
    if search.repetition_penalty != 1:
        yield (
            "The repetition penalty multiplies log-probabilities, as heedful has it; `generate` with "
            "`num_beams=1` applies it to logits."
        )
    yield f"A text may have {max_positions:,} tokens, its end included."
    if isinstance(bundle.tokenizers.tgt, SentencePieceTokenizer):
        yield "An unknown piece in an output is left out of the text, where heedful writes `⁇`."


def _tag(bundle: Bundle, framing: Framing) -> str:
    return bundle.tokenizers.src.pieces(framing.src_prefix)[0]
