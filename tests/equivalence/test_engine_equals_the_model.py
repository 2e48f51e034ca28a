"""The engine against the model that it was packed from, step by step."""

import os
import signal
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from machine_class import LevelsHere, case, every_computation
from small_engines import engine_of, log_probs_of, model_with, padded
from tolerances import FLOAT32, assert_close, format_of

from heedful.decoding.backends.engine import Engine, biases_by_distance
from heedful.decoding.backends.native import EngineStep, NativeBackend, head_weights
from heedful.decoding.backends.torch import ModelStep, TorchBackend, TorchTokens
from heedful.errors import InputError
from heedful.model.variants import BucketedBiases
from heedful.runtime.native import native
from heedful.settings.options import Precision

T5: dict[str, object] = {
    "positions": "relative", "relative_buckets": 8, "relative_max_distance": 9, "norm": "pre",
    "norm_kind": "rms", "gated": True, "activation": "gelu_tanh", "attention_bias": False,
    "feed_forward_bias": False, "scale_embeddings": False,
}  # fmt: skip
OPTIONS: dict[str, dict[str, object]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "final norm": {"final_norm": True},
    "learned positions": {"positions": "learned", "max_positions": 30},
    "separate vocabularies": {"tied": "target", "src_vocab_size": 57},
    "no biases": {"attention_bias": False, "feed_forward_bias": False},
    "one embedding": {"tied": "embeddings"},
    "output bias": {"output_bias": True, "tied": "none"},
    "gelu": {"activation": "gelu"},
    "ssru": {"decoder_unit": "ssru"},
    "ssru, pre-norm": {"decoder_unit": "ssru", "norm": "pre"},
    "swish, unscaled": {"activation": "swish", "scale_embeddings": False},
    "RMSNorm": {"norm_kind": "rms"},
    "gated": {"gated": True, "activation": "swish", "norm": "pre"},
    "narrow heads": {"d_k": 24, "d_v": 24, "num_heads": 4},
    "relative": {"positions": "relative", "relative_buckets": 8, "relative_max_distance": 9},
    "t5": T5 | {"num_heads": 6, "d_k": 16, "d_v": 16},
    "umt5": T5 | {"relative_per_layer": True, "norm": "pre", "tied": "embeddings"},
    "heads of 24": {"d_model": 96, "num_heads": 4},
    "heads of 16": {"d_model": 64, "num_heads": 4},
    "heads of 128": {"d_model": 128, "num_heads": 1},
}


def sentences(count: int, longest: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 41, rng.integers(1, longest + 1)).tolist() for _ in range(count)]


computations = pytest.mark.parametrize(("level", "precision"), every_computation())


@pytest.mark.parametrize("name", OPTIONS)
def test_every_step_has_the_models_log_probabilities(name: str, here: LevelsHere) -> None:
    model = model_with(OPTIONS[name])
    sources = sentences(5, 20, seed=2)
    ours = {each: EngineStep(engine_of(model, each[1], each[0]), sources) for each in here.computations()}
    theirs = ModelStep(model, padded(sources))
    rng = np.random.default_rng(3)
    ids = torch.ones(5, dtype=torch.int64)
    with torch.inference_mode():
        for _ in range(12):
            wanted = log_probs_of(theirs(ids))
            # Rows are repeated, dropped and moved, as a beam search does with them.
            rows = torch.from_numpy(rng.integers(0, len(ids), rng.integers(1, 13)))
            theirs.reorder(rows)
            for (level, precision), step in ours.items():
                with case(level, precision):
                    assert_close(log_probs_of(step(ids)), wanted, format_of(precision).MODEL)
                step.reorder(rows)
            ids = torch.from_numpy(rng.integers(1, 41, len(rows)))


