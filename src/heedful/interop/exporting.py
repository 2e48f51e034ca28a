"""What all exports share: refusals, a directory for transformers, and the README of an exported model."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

from safetensors.torch import save_file
from torch import Tensor

from heedful.errors import InteropError
from heedful.interop.conversion import Settings
from heedful.interop.keys import split
from heedful.model.transformer import Transformer
from heedful.ops.changes import changed_parts, in_words
from heedful.runtime.durable import new_directory
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import as_json
from heedful.storage.description import CARD_FILE
from heedful.text import Tokenizer

_VARIANTS = split(
    "decoder_unit query_norm attention_cap output_cap rotary_base rotary_scale full_attention_every"
)


def refuse_variants(config: ModelConfig, system: str) -> None:
    """Refuse settings that other systems cannot compute.

    Raises:
        InteropError: the model has one; it is named.
    """
    back = {key: value for key, value in config.model_dump().items() if key not in _VARIANTS}
    refuse_lost(config, back | ({"norm": "pre"} if config.norm == "both" else {}), system)


# Settings that the weights show or that files have elsewhere, and settings that change no outputs.
_IN_WEIGHTS = split(
    """
    d_model num_heads d_ff num_encoder_layers num_decoder_layers tied attention_bias feed_forward_bias
    output_bias decoder_start_id src_vocab_size tgt_vocab_size src_pad_id tgt_pad_id
    """
)
_WITHOUT_EFFECT = split(
    """
    alignment_heads alignment_layer dropout attention_dropout activation_dropout word_dropout max_positions
    relative_buckets relative_max_distance
    """
)


def refuse_lost(
    config: ModelConfig, back: Settings, system: str, remedy: str = "translate with heedful"
) -> None:
    """Refuse a model if the exported model would have other settings.

    Args:
        config: the model's settings.
        back: the settings of the exported model, without the defaults.
        system: the value of --to.
        remedy: the end of the message.

    Raises:
        InteropError: a setting is lost; it is named.
    """
    size = config.d_model / config.num_heads
    usual = {"d_k": size, "d_v": size, "num_kv_heads": config.num_heads}
    defaults = {key: field.default for key, field in ModelConfig.model_fields.items()}
    ours, theirs = (
        usual | {key: value for key, value in values.items() if value is not None}
        for values in (config.model_dump(), defaults | dict(back))
    )
    compared = (defaults.keys() - _IN_WEIGHTS | back.keys()) - _WITHOUT_EFFECT
    for key in filter(compared.__contains__, defaults):
        if ours.get(key) != theirs.get(key):
            problem = f"model.{key}={as_json(ours.get(key))} is not supported there"
            raise InteropError(f"--to {system}: {problem}; {remedy}")


def refuse_changed(model: Transformer, system: str) -> None:
    """Refuse a model with parts that are not heedful's own, which other systems do not compute.

    Raises:
        InteropError: the model has one.
    """
    if changes := changed_parts(model):
        raise InteropError(
            f"--to {system}: {in_words(changes)}: not heedful's own, and {system} would compute another "
            "model; translate with heedful"
        )


def write_readme(
    directory: Path, template: Template, model: ModelConfig, *, notes: Iterable[str] = (), **fields: object
) -> None:
    """Write the README of an exported model.

    Args:
        directory: the directory of the model.
        template: the text in Markdown, with `$size`, `$notes` and the fields.
        model: the settings that give the size.
        notes: shown as a list.
        **fields: values of the template.
    """
    size = f"{model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}"
    listed = "\n".join(f"- {note}" for note in notes)
    text = template.substitute(fields, size=size, notes=listed)
    (directory / CARD_FILE).write_text(text, encoding="utf-8")


_README = Template("""---
library_name: transformers
pipeline_tag: translation
---
# $title $size

Exported from heedful for transformers.

```python
from transformers import $kind, $tokenizer

tokenizer = $tokenizer.from_pretrained(".")  # where this file is
model = $kind.from_pretrained("."$options)
batch = tokenizer(["$example..."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

$notes
""")


def special_names(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the special tokens of a tokenizer, under transformers' names for them."""
    ids = {kind: getattr(tokenizer, f"{kind}_id") for kind in ("pad", "unk", "bos", "eos")}
    return {f"{kind}_token": tokenizer.tokens([token_id])[0] for kind, token_id in ids.items()}


def write_pretrained(
    output: Path,
    model: Transformer,
    *,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Settings],
    files: Mapping[str, bytes],
    notes: Iterable[str],
    **readme: str,
) -> None:
    """Write a directory for transformers' `from_pretrained`, whole or not at all.

    Args:
        output: the directory to create.
        model: what is exported.
        tensors: the weights; no two of them share memory.
        settings: the contents of JSON files.
        files: the bytes of other files.
        notes: sentences for the README.
        **readme: its title, kind, tokenizer, options and example: names of classes, and Python.

    Raises:
        RunError: the output exists.
    """
    with new_directory(output) as directory:
        for name, content in files.items():
            (directory / name).write_bytes(content)
        for name, values in settings.items():
            text = json.dumps(values, indent=2, sort_keys=True)
            (directory / name).write_text(f"{text}\n", encoding="utf-8")
        write_readme(directory, _README, model.config, notes=notes, **readme)
        save_file(dict(tensors), directory / "model.safetensors", metadata={"format": "pt"})
