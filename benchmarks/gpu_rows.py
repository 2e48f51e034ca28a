"""The rows of `benchmarks/gpu.py`: each function measures one, and writes a record as soon as it has it.

What is timed is heedful's own code: the steps of `training_speed.py`, `Translator`, and the commands.
"""

import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from heedful import SearchOptions, Translator
    from heedful.tasks.setup import PreparedRun
    from heedful.training.parallel.process_group import ProcessGroup, StepPlan

ROOT = Path(__file__).resolve().parent.parent
WANTED_BLEU = 39.0
BATCH_SIZES = (1, 64, 256, 1024)
_STEPS, _WARM_UP, _PROFILED = 40, 90, 3  # each shape comes several times before it is timed
_EAGER = ("train.compile=false",)  # compiling takes longer than the short trainings here
_TOY_MODEL = (
    "model.d_model=32",
    "model.d_ff=64",
    "model.num_heads=4",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
)


class SkippedError(Exception):
    """A row cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Run:
    """What a row is asked for.

    Attributes:
        row: its name.
        device: "cuda" or "cpu".
        dry: use toy sizes, to find mistakes.
        work: a folder for the rows of one run: caches, and the model that decodes.
        results: the file of all records, JSON lines.
        limit: seconds after which this row is killed.
    """

    row: str
    device: str
    dry: bool
    work: Path
    results: Path
    limit: float

    def write(self, **figures: object) -> None:
        """Append a record."""
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"row": self.row} | figures, ensure_ascii=False) + "\n")

    def records(self) -> list[dict[str, Any]]:
        """Return the records so far, of all rows."""
        return [json.loads(line) for line in self.results.read_text(encoding="utf-8").splitlines()]

    def size(self, full: int, toy: int) -> int:
        """Return a size, or its toy in a dry run."""
        return toy if self.dry else full


def ceilings(run: Run) -> None:
    """Measure a bf16 product of 8192^3 and a copy on the device; name the machine."""
    import torch

    from heedful.training.execution import _problem_of_compiler

    device = torch.device(run.device)
    gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    run.write(
        what=gpu.name if gpu else "dry run on a CPU",
        memory_gb=gpu and round(gpu.total_memory / 1e9, 1),
        torch=torch.__version__,
        python=platform.python_version(),
        commit=_commit(),
    )
    n = run.size(8192, 128)
    one, other = (torch.randn(n, n, dtype=torch.bfloat16, device=device) for _ in range(2))
    run.write(what=f"bf16 product of {n}^3", tflops=2e-12 * n**3 / _seconds(lambda: one @ other, device))
    source = torch.zeros(run.size(1 << 32, 1 << 20), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2e-9 * source.numel() / _seconds(lambda: target.copy_(source), device)
    run.write(what="device copy, bytes read and written", gb_per_second=copied)
    if device.type == "cuda":
        run.write(what="torch.compile", problem=_problem_of_compiler(device) or "none")


def _commit() -> str:
    with suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return "unknown"


def _seconds(compute: Callable[[], object], device: "torch.device") -> float:
    from profiling import finish

    seconds = []
    for _ in range(23):
        start = time.perf_counter()
        compute()
        finish(device)
        seconds.append(time.perf_counter() - start)
    return median(seconds[3:])


def tests(run: Run) -> None:
    """Run the tests of a real GPU: how many pass, which fail and why, which come nearest to their bounds."""
    nearness = run.work / "nearness.jsonl"
    command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "tests/gpu"]
    command += [part for name in ("xdist", "pytest_timeout") if find_spec(name) for part in ("-p", name)]
    command += ["-m", "gpu or not gpu", "-k", "dropout_is_torchs_own"] if run.dry else ["-m", "gpu"]
    command += ["-n", "4"] if find_spec("xdist") and not run.dry else []
    environment = os.environ | {"HEEDFUL_NEARNESS": str(nearness), "COLUMNS": "400"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins may import torch before the tests do
    log, code = run.work / "tests.log", None
    with log.open("w", encoding="utf-8") as file, suppress(subprocess.TimeoutExpired):
        code = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=file, stderr=file, timeout=run.limit - 5, check=False
        ).returncode
    output = log.read_text(encoding="utf-8", errors="replace")
    ended = re.findall(r"^(?=.*%\]).*\b(PASSED|FAILED|SKIPPED|ERROR)\b", output, re.MULTILINE)
    if not ended:
        raise RuntimeError(f"no test ran: {' / '.join(output.splitlines()[-3:])}")
    problem = {} if code in (0, 1) else {"problem": f"exit code {code}" if code else "not all in time"}
    run.write(what="all", **{name.lower(): number for name, number in Counter(ended).items()}, **problem)
    for outcome, test, why in re.findall(r"^(FAILED|ERROR) (tests.*?) - (.*)", output, re.MULTILINE):
        run.write(what=test, outcome=outcome.lower(), problem=why[:300])
    comparisons = nearness.read_text(encoding="utf-8").splitlines() if nearness.exists() else []
    for each in sorted(map(json.loads, comparisons), key=lambda each: -each["ratio"])[:5]:
        run.write(what=each["test"], bound=each["bound"], share_of_bound=each["ratio"])


def training(run: Run, variant: str) -> None:
    """Time steps of base with 25k + 25k tokens in bf16, first by Adam, then by Muon; profile them."""
    with training_run(run, "base", 25_000, variant) as prepared:
        for optimizer in ("adam", "muon"):
            config = prepared.config.replace(optimizer=prepared.config.optimizer.replace(name=optimizer))
            _time_steps(run, replace(prepared, config=config), variant, f"{optimizer}, base", profiled=True)


def sizes(run: Run) -> None:
    """Time the fastest of the variants above with other batches, and the preset small."""
    timed = [each for each in run.records() if "tokens_per_second" in each and "variant" in each]
    timed = [each for each in timed if each["what"].startswith("adam")]
    variant = max(timed, key=lambda each: each["tokens_per_second"])["variant"] if timed else "eager"
    sizes = [("base", 12_000), ("base", 50_000), ("base", 100_000), ("small", 25_000)]
    for preset, tokens in sizes[-run.size(len(sizes), 2) :]:
        with training_run(run, preset, tokens, variant) as prepared:
            _time_steps(run, prepared, variant, f"{prepared.config.optimizer.name}, {preset}", profiled=False)


@contextmanager
def training_run(run: Run, preset: str, tokens: int, variant: str) -> Iterator["PreparedRun"]:
    """Prepare a training on random words with the lengths of image captions, in bf16.

    compiled: the layers, as train.compile=true has them. graphs: passes are CUDA graphs, nothing is compiled.
    compiled-graphs: both. eager: neither.
    """
    import torch
    from training_speed import prepared_for_steps

    from heedful.ops.graphs import GRAPHS_VARIABLE
    from heedful.settings.loading import load_config, parse_override

    os.environ[GRAPHS_VARIABLE] = "on" if "graphs" in variant else "off"
    compiled = "true" if "compiled" in variant else "false"
    options = [f"batch.tokens={run.size(tokens, 256)}", f"train.compile={compiled}"]
    options += [f"tokenizer.vocab_size={run.size(37_000, 300)}", f'train.device="{run.device}"']
    options += ['train.precision="bf16"', "train.processes=1", *(_TOY_MODEL if run.dry else ())]
    config = load_config(preset=preset, overrides=[parse_override(option) for option in options])
    is_traced_alone = run.dry and compiled == "true"  # compiling takes minutes on a CPU
    stance = torch.compiler.set_stance(force_backend="eager") if is_traced_alone else nullcontext()
    with tempfile.TemporaryDirectory(dir=run.work, ignore_cleanup_errors=True) as folder, stance:
        prepared, _ = prepared_for_steps(config, Path(folder))
        yield prepared


def _time_steps(run: Run, prepared: "PreparedRun", variant: str, what: str, *, profiled: bool) -> None:
    from profiling import finish
    from training_speed import step_plans

    from heedful.runtime.memory import peak_memory
    from heedful.training.optimizer import build_optimizer
    from heedful.training.parallel.choice import start_process_group

    config, execution, device = prepared.config, prepared.execution, prepared.execution.device
    plans = step_plans(prepared)
    optimizer = build_optimizer(prepared.model, config.optimizer, precision=execution.precision)
    with closing(
        start_process_group(prepared.model, prepared.source, config, execution, optimizer, None)
    ) as group:
        start = time.perf_counter()
        for plan in islice(plans, run.size(_WARM_UP, 2)):
            group.step(plan)
        finish(device)
        warm_up, seconds, metrics = time.perf_counter() - start, [], []
        with peak_memory(device) as memory:
            for plan in islice(plans, run.size(_STEPS, 2)):
                start = time.perf_counter()
                metrics.append(group.step(plan))
                finish(device)
                seconds.append(time.perf_counter() - start)
        speed = mean(each.num_tgt_tokens for each in metrics) / median(seconds)
        run.write(
            variant=variant,
            what=what,
            batch_tokens=config.batch.tokens,
            ms_per_step=1e3 * median(seconds),
            tokens_per_second=speed,
            **_share_of_product(run, prepared, speed),
            gb=memory.mib and memory.mib * 2**20 / 1e9,
            halvings=sum(each.num_halvings for each in metrics),
            warm_up_seconds=warm_up,
        )
        if profiled:
            plans_to_profile = list(islice(plans, run.size(_PROFILED, 1)))
            try:
                figures = _profile(group, plans_to_profile, device, median(seconds))
            except (RuntimeError, AssertionError) as error:  # for example without CUPTI
                figures = {"problem": str(error)}
            run.write(variant=variant, what=f"{what}: kernels", **figures)


def _share_of_product(run: Run, prepared: "PreparedRun", speed: float) -> dict[str, float]:
    """Return the operations of a target token with its source token, and their share of the product's rate.

    Each weight of a matrix is multiplied and added, once forward and twice backward.
    """
    from torch import nn

    weights = sum(part.weight.numel() for part in prepared.model.modules() if isinstance(part, nn.Linear))
    rates = [each["tflops"] for each in run.records() if "tflops" in each]
    share = {"share_of_product": 6e-12 * weights * speed / rates[0]} if rates else {}
    return {"mflop_per_token": 6e-6 * weights} | share


def _profile(
    group: "ProcessGroup", plans: "Sequence[StepPlan]", device: "torch.device", step: float
) -> dict[str, object]:
    """Return the kernels of steps: launches, share of idle time in steps of `step` s, the costliest ones."""
    from profiling import finish
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        for plan in plans:
            group.step(plan)
        finish(device)
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU
    kernels = [each for each in profiler.events() or () if each.device_type == kind]
    kernels = [each for each in kernels if not getattr(each, "is_user_annotation", False)]
    if not kernels:
        raise RuntimeError("the profiler saw no kernel")
    busy = end = 0.0  # microseconds
    cost: Counter[str] = Counter()
    for each in sorted(kernels, key=lambda each: each.time_range.start):
        busy += max(0.0, each.time_range.end - max(end, each.time_range.start))
        end = max(end, each.time_range.end)
        cost[each.name[:120]] += each.time_range.end - each.time_range.start
    launched = [each for each in kernels if not each.name.startswith(("Memcpy", "Memset"))]
    return {
        "launches_per_step": round(len(launched) / len(plans)),
        "busy_ms_per_step": 1e-3 * busy / len(plans),
        "share_idle": max(0.0, 1.0 - 1e-6 * busy / len(plans) / step),
        "costliest_ms": {name: 1e-3 * sum_ / len(plans) for name, sum_ in cost.most_common(10)},
    }


def decoding(run: Run, graphs: str) -> None:
    """Translate with base, greedy and by a beam of 4, in batches of each size, in bf16 and fp16."""
    from sacrebleu import corpus_bleu

    from heedful.ops.graphs import GRAPHS_VARIABLE

    os.environ[GRAPHS_VARIABLE] = graphs
    bundle = _trained_base(run)
    for precision, beam in product(("bf16", "fp16"), (1, 4)):
        for size in (2,) if run.dry else BATCH_SIZES:
            lines, references = _test_text(run, max(size, min(512, 8 * size)))
            translator, options = _translator(run, bundle, precision, beam, size)
            seconds = []
            for _ in range(3):  # the first warms up
                start = time.perf_counter()
                outputs = translator.translations(lines, options=options)
                seconds.append(time.perf_counter() - start)
            tokens = sum(len(each.hypotheses[0].token_log_probs) for each in outputs)
            run.write(
                graphs=graphs,
                precision=precision,
                beam=beam,
                batch=size,
                tokens_per_second=tokens / min(seconds[1:]),
                tokens_per_line=tokens / len(lines),
                bleu=corpus_bleu([each.text for each in outputs], [references]).score,
            )


def _translator(
    run: Run, bundle: Path, precision: str, beam: int, batch_size: int
) -> "tuple[Translator, SearchOptions]":
    """Return a translator on the device, and a search that transformers has too."""
    from heedful import SearchOptions, Translator, load_bundle
    from heedful.decoding.strategies.beam import BeamSearch

    loaded = load_bundle(bundle)
    loaded = replace(loaded, network=loaded.model.to(run.device))
    given: dict[str, Any] = {"precision": precision, "batch_size": batch_size, "batch_tokens": 1 << 30}
    translator = Translator(loaded, engine="torch", **given)
    options = SearchOptions(
        strategy=BeamSearch(beam_size=beam, early_stopping="first"),
        length_normalization="power",
        length_penalty=1.0,
        max_length_offset=50,
    )
    return translator, options


def _trained_base(run: Run) -> Path:
    """Return base, trained on the phrase book for 250 steps by the first row that needs it.

    A line has one to five sentences. Made-up words beside them fill a vocabulary of 37,000 tokens.
    """
    output = run.work / "base"
    if not (output / "best").exists():
        number, draw = run.size(13_000, 200), random.Random(1)
        words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(3 * number)]
        made_up = [" ".join(words[start : start + 25]) for start in range(0, len(words), 25)]
        files = _written(run, "base", [*_grouped("train", number), *((line, line) for line in made_up)])
        settings = [f"tokenizer.vocab_size={run.size(37_000, 500)}", f"batch.tokens={run.size(8192, 256)}"]
        settings += ["optimizer.name=muon", "schedule.name=linear", "schedule.warmup_fraction=0.1"]
        settings += ["schedule.peak=2e-3", "schedule.decay_fraction=0.7", "train.precision=bf16"]
        settings += _steps(run.size(250, 2), checkpoint=1000) + list(_TOY_MODEL if run.dry else ())
        _checked(_train(run, output, files, settings, "--preset", "base", "--overwrite"))
    return output / "best"


def _grouped(split: str, number: int) -> list[tuple[str, str]]:
    """Return lines of one to five sentences of the phrase book, with their translations."""
    from heedful.data.phrasebook import phrase_book

    draw, pairs = random.Random(2), getattr(phrase_book(), split)
    groups = [draw.choices(pairs, k=draw.randint(1, 5)) for _ in range(number)]
    return [(" ".join(src for src, _ in group), " ".join(tgt for _, tgt in group)) for group in groups]


def _test_text(run: Run, number: int) -> tuple[list[str], list[str]]:
    pairs = _grouped("test", run.size(number, 4))
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def _written(run: Run, name: str, pairs: Sequence[tuple[str, str]]) -> dict[str, Path]:
    """Write a training text, and 100 lines for validation; return the files by option."""
    files = {}
    for prefix, lines in (("", pairs), ("valid-", _grouped("valid", run.size(100, 4)))):
        for side, suffix in enumerate(("src", "tgt")):
            files[f"{prefix}{suffix}"] = file = run.work / f"{name}.{prefix}{suffix}"
            file.write_text("".join(f"{pair[side]}\n" for pair in lines), encoding="utf-8")
    return files


def _steps(number: int, *, checkpoint: int) -> list[str]:
    settings = [f"train.max_steps={number}", f"valid.every_steps={number}", "valid.decode_sentences=2"]
    return [*settings, f"train.checkpoint_every_steps={checkpoint}", "train.average_checkpoints=1", *_EAGER]


def _train(
    run: Run, output: Path, files: Mapping[str, Path], settings: Sequence[str], *more: str
) -> list[str]:
    """Return the command of a training."""
    command = [sys.executable, "-m", "heedful", "train", *more, "--output", str(output)]
    command += [part for option, path in files.items() for part in (f"--{option}", str(path))]
    settings = [*settings, f"train.device={run.device}", f"data.cache_dir={run.work / 'cache'}"]
    return [*command, *(part for setting in settings for part in ("--set", setting))]


def _checked(command: list[str], *, seconds: float | None = None) -> str:
    """Run a command, and return what it prints.

    Raises:
        RuntimeError: it fails; with its last line.
        TimeoutExpired: it takes longer.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    if done.returncode:
        problem = [f"exit code {done.returncode}", *done.stderr.strip().splitlines()][-1]
        raise RuntimeError(f"{' '.join(command[2:4])}: {problem}")
    return done.stdout


