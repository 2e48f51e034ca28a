"""The README of an exported model: Python code that translates with and without heedful."""

from string import Template

from heedful.bundle import Bundle
from heedful.errors import install_hint

_README = Template("""# Transformer $size, as ONNX

Exported with heedful, with weights in float32. With heedful's extra `interop` ($install):

```python
from heedful.interop.onnx.runner import OnnxTranslator

translator = OnnxTranslator.load(".")  # where this file is
print(translator.translate(["..."], beam_size=$beam_size))
```

## Without heedful

`encoder.onnx` takes `src` (B, S) and returns `source_mask` (B, S), `memory_keys_i` (B, H, S, K) and
`memory_values_i` (B, H, S, L). `decoder_step.onnx` takes `ids` (B), all outputs of the encoder, and the cache
of the previous tokens, `past_keys_i` (B, H, P, K) and `past_values_i` (B, H, P, L); it returns `log_probs`
(B, V) of the next token, and in `keys_i` and `values_i` the cache of the next step. B is the number of rows,
S of source tokens, P of previous tokens, 0 at first; i is the index of a decoder layer.

Ids are int64, the mask is bool, everything else is float32. Shorter rows of `src` are padded with $src_pad_id
on the right. $end
The other files have the tokenizer and, in `onnx_model.json`, the special ids and the search that the model
was exported with.

Greedy search over the ids of a text, after `pip install onnxruntime`:

```python
import json

import numpy as np
from onnxruntime import InferenceSession

encoder, decoder = InferenceSession("encoder.onnx"), InferenceSession("decoder_step.onnx")
memories = [output.name for output in encoder.get_outputs()]
pasts = {each.name: each.shape for each in decoder.get_inputs() if each.name.startswith("past_")}
with open("onnx_model.json") as file:
    model = json.load(file)


def greedy(source_ids):
    src = np.array([model["src_prefix"] + source_ids + model["src_suffix"]])
    inputs = dict(zip(memories, encoder.run(None, {"src": src})))
    inputs |= {name: np.zeros((1, heads, 0, size), np.float32) for name, (_, heads, _, size) in pasts.items()}
    search = model["search"]
    limits = [src.shape[1] + search["max_length_offset"], search["max_length"], model["max_positions"]]
    last = min(limit for limit in limits if limit) - 1
    forced = {last: search["forced_last_id"], 0: search["forced_first_id"]}
    ids = [model["start_id"]]
    for step in range(last + 1):
        log_probs, *present = decoder.run(None, {"ids": np.array(ids[-1:])} | inputs)
        inputs |= dict(zip(pasts, present))
        log_probs[:, search["suppressed_ids"]] = -np.inf
        is_free = forced.get(step) is None
        ids.append(int(log_probs.argmax()) if is_free else forced[step])
        if ids[-1] == model["eos_id"]:
            break
    return ids[1:]
```
""")


def readme(bundle: Bundle) -> str:
    """Return the README in Markdown."""
    model = bundle.config.model
    learned = f"Source and target may have at most {model.max_positions:,} tokens."
    return _README.substitute(
        size=f"{model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}",
        beam_size=bundle.config.decode.beam_size,
        src_pad_id=model.src_pad_id,
        install=install_hint("interop"),
        end=learned if model.positions == "learned" else "Lengths are not limited.",
    )
