"""Decode with random weights of published shapes: heedful's backends and CTranslate2, by one thread each.

Usage: python benchmarks/decoding/shapes.py [t5-small|flan-t5-small|marian-base] [SENTENCES...]

Sources and outputs have 30 tokens. A figure is CPU seconds, the least of three calls (of one, for more than
one sentence), which other programs on the machine disturb less than the time that passes. Outputs of
CTranslate2 are not compared: it gets the exported weights, and its searches end by a rule of their own.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import ctranslate2
import numpy as np
import torch

from heedful.decoding.backends.native import NativeBackend
from heedful.decoding.backends.protocol import Backend
from heedful.decoding.backends.torch import TorchBackend
from heedful.decoding.generator import Generator
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Source
from heedful.interop.ctranslate2.export import transformer_spec
from heedful.model.transformer import Transformer
from heedful.runtime.native import native
from heedful.settings.model import ModelConfig

LENGTH = 30
T5 = {
    "d_model": 512, "d_k": 64, "d_v": 64, "norm": "pre", "norm_kind": "rms", "layer_norm_eps": 1e-6,
    "positions": "relative", "attention_bias": False, "feed_forward_bias": False, "scale_embeddings": False,
    "src_vocab_size": 32_128, "tgt_vocab_size": 32_128, "decoder_start_id": 0,
}  # fmt: skip
SHAPES = {
    "t5-small": T5 | {"num_heads": 8, "d_ff": 2048},
    "flan-t5-small": T5
    | {"num_heads": 6, "d_ff": 1024, "num_encoder_layers": 8, "num_decoder_layers": 8}
    | {"gated": True, "activation": "gelu_tanh", "tied": "embeddings"},
    "marian-base": {  # OPUS-MT's
        "activation": "swish", "positions": "concatenated",
        "src_vocab_size": 58_101, "tgt_vocab_size": 58_101, "decoder_start_id": 0,
    },
}  # fmt: skip


def heedfuls(backend: Backend, size: int, sources: list[list[int]], beam_size: int) -> Callable[[], object]:
    """Return a call that translates."""
    generator = Generator(
        backend=backend, start_id=0, eos_id=1, pad_id=0, vocab_size=size, batch_tokens=100_000
    )
    options = SearchOptions(
        strategy=BeamSearch(beam_size=beam_size, early_stopping="first"),
        min_length=LENGTH - 1,
        max_length=LENGTH,
    )
    each = [Source.of(source, options, longest=None) for source in sources]
    return lambda: generator.search(each, options)


def ctranslate2s(directory: str, kind: str, sources: list[list[int]], beam_size: int) -> Callable[[], object]:
    """Return a call that translates."""
    translator = ctranslate2.Translator(directory, compute_type=kind, intra_threads=1, inter_threads=1)
    tokens = [[f"t{i}" for i in source] for source in sources]
    return lambda: translator.translate_batch(
        tokens, beam_size=beam_size, min_decoding_length=LENGTH, max_decoding_length=LENGTH
    )


def exported(model: Transformer, directory: str) -> None:
    """Write a model for CTranslate2."""
    spec = transformer_spec(model)
    names = ["<pad>", "</s>", "<unk>", *(f"t{i}" for i in range(3, model.config.tgt_vocab_size))]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "<unk>", "<pad>", "</s>"
    spec.config.decoder_start_token, spec.config.add_source_eos = "<pad>", False
    spec.validate()
    spec.save(directory)


def seconds_of(call: Callable[[], object], calls: int) -> float:
    """Return the least CPU time of some calls."""
    times = []
    for _ in range(calls):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main(name: str, counts: list[int]) -> None:
    """Measure, and print a line for each count of sentences and beam size."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Transformer.from_config(ModelConfig.model_validate(SHAPES[name])).eval()
    print(f"{name}, {model.num_parameters:,} parameters, {native().describe()}", flush=True)
    size = model.config.tgt_vocab_size
    ids = np.random.default_rng(0).integers(3, size - 128, (max(counts), LENGTH)).tolist()
    backends = {f"heedful {kind}": NativeBackend([model], kind) for kind in ("float32", "int8")}
    backends["heedful, torch float32"] = TorchBackend([model], "float32")
    with tempfile.TemporaryDirectory() as folder:
        exported(model, folder)
        for count in counts:
            for beam_size in (1, 5):
                calls = {each: heedfuls(backends[each], size, ids[:count], beam_size) for each in backends}
                for kind in ("float32", "int8"):
                    calls[f"CTranslate2 {kind}"] = ctranslate2s(folder, kind, ids[:count], beam_size)
                figures = [
                    f"{each} {seconds_of(call, 3 if count == 1 else 1):.3f}" for each, call in calls.items()
                ]
                print(f"{count} sentences, beam {beam_size}: {', '.join(figures)}", flush=True)


if __name__ == "__main__":
    name = sys.argv[1] if sys.argv[1:] else "t5-small"
    main(name, [int(each) for each in sys.argv[2:]] or [1, 16])