def marian(run: Run) -> None:
    """Translate with MarianMTModel and the exported weights: its speed, and the share of equal outputs."""
    if find_spec("transformers") is None:
        raise SkippedError("transformers is not installed")
    from heedful import load_bundle
    from heedful.interop.marian import export_marian

    bundle, marian = _trained_base(run), run.work / "marian"
    if not marian.exists():
        export_marian(load_bundle(bundle), marian)
    settings = (("float32", 64), ("bf16", 64), ("bf16", 256), ("fp16", 64), ("fp16", 256))
    for precision, size in settings[: run.size(len(settings), 2)]:
        for beam in (1, 4):
            lines, _ = _test_text(run, size)
            translator, options = _translator(run, bundle, precision, beam, len(lines))
            texts, speed = _marian_translations(marian, translator, lines, precision, beam)
            ours = translator.translate(lines, options=options)
            run.write(
                precision=precision,
                beam=beam,
                batch=len(lines),
                tokens_per_second=speed,
                equal_outputs=sum(map(str.__eq__, texts, ours)) / len(lines),
            )


def _marian_translations(
    marian: Path, translator: "Translator", lines: Sequence[str], precision: str, beam: int
) -> tuple[list[str], float]:
    """Return the translations of one batch by `generate`, and the tokens that it wrote in a second."""
    import torch
    from transformers import MarianMTModel

    from heedful.text import SpecialTokens

    tokenizers, device = translator.bundle.tokenizers, translator.device
    framing = SpecialTokens.of(translator.bundle.config, tokenizers)
    sources = [torch.tensor(framing.source(ids)) for ids in tokenizers.src.encode_batch(lines)]
    pad, eos = tokenizers.src.pad_id, tokenizers.tgt.eos_id
    src = torch.nn.utils.rnn.pad_sequence(sources, batch_first=True, padding_value=pad).to(device)
    dtype = getattr(torch, {"float32": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision])
    model = MarianMTModel.from_pretrained(str(marian)).to(device, dtype)  # in evaluation mode
    search = {"num_beams": beam, "length_penalty": 1.0, "early_stopping": True, "do_sample": False}
    search |= {"max_new_tokens": src.shape[1] + 50}
    seconds = []
    with torch.inference_mode():
        for _ in range(2):
            start = time.perf_counter()
            found = model.generate(input_ids=src, attention_mask=(src != pad).long(), **search).tolist()
            seconds.append(time.perf_counter() - start)
    written = [ids[1 : ids.index(eos, 1) + 1] if eos in ids[1:] else ids[1:] for ids in found]
    # An output of ours is at most 50 tokens longer than its source, not than the longest of the batch.
    texts = [
        tokenizers.tgt.decode([i for i in ids[: len(source) + 50] if i != eos])
        for ids, source in zip(written, sources, strict=True)
    ]
    return texts, sum(map(len, written)) / seconds[-1]


