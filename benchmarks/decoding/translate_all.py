"""Translate a file with one engine; print a JSON line of speed, quality and memory."""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

import torch
from sacrebleu import corpus_bleu

from heedful.bundle import load_bundle, resolve_bundle
from heedful.decoding.batches import plan_batches
from heedful.text import Framing

Ids = list[int]
Translate = Callable[[list[Ids]], list[Ids]]  # framed sources to outputs without start, end token included

ROUNDS = 3
SINGLE = 100
LONGER_BY = 50


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("run", "material", "src", "ref"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("beam", "batch-size", "threads", "sentences"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--layout", default="")
    return parser.parse_args()


def main() -> None:
    """Measure."""
    given = parse_arguments()
    torch.set_num_threads(given.threads)
    bundle = load_bundle(resolve_bundle(given.run))
    tokenizers, framing = bundle.tokenizers, Framing.of(bundle.config, bundle.tokenizers)
    texts, references = (
        path.read_text(encoding="utf-8").splitlines()[: given.sentences or None]
        for path in (given.src, given.ref)
    )
    sources = [framing.source(ids) for ids in tokenizers.src.encode_batch(texts)]
    translate = ENGINES[given.engine](given)
    outputs = translate(sources)
    seconds = [_seconds(translate, sources) for _ in range(ROUNDS)]
    for source in sources[:5]:
        translate([source])
    latencies = [1e3 * _seconds(translate, [source]) for source in sources[:SINGLE]]
    eos_id = tokenizers.tgt.eos_id
    decoded = [tokenizers.tgt.decode([i for i in ids if i != eos_id]) for ids in outputs]
    line = {
        "output_tokens_per_second": sum(map(len, outputs)) / median(seconds),
        "bleu": corpus_bleu(decoded, [references]).score,
        "median_latency_ms": median(latencies),
        "p99_latency_ms": quantiles(latencies, n=100)[-1],
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    sys.stdout.write(json.dumps(line) + "\n")


def _seconds(translate: Translate, sources: list[Ids]) -> float:
    begun = time.perf_counter()
    translate(sources)
    return time.perf_counter() - begun


def _in_batches(sources: Sequence[Ids], size: int, translate: Translate) -> list[Ids]:
    """Batches of like length, longest first; results in the order of the sources."""
    found: dict[int, Ids] = {}
    for batch in plan_batches([len(ids) for ids in sources], tokens=1 << 30, size=size):
        found.update(zip(batch, translate([sources[i] for i in batch]), strict=True))
    return [found[i] for i in range(len(sources))]


def heedful(given: argparse.Namespace, *, engine: str = "compiled") -> Translate:
    """The translator below its text: batches go through it as `heedful translate` sends them."""
    from dataclasses import replace

    from heedful import Translator
    from heedful.decoding.options import SearchOptions

    bundle = load_bundle(resolve_bundle(given.run))
    translator = Translator(
        bundle, precision=given.precision, batch_size=given.batch_size, batch_tokens=1 << 30, engine=engine
    )
    options = SearchOptions.from_config(bundle.config.decode)
    options = replace(
        options, beam_size=given.beam, n_best=1, length_normalization="average", length_penalty=1.0,
        early_stopping="first", max_length_offset=LONGER_BY,
    )  # fmt: skip
    eos_id = bundle.tokenizers.tgt.eos_id

    def translate(sources: list[Ids]) -> list[Ids]:
        found = translator.search_ids(sources, options=options)
        return [[*each[0].ids, *([eos_id] if each[0].finished else [])] for each in found]

    return translate


def heedful_torch(given: argparse.Namespace) -> Translate:
    """The same with torch."""
    return heedful(given, engine="torch")


def ctranslate2(given: argparse.Namespace) -> Translate:
    """CTranslate2 on the exported directory; its own batches, of the same size."""
    import ctranslate2

    directory = given.material / "ctranslate2"
    pieces = json.loads((directory / "shared_vocabulary.json").read_text(encoding="utf-8"))
    numbers = {piece: number for number, piece in enumerate(pieces)}
    workers = given.threads if given.layout == "workers" else 1
    engine = ctranslate2.Translator(
        str(directory),
        compute_type=given.precision,
        inter_threads=workers,
        intra_threads=given.threads // workers,
    )

    def translate(sources: list[Ids]) -> list[Ids]:
        found = engine.translate_batch(
            [[pieces[i] for i in source] for source in sources],
            beam_size=given.beam,
            length_penalty=1.0,
            max_batch_size=given.batch_size,
            max_decoding_length=max(map(len, sources)) + LONGER_BY,
            min_decoding_length=0,
            return_end_token=True,
        )
        return [[numbers[piece] for piece in each.hypotheses[0]] for each in found]

    return translate


def transformers(given: argparse.Namespace) -> Translate:
    """MarianMTModel on the exported directory."""
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(str(given.material / "marian")).eval()
    if given.precision == "bf16":
        model = model.to(torch.bfloat16)
    pad_id, eos_id = model.config.pad_token_id, model.config.eos_token_id

    @torch.inference_mode()
    def batch(sources: list[Ids]) -> list[Ids]:
        longest = max(map(len, sources))
        src = torch.tensor([[*ids, *[pad_id] * (longest - len(ids))] for ids in sources])
        found = model.generate(
            input_ids=src,
            attention_mask=(src != pad_id).long(),
            num_beams=given.beam,
            length_penalty=1.0,
            early_stopping=True,
            do_sample=False,
            max_new_tokens=longest + LONGER_BY,
        )
        outputs = [ids[1:] for ids in found.tolist()]  # without the start token
        return [ids[: ids.index(eos_id) + 1] if eos_id in ids else ids for ids in outputs]

    return lambda sources: _in_batches(sources, given.batch_size, batch)


ENGINES: dict[str, Callable[[argparse.Namespace], Translate]] = {
    "heedful": heedful,
    "heedful-torch": heedful_torch,
    "ctranslate2": ctranslate2,
    "transformers": transformers,
}

if __name__ == "__main__":
    main()