@pytest.mark.parametrize("name", OPTIONS)
def test_the_weights_of_every_head_are_torchs(name: str, here: LevelsHere) -> None:
    model = model_with(OPTIONS[name])
    source, tgt_in = [7, 3, 19, 4, 23, 11, 5], [1, *range(2, 14)]
    wanted = TorchBackend([model], "float32").head_weights(source, tgt_in)
    has_decoder_attention = OPTIONS[name].get("decoder_unit") != "ssru"
    assert list(map(len, wanted)) == [2, 2 if has_decoder_attention else 0, 2]
    for level in here.levels():
        with case(level):
            weights = head_weights(engine_of(model, "float32", level), source, tgt_in)
            for ours, theirs in zip(weights, wanted, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    assert one.shape == other.shape
                    assert_close(one, other, FLOAT32.MODEL)


@pytest.mark.parametrize("suppressed", [[], [0, 3], [40, 99]])
@pytest.mark.parametrize("count", [1, 6, 41, 60])
def test_the_best_candidates_are_those_of_all_log_probabilities(count: int, suppressed: list[int]) -> None:
    engine = engine_of(model_with({}), "float32")
    tokens = EngineStep(engine, sentences(30, 10, seed=4))(torch.ones(30, dtype=torch.int64))
    values, ids = tokens.top(count, suppressed, renormalize=False)
    log_probs = log_probs_of(tokens)
    possible = 41 - len([i for i in suppressed if i < 41])
    wanted_values, wanted_ids = TorchTokens(log_probs).top(count, [i for i in suppressed if i < 41])
    some = slice(0, min(count, possible))
    np.testing.assert_array_equal(ids[:, some], wanted_ids[:, some])
    assert_close(values[:, some], wanted_values[:, some], FLOAT32.ELEMENT)
    assert (values[:, possible:] == -np.inf).all()
    renormalised, same_ids = tokens.top(count, suppressed, renormalize=True)
    np.testing.assert_array_equal(same_ids[:, some], ids[:, some])
    if suppressed and count >= possible:
        assert_close(np.exp(renormalised).sum(axis=1), 1.0, FLOAT32.ROW)


@computations
def test_neighbours_do_not_change_a_bit_of_a_sentence(precision: Precision, level: str) -> None:
    engine = engine_of(model_with({}), precision, level)
    sources = sentences(35, 25, seed=5)  # which fill neither blocks of rows nor tiles
    together = EngineStep(engine, sources)
    alone = [EngineStep(engine, [source]) for source in sources]
    ids = torch.ones(35, dtype=torch.int64)
    for _ in range(6):
        every = log_probs_of(together(ids))
        each = torch.cat([log_probs_of(step(ids[row, None])) for row, step in enumerate(alone)])
        assert torch.equal(every, each)
        ids = every.argmax(dim=1)


# Large enough, with a hundred rows, for every kind of work to be shared.
LARGE: dict[str, object] = {
    "d_model": 256,
    "num_heads": 4,
    "d_ff": 512,
    "tgt_vocab_size": 601,
    "tied": "target",
}
LARGE |= {"num_encoder_layers": 1, "num_decoder_layers": 1}


@computations
def test_what_comes_next_does_not_depend_on_how_many_ids_are_fed_at_once(
    precision: Precision, level: str
) -> None:
    engine, sources = engine_of(model_with({}), precision, level), sentences(5, 20, seed=1)
    at_once, one_by_one = EngineStep(engine, sources), EngineStep(engine, sources)
    rng = np.random.default_rng(2)
    ids = rng.integers(3, 41, (5, 90))
    wanted = torch.stack([log_probs_of(one_by_one(column)) for column in ids.T.copy()])
    rows, lengths = np.arange(5), np.zeros(5, np.int64)
    while len(rows):
        counts = rng.integers(1, 9, len(rows))
        counts = np.minimum(counts, 90 - lengths[rows])
        ends = lengths[rows] + counts
        fed = [ids[row, start:end] for row, start, end in zip(rows, lengths[rows], ends, strict=True)]
        found = log_probs_of(at_once.decode_all(np.concatenate(fed), counts))
        for row, end, each in zip(rows, ends, found.split(counts.tolist()), strict=True):
            assert torch.equal(each, wanted[lengths[row] : end, row])
        lengths[rows] = ends
        lives_on = np.flatnonzero(lengths[rows] < 90)
        if len(lives_on):
            at_once.reorder(lives_on)
        rows = rows[lives_on]


@computations
def test_threads_that_share_a_step_do_not_change_a_bit(precision: Precision, level: str) -> None:
    engine = engine_of(model_with(LARGE), precision, level)
    sources = sentences(100, 25, seed=6)
    steps = [EngineStep(engine, sources, threads=threads) for threads in (1, 2, 5, 3)]
    ids = torch.ones(100, dtype=torch.int64)
    for _ in range(10):
        alone, *shared = [step(ids) for step in steps]
        wanted, (values, best) = log_probs_of(alone), alone.top(4, [0, 1], renormalize=True)
        for tokens in shared:
            assert torch.equal(log_probs_of(tokens), wanted)
            found = tokens.top(4, [0, 1], renormalize=True)
            np.testing.assert_array_equal(found[0], values)
            np.testing.assert_array_equal(found[1], best)
        ids = wanted.argmax(dim=1)


def test_callers_at_the_same_time_share_with_the_helpers_of_one_of_them() -> None:
    engine = engine_of(model_with(LARGE), "float32")
    wanted = written_by(engine, 1)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(partial(written_by, engine), [3] * 12)) == [wanted] * 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    engine = engine_of(model_with(LARGE), "float32")
    wanted = written_by(engine, 3)  # helpers run in this process now
    with ThreadPoolExecutor(1) as pool:  # and may be in use while the other one is forked
        meanwhile = pool.submit(lambda: [written_by(engine, 3) for _ in range(20)])
        code = _in_a_forked_process(lambda: written_by(engine, 3) == wanted)
        assert meanwhile.result() == [wanted] * 20
    assert code == 0


