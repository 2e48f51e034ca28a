"""Compiled layers compute what they are written to, in few graphs, and nothing but training steps uses them.

What takes long is torch's compiler, not tracing: most tests compile with its backend that changes nothing.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from process_groups import settings, small_source, take_steps
from small_models import assert_same_weights, prepared, small_config, small_model
from tolerances import FLOAT32, FLOAT64, assert_close
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

from heedful.data.batches import BatchSource
from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.ops.attention import AttentionImplementation, attention_implementation, record_attention
from heedful.settings.run import Config
from heedful.training import execution
from heedful.training.execution import compile_layers, compiles
from heedful.training.loop import Trainer
from heedful.training.parallel.process_group import Rank, StepPlan
from heedful.training.state import TrainerCallbacks
from heedful.training.step import batch_loss, measure_nll

# What torch's compiler warns of is its own: it imports what is deprecated, and looks at gradients.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    execution._problem_of_compiler.cache_clear()
    yield
    torch.compiler.reset()
    execution._problem_of_compiler.cache_clear()


@pytest.fixture
def working_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whether it works is not asked, since it is not used."""
    monkeypatch.setattr(execution, "_problem_of_compiler", lambda device: "")
    with torch.compiler.set_stance(force_backend="eager"):
        yield
    monkeypatch.undo()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BatchSource:
    return small_source(tmp_path_factory.mktemp("store"))


def training(*, compiled: bool, **model: Any) -> Config:  # noqa: ANN401
    sizes = {"src_vocab_size": 60, "tgt_vocab_size": 60, "num_encoder_layers": 2, "num_decoder_layers": 2}
    train = {"compile": compiled, "precision": "float32"}
    return settings(model=small_config(**{"dropout": 0.0} | sizes | model).model_dump(), train=train)


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.usefixtures("working_compiler")
def test_batches_of_all_shapes_share_few_graphs(
    source: BatchSource, implementation: AttentionImplementation
) -> None:
    config = training(compiled=True, dropout=0.1, attention_dropout=0.1)
    transformer = small_model(**config.model.model_dump())
    compile_layers(transformer)
    shapes, seen = set(), []
    for epoch in range(3):
        for indices in source.plan(epoch):
            batch = source.batch(indices, epoch)
            shapes.add((*batch.src.shape, *batch.tgt_in.shape))
            with torch.autocast("cpu", torch.bfloat16), attention_implementation(transformer, implementation):
                batch_loss(transformer.train(), batch, config.train).smoothed.backward()
        seen.append(graphs())
    assert len(shapes) > 10
    assert 2 <= seen[1] <= 5  # a layer of each stack, and once more where dimensions are equal
    assert seen[2] == seen[1]
    assert not counters["graph_break"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_compiled_layers_have_the_gradients_of_plain_ones(
    source: BatchSource, implementation: AttentionImplementation
) -> None:
    """With the compiler itself."""
    gradients = []
    for compiled in (False, True):
        config = training(compiled=compiled)
        model = small_model(**config.model.model_dump()).double()
        rank = Rank(model, source, config, prepared(model, config))
        with attention_implementation(model, implementation):
            rank.accumulate(StepPlan(1, ((0, 0),), 0.01))
        gradients.append([weight.grad for weight in model.parameters()])
    assert graphs() == 1 + 2  # what the compiler is tried with, and the two kinds of layers
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, FLOAT64.MODEL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_processes_take_the_weights_where_plain_steps_do(source: BatchSource) -> None:
    """With the compiler itself, in this process and in one that helps."""
    wanted = take_steps(source, training(compiled=False), size=1)
    found = take_steps(source, training(compiled=True), size=2)
    assert graphs() >= 1 + 2
    for name, weight in wanted.weights.items():
        assert_close(found.weights[name], weight, FLOAT64.TRAINING)
    assert found.metrics[-1].nll < found.metrics[0].nll


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_decoder_layer_is_one_graph(implementation: AttentionImplementation) -> None:
    """For lengths that the compiler does not know: a comparison of them may not end up in an operation."""
    model = small_model().train()
    layer = torch.compile(model.decoder.layers[0], backend="eager", fullgraph=True, dynamic=True)
    with attention_implementation(model, implementation):
        for rows, src_len, tgt_len in ((2, 5, 7), (3, 7, 4)):
            memory, mask = torch.randn(rows, src_len, 8), torch.ones(rows, 1, 1, src_len, dtype=torch.bool)
            assert layer(torch.randn(rows, tgt_len, 8), memory, mask).shape == (rows, tgt_len, 8)
    assert graphs() <= 2


def test_compiling_changes_no_name() -> None:
    model = small_model()
    names = list(model.state_dict()), [name for name, _ in model.named_modules()]
    compile_layers(model)
    assert (list(model.state_dict()), [name for name, _ in model.named_modules()]) == names
    assert_same_weights(copy.deepcopy(model), model)


@pytest.mark.slow
@pytest.mark.usefixtures("working_compiler")
def test_training_compiles_and_validation_does_not(source: BatchSource, tmp_path: Path) -> None:
    """Validation compiles nothing more, and whoever listens to the attention there is heard."""
    compiled: list[tuple[int, int]] = []

    def validate(model: Transformer) -> dict[str, float]:
        before, batch = graphs(), source.batch(source.plan(0)[0], 0)
        with record_attention(model) as recorder:
            scores = measure_nll(model, [batch], precision="float32")
        assert len(recorder.maps) == 2 + 2 * 2
        compiled.append((before, graphs()))
        return scores

    models = []
    for wanted in (True, False):
        config = training(compiled=wanted)
        limits = {"max_steps": 4, "average_checkpoints": 1}
        train, valid = config.train.model_dump() | limits, {"every_steps": 2, "decode_sentences": 0}
        model = small_model(**config.model.model_dump())
        callbacks = TrainerCallbacks([validate], [], lambda *_: None, tmp_path, "fingerprint")
        trainer = Trainer(
            model, config.replace(train=train, valid=valid), source, callbacks, prepared(model, config)
        )
        trainer.fit()
        assert trainer.run.progress.computed_by.endswith(", with compiled layers") is wanted
        models.append(model)
    assert compiled[0][0] >= 2
    assert [before for before, _ in compiled] == [after for _, after in compiled]
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert_close(one, other, FLOAT32.TRAINING)


@pytest.mark.usefixtures("working_compiler")
def test_only_a_gpu_compiles_unless_it_is_asked_for() -> None:
    asked, refused = training(compiled=True).train, training(compiled=False).train
    assert settings().train.compile == "auto"
    assert [compiles(settings().train, device) for device in (CPU, GPU)] == [False, True]
    assert [compiles(asked, device) for device in (CPU, GPU)] == [True, True]
    assert [compiles(refused, device) for device in (CPU, GPU)] == [False, False]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine where a GPU's compiler cannot work")
def test_where_the_compiler_does_not_work_nothing_is_compiled_unless_it_is_asked_for() -> None:
    assert not compiles(settings().train, GPU)


def test_a_compiler_that_is_missing_is_missed_in_one_line() -> None:
    with (
        inductor.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(ConfigError, match=r"^train\.compile=true: .*no-such-compiler.*; install") as raised,
    ):
        compiles(training(compiled=True).train, CPU)
    assert "\n" not in str(raised.value)
