"""The README of a model that was exported for transformers' MarianMTModel."""

from collections.abc import Iterable
from string import Template

from heedful.bundle import Bundle
from heedful.interop.huggingface.generation import departures_of_generate
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
    """Return the README in Markdown.

    Args:
        bundle: the exported model.
        framing: the special-token template.
        max_positions: the maximum length of a sequence in Marian.
    """
    model, src = bundle.model.config, bundle.tokenizers.src
    return _README.substitute(
        size=f"{model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}",
        example="".join(f"{tag} " for tag in src.pieces(framing.src_prefix)),
        notes="\n".join(f"- {note}" for note in _notes(bundle, framing, max_positions)),
    )


def _notes(bundle: Bundle, framing: Framing, max_positions: int) -> Iterable[str]:
    yield "The logits are those of the bundle that it was exported from."
    if bundle.model.config.positions == "sinusoidal":
        yield "The dimensions of its states are in the order of Marian's sinusoids, sines before cosines."
    if framing.src_prefix:
        yield f"Each text begins with the tag of its target language, here `{_tag(bundle, framing)}`."
    yield from departures_of_generate(bundle.config.decode)
    yield f"A text may have {max_positions:,} tokens, its end included."
    if isinstance(bundle.tokenizers.tgt, SentencePieceTokenizer):
        yield "An unknown token of an output is omitted from the text, where heedful writes `⁇`."


def _tag(bundle: Bundle, framing: Framing) -> str:
    return bundle.tokenizers.src.pieces(framing.src_prefix)[0]