def written_by(engine: Engine, threads: int) -> list[list[int]]:
    """What some sentences become, greedily, in ten steps."""
    step = EngineStep(engine, sentences(30, 20, seed=7), threads=threads)
    ids = torch.ones(30, dtype=torch.int64)
    written = []
    for _ in range(10):
        ids = torch.from_numpy(step(ids).top(1, [], renormalize=False)[1][:, 0])
        written.append(ids.tolist())
    return written


def _in_a_forked_process(check: Callable[[], bool]) -> int:
    """The exit code of a process that is forked here: 0 where the check holds."""
    with warnings.catch_warnings():  # newer versions of Python warn of forks in the presence of threads
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if not process:
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return 3


@pytest.mark.parametrize("options", [{}, T5], ids=["paper", "t5"])
def test_outputs_may_be_longer_than_the_first_tables(options: dict[str, object]) -> None:
    model = model_with(options)
    engine = engine_of(model, "float32")
    ours, theirs = EngineStep(engine, [[5, 6, 7]]), ModelStep(model, torch.tensor([[5, 6, 7]]))
    with torch.inference_mode():
        for place in range(150):
            ids = torch.tensor([1 + place % 40])
            found, wanted = ours(ids), theirs(ids)
            if place % 37 == 0 or place > 147:
                assert_close(log_probs_of(found), log_probs_of(wanted), FLOAT32.MODEL)


def test_other_models_are_left_to_torch() -> None:
    for options, reason in (
        ({"positions": "rotary"}, "rotary"),
        ({"positions": "alibi"}, "alibi"),
        ({"num_kv_heads": 1}, "heads"),
        ({"d_k": 32, "d_v": 16}, "different sizes"),
        ({"d_k": 8, "d_v": 8}, "32"),
        ({"d_ff": 100}, "32"),
    ):
        found = NativeBackend.why_not([model_with(options)], "float32")
        assert native().level is None or reason in str(found)
    double = NativeBackend.why_not([model_with({}).double()], "float32")
    assert native().level is None or double == "weights that are not float32"


@pytest.mark.parametrize("buckets", [4, 8, 32, 64, 31])
@pytest.mark.parametrize("reach", [33, 64, 100, 128, 256, 1000])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_each_distance_has_the_models_bias(buckets: int, reach: int, bidirectional: bool) -> None:
    """Distances between two buckets are rounded as torch rounds them, and T5 with it."""
    buckets += buckets % 2
    torch.manual_seed(4)
    biases = BucketedBiases(3, num_buckets=buckets, max_distance=reach, bidirectional=bidirectional)
    torch.nn.init.normal_(biases.weight)
    with torch.no_grad():
        wanted = biases.bias(reach, 1, 2 * reach + 1, torch.zeros(()))[:, 0]
        beyond = biases.bias(5 * reach, 1, 10 * reach, torch.zeros(()))[:, 0]
    found = biases_by_distance(biases.weight.detach().numpy(), reach=reach, bidirectional=bidirectional)
    assert torch.equal(torch.from_numpy(found), wanted)
    assert torch.equal(beyond[:, 0], wanted[:, 0])
    assert torch.equal(beyond[:, -1], wanted[:, -1])


def bad_feeds() -> dict[str, tuple[list[int], list[int], list[int]]]:
    """Ids, outputs and positions of two rows, of which one number is out of range."""
    return {
        "id beyond the vocabulary": ([1, 41], [0, 1], [0, 0]),
        "huge id": ([1, 10**12], [0, 1], [0, 0]),
        "negative id": ([-1, 1], [0, 1], [0, 0]),
        "no such output": ([1, 1], [0, 2], [0, 0]),
        "negative output": ([1, 1], [0, -1], [0, 0]),
        "position beyond the table": ([1, 1], [0, 1], [0, 10**6]),
        "negative position": ([1, 1], [0, 1], [0, -1]),
    }


def test_numbers_out_of_range_are_refused_before_anything_is_read(here: LevelsHere) -> None:
    for level in here.levels():
        engine = engine_of(model_with({}), "float32", level)
        step = EngineStep(engine, [[5, 6], [7]])
        for name, numbers in bad_feeds().items():
            ids, outputs, positions = (np.asarray(each, dtype=np.int64) for each in numbers)
            with case(level, name), pytest.raises(InputError, match="outside of the vocabulary"):
                step._decode(ids, outputs, positions)


def test_source_ids_out_of_range_are_refused(here: LevelsHere) -> None:
    for level in here.levels():
        engine = engine_of(model_with({}), "float32", level)
        for ids in ([41], [-1], [10**12]):
            with case(level, ids), pytest.raises(InputError, match="outside of the vocabulary"):
                EngineStep(engine, [[5, 6], ids])