def resume(run: Run) -> None:
    """Kill a training by kill -9 after its first checkpoint, resume it, and compare the bits of weights."""
    from heedful.training.checkpoint import list_checkpoints

    files, outputs = _written(run, "resume", _grouped("train", 200)), ["whole", "again", "killed"]
    settings = ["batch.tokens=512", "tokenizer.vocab_size=500", *_TOY_MODEL]
    settings += _steps(run.size(60, 6), checkpoint=run.size(10, 1))
    whole, again, killed = (
        _train(run, run.work / output, files, settings, "--preset", "tiny") for output in outputs
    )
    process = subprocess.Popen(killed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoints = run.work / "killed" / "checkpoints"
    while process.poll() is None and not list_checkpoints(checkpoints):
        time.sleep(0.005)
    process.kill()
    if process.wait() != -signal.SIGKILL:
        raise RuntimeError(f"the run to kill ended first, exit code {process.returncode}")
    step = list_checkpoints(checkpoints)[-1].name
    with ThreadPoolExecutor() as pool:
        list(pool.map(_checked, ([*killed, "--resume"], whole, again)))
    for output, what in (("killed", f"killed after {step}, resumed"), ("again", "another run, not killed")):
        difference = _difference(run.work / "whole", run.work / output)
        run.write(what=what, bits_equal=difference == 0.0, difference=difference)


def _difference(one: Path, other: Path) -> float:
    """Return the largest absolute difference of two runs' last weights."""
    from safetensors.torch import load_file

    first, second = (load_file(output / "last" / "model.safetensors") for output in (one, other))
    return max(float((value - second[name]).abs().max()) for name, value in first.items())


def recipe(run: Run) -> None:
    """Train recipes/multi30k-en-de.toml, seed 1; follow its validation BLEU, and score the test set."""
    output, toml = run.work / "multi30k", str(ROOT / "recipes" / "multi30k-en-de.toml")
    if run.dry:
        files = _written(run, "multi30k", _grouped("train", 50))
        settings = [*_TOY_MODEL, *_steps(4, checkpoint=1000), "valid.every_steps=2"]
        settings += ["train.max_minutes=false", "tokenizer.vocab_size=300", "batch.tokens=256"]
        src, ref = files["valid-src"], files["valid-tgt"]
    else:
        data, minutes = multi30k(), min(2.0, (run.limit - 45) / 60)
        if minutes < 0.5:
            raise SkippedError("too little time is left")
        files = {"src": data / "train.en", "tgt": data / "train.de"}
        files |= {"valid-src": data / "val.en", "valid-tgt": data / "val.de"}
        settings = [f"train.max_minutes={minutes:.2f}", "valid.every_steps=200", *_EAGER]
        src, ref = data / "test_2016_flickr.en", data / "test_2016_flickr.de"
    try:
        command = _train(run, output, files, [*settings, "train.seed=1"], toml)
        _checked(command, seconds=run.limit - 5)
    finally:
        log = output / "log.jsonl"
        events = map(json.loads, log.read_text(encoding="utf-8").splitlines()) if log.exists() else ()
        scores = [each for each in events if each["event"] == "validation"]
        for each in scores:
            figures = {key: each.get(key) for key in ("step", "seconds", "bleu", "nll")}
            run.write(what="validation, 300 sentences, greedy", **figures)
    reached = [each["seconds"] for each in scores if each["bleu"] >= WANTED_BLEU]
    run.write(what=f"time to {WANTED_BLEU} BLEU", seconds=min(reached, default=None))
    command = [sys.executable, "-m", "heedful", "evaluate", str(output), "--src", str(src), "--ref", str(ref)]
    score = json.loads(_checked([*command, "--device", run.device, "--metric", "bleu", "--json"]))
    run.write(
        what="BLEU of test_2016_flickr, beam 5", bleu=score["bleu"], signature=score["signatures"]["bleu"]
    )


def multi30k() -> Path:
    """Return the folder of Multi30k: in $HEEDFUL_DATA, else shared/data inside or beside the repository."""
    given = os.environ.get("HEEDFUL_DATA")
    folders = [Path(given)] if given else [each / "shared" / "data" for each in (ROOT, ROOT.parent)]
    for folder in folders:
        if (folder / "multi30k" / "train.en").exists():
            return folder / "multi30k"
    raise SkippedError(f"no multi30k in {' or '.join(map(str, folders))}; set HEEDFUL_DATA")
