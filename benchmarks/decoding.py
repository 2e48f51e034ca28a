"""Translate with heedful, CTranslate2 and transformers, each in a process of its own, and print a table.

    python benchmarks/decoding.py RUN --src test.en --ref test.de --sentences 500
    python benchmarks/decoding.py RUN --src test.en --untrained base --precisions float32,int8 --isa avx2

All have the weights, ids and search of one model: CTranslate2 and transformers (MarianMTModel) get its
exports. Throughput is the median of three rounds over all sentences, which each engine batches; end tokens
count. Latency is that of 100 sentences, one at a time. CTranslate2 has the better figures of two layouts of
threads. `same_outputs` is the percentage equal to heedful's float32 outputs. --untrained measures a preset
with random weights and outputs of 20 tokens. The process of CTranslate2 does not import torch.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from measuring import Row, compare, last_json, parser_of, peak_memory_mib

Ids = list[int]
Translate = Callable[[list[Ids]], list[Ids]]  # framed sources to outputs without start, end token included
# Engine: its precisions, the format of the model that it reads, and its layouts of threads.
ENGINES = {
    "heedful": (("float32", "bf16", "int8"), "", ("native",)),
    "heedful-torch": (("float32", "bf16"), "", ("torch",)),
    "ctranslate2": (("float32", "int8"), "ctranslate2", ("workers", "threads")),
    "transformers": (("float32", "bf16"), "marian", ("",)),
}
ROUNDS, SINGLE, WARM_UP = 3, 100, 5
LONGER_BY = 50  # tokens of an output, at most, beyond its source
UNTRAINED_LENGTH = 20


def main() -> int:
    """Measure every setting; return 1 if one failed."""
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="a run or bundle of heedful's")
    parser.add_argument("--src", type=Path, help="sentences")
    parser.add_argument("--ref", type=Path, help="their translations, for BLEU")
    parser.add_argument("--sentences", type=int, help="only the first ones")
    parser.add_argument("--beams", default="1,5")
    parser.add_argument("--batch-sizes", default="64")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--engines", default="heedful,ctranslate2,transformers", help=", ".join(ENGINES))
    parser.add_argument("--precisions", default="float32,bf16,int8")
    parser.add_argument("--untrained", default="", metavar="PRESET")
    return compare(parser, measured, _measure_here)


def measured(given: argparse.Namespace, environment: dict[str, str]) -> list[Row]:
    """Return a row for each beam, batch size, engine and precision."""
    if given.run is None or given.src is None:
        raise SystemExit("error: RUN and --src are missing")
    sources = given.src.read_text(encoding="utf-8").splitlines()[: given.sentences]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="heedful-decoding-") as folder:
        model = _Model(given.run, sources, Path(folder), untrained=given.untrained)
        references = given.ref.read_text(encoding="utf-8").splitlines() if given.ref else []
        for beam in map(int, given.beams.split(",")):
            expected: list[Ids] = []
            for batch in map(int, given.batch_sizes.split(",")):
                for name in given.engines.split(","):
                    precisions, form, layouts = ENGINES[name]
                    for precision in (each for each in precisions if each in given.precisions.split(",")):
                        row = {"engine": name, "precision": precision, "beam": beam, "batch": batch}
                        if failure := model.exported(form):
                            rows.append(row | {"failure": failure})
                            continue
                        task = row | {"threads": given.threads, "folder": folder}
                        found = [_run(task | {"layout": each}, environment) for each in layouts]
                        outputs = model.outputs() if "failure" not in found[-1] else []
                        expected = expected or outputs
                        quality = model.quality(outputs, expected, references[: len(sources)])
                        rows.append(row | _best(found) | quality)
                        print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def _run(task: Row, environment: dict[str, str]) -> Row:
    return last_json([sys.executable, __file__, "--row", json.dumps(task)], environment)


def _best(found: list[Row]) -> Row:
    good = [each for each in found if "failure" not in each]
    if not good:
        return found[0]
    fastest = max(good, key=lambda each: each["tokens_per_second"])
    soonest = min(good, key=lambda each: each["latency_ms"])
    return fastest | {key: soonest[key] for key in ("latency_ms", "p99_latency_ms")}


class _Model:
    """The model in the format of each engine, and what the processes read: all of it in one folder."""

    def __init__(self, run: Path, sources: list[str], folder: Path, *, untrained: str) -> None:
        from heedful.storage.bundle import load_bundle, save_bundle
        from heedful.storage.description import resolve_bundle
        from heedful.text import SpecialTokens

        self._folder, self._refusals = folder, {"": ""}
        self._bundle = load_bundle(resolve_bundle(run))
        self._is_trained = not untrained
        if untrained:
            self._bundle = _with_random_weights(self._bundle, untrained)
        save_bundle(self._bundle, folder / "bundle", card="For a measurement.\n")
        tokenizers, framing = (
            self._bundle.tokenizers,
            SpecialTokens.of(self._bundle.config, self._bundle.tokenizers),
        )
        about = {
            "exact_length": UNTRAINED_LENGTH if untrained else 0,
            "pad_id": tokenizers.src.pad_id,
            "start_id": framing.start_id,
            "eos_id": tokenizers.tgt.eos_id,
            "sources": [framing.source(ids) for ids in tokenizers.src.encode_batch(sources)],
        }
        (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")

    def exported(self, form: str) -> str:
        """Export the model, unless that was done before; return why it cannot be exported, or ""."""
        from heedful.errors import HeedfulError
        from heedful.interop.ctranslate2.export import export_ctranslate2
        from heedful.interop.marian import export_marian

        if form not in self._refusals:
            export = {"ctranslate2": export_ctranslate2, "marian": export_marian}[form]
            try:
                export(self._bundle, self._folder / form)
                self._refusals[form] = ""
            except HeedfulError as error:
                self._refusals[form] = str(error)
        return self._refusals[form]

    def outputs(self) -> list[Ids]:
        """Return what the last process wrote."""
        return list(json.loads((self._folder / "outputs.json").read_text(encoding="ascii")))

    def quality(self, outputs: list[Ids], expected: list[Ids], references: list[str]) -> Row:
        """Return the percentage of expected outputs, and BLEU if there are references."""
        from sacrebleu import corpus_bleu

        if not outputs:
            return {}
        same = sum(one == other for one, other in zip(outputs, expected, strict=True))
        figures: Row = {"same_outputs": round(100 * same / len(outputs), 1)}
        if references and self._is_trained:
            tokenizer = self._bundle.tokenizers.tgt
            texts = [tokenizer.decode([i for i in ids if i != tokenizer.eos_id]) for ids in outputs]
            figures["bleu"] = round(float(corpus_bleu(texts, [references]).score), 2)
        return figures


def _with_random_weights(trained: Any, name: str) -> Any:  # noqa: ANN401
    import torch

    from heedful.model.transformer import Transformer
    from heedful.settings.presets import preset
    from heedful.storage.bundle import Bundle

    keys = ("norm", "decoder_start_id", "src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id")
    kept = {key: getattr(trained.config.model, key) for key in keys}
    config = trained.config.replace(model=preset(name).model.replace(**kept))
    torch.manual_seed(1)
    return Bundle(config, trained.tokenizers, Transformer.from_config(config.model).eval())


class _Task:
    """What the process of an engine is asked for."""

    def __init__(self, row: Row) -> None:
        self.folder, self.precision, self.layout = Path(row["folder"]), row["precision"], row["layout"]
        self.beam, self.batch, self.threads = row["beam"], row["batch"], row["threads"]
        about = json.loads((self.folder / "about.json").read_text(encoding="utf-8"))
        self.sources: list[Ids] = about["sources"]
        self.exact_length, self.pad_id = about["exact_length"], about["pad_id"]
        self.start_id, self.eos_id = about["start_id"], about["eos_id"]

    def max_length(self, sources: list[Ids]) -> int:
        """Return the most tokens of an output of these sources, end token included."""
        return int(self.exact_length or max(map(len, sources)) + LONGER_BY)


def _measure_here(row: Row) -> int:
    """Translate everything several times, and some sentences alone; print the JSON line."""
    task = _Task(row)
    engine = row["engine"].partition("-")[0]
    translate = {"heedful": _heedful, "ctranslate2": _ctranslate2, "transformers": _transformers}[engine](
        task
    )
    outputs = translate(task.sources)
    if task.exact_length and any(len(ids) != task.exact_length for ids in outputs):
        raise SystemExit(f"an output does not have {task.exact_length} tokens")
    seconds = [_seconds(translate, task.sources) for _ in range(ROUNDS)]
    for source in task.sources[:WARM_UP]:
        translate([source])
    latencies = [1e3 * _seconds(translate, [source]) for source in task.sources[:SINGLE]]
    (task.folder / "outputs.json").write_text(json.dumps(outputs), encoding="ascii")
    figures = {
        "tokens_per_second": round(sum(map(len, outputs)) / median(seconds)),
        "latency_ms": round(median(latencies), 2),
        "p99_latency_ms": round(quantiles(latencies, n=100)[-1], 2),
        "peak_mib": round(peak_memory_mib()),
    }
    print(json.dumps(figures))
    return 0


def _seconds(translate: Translate, sources: list[Ids]) -> float:
    start = time.perf_counter()
    translate(sources)
    return time.perf_counter() - start


def _heedful(task: _Task) -> Translate:
    from dataclasses import replace

    import torch

    from heedful import Translator
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.strategies.beam import BeamSearch
    from heedful.storage.bundle import load_bundle

    torch.set_num_threads(task.threads)
    bundle = load_bundle(task.folder / "bundle")
    translator = Translator(
        bundle, precision=task.precision, batch_size=task.batch, batch_tokens=1 << 30, engine=task.layout
    )
    options = replace(
        SearchOptions.from_config(bundle.config.decode),
        strategy=BeamSearch(beam_size=task.beam, early_stopping="first"),
        n_best=1,
        length_normalization="power",
        length_penalty=1.0,
        max_length_offset=LONGER_BY,
        min_length=task.exact_length,
        max_length=task.exact_length or None,
    )

    def translate(sources: list[Ids]) -> list[Ids]:
        found = translator.search_ids(sources, options=options)
        return [[*each[0].ids, *([task.eos_id] if each[0].finished else [])] for each in found]

    return translate


def _ctranslate2(task: _Task) -> Translate:
    import ctranslate2

    directory = task.folder / "ctranslate2"
    pieces = json.loads((directory / "shared_vocabulary.json").read_text(encoding="utf-8"))
    numbers = {piece: number for number, piece in enumerate(pieces)}
    settings = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    end = -1 if settings["add_source_eos"] else None  # it adds one more, even if there is one
    workers = task.threads if task.layout == "workers" else 1
    engine = ctranslate2.Translator(
        str(directory),
        compute_type=task.precision,
        inter_threads=workers,
        intra_threads=task.threads // workers,
    )

    def translate(sources: list[Ids]) -> list[Ids]:
        found = engine.translate_batch(
            [[pieces[i] for i in source[:end]] for source in sources],
            beam_size=task.beam,
            length_penalty=1.0,
            max_batch_size=task.batch,
            max_decoding_length=task.max_length(sources),
            min_decoding_length=task.exact_length,
            suppress_sequences=[[pieces[task.pad_id]], [pieces[task.start_id]]],  # as the others do
            return_end_token=True,
        )
        return [[numbers[piece] for piece in each.hypotheses[0]] for each in found]

    return translate


def _transformers(task: _Task) -> Translate:
    import torch
    from transformers import MarianMTModel

    torch.set_num_threads(task.threads)
    model = MarianMTModel.from_pretrained(str(task.folder / "marian")).eval()
    if task.precision == "bf16":
        model = model.to(torch.bfloat16)

    @torch.inference_mode()
    def translate(sources: list[Ids]) -> list[Ids]:
        outputs: dict[int, Ids] = {}
        order = sorted(range(len(sources)), key=lambda i: (-len(sources[i]), i))  # it makes no batches
        for indices in (order[i : i + task.batch] for i in range(0, len(order), task.batch)):
            batch = [sources[i] for i in indices]
            longest = max(map(len, batch))
            src = torch.tensor([[*ids, *[task.pad_id] * (longest - len(ids))] for ids in batch])
            found = model.generate(
                input_ids=src,
                attention_mask=(src != task.pad_id).long(),
                num_beams=task.beam,
                length_penalty=1.0,
                early_stopping=True,
                do_sample=False,
                min_new_tokens=task.exact_length or None,
                max_new_tokens=task.max_length(batch),
            )
            for i, (_, *ids) in zip(indices, found.tolist(), strict=True):  # without the start token
                outputs[i] = ids[: ids.index(task.eos_id) + 1] if task.eos_id in ids else ids
        return [outputs[i] for i in range(len(sources))]

    return translate


if __name__ == "__main__":
    sys.exit(main())
