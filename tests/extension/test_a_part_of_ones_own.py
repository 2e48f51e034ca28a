"""A model with a part that is not heedful's own is trained, validated, translated and saved as that model."""

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from machine_class import need_native
from option_models import option_inputs, option_model
from own_parts import LAYER, CappedLinear, FirstKey, FlatAttention, Parts, ScaleNorm, squared, with_part
from process_groups import small_source
from small_models import prepared, small_config
from ten_pairs import write_pairs
from tiny_bundle import SOURCES, TARGETS, memorised, save_memorised
from tolerances import FLOAT32, FLOAT64, assert_close, close
from torch import Tensor, nn

from heedful.data.batches import Batch
from heedful.decoding.backends.native import NativeBackend
from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.errors import BundleError, ConfigError, InputError, InteropError
from heedful.interop.ctranslate2.export import export_ctranslate2
from heedful.interop.marian import export_marian
from heedful.interop.onnx.export import export_onnx
from heedful.model import attention, transformer
from heedful.model.layers import FeedForward
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.ops.attention import FusedAttention, has_plain_self_attention, record_attention
from heedful.ops.changes import changed_parts
from heedful.ops.kernels import FusedResidual
from heedful.ops.lora import add_adapters
from heedful.runtime.threads import using_threads
from heedful.settings.loading import load_config, parse_override
from heedful.settings.run import Config, LoraConfig, TrainConfig
from heedful.storage.bundle import Bundle, load_bundle, load_model, save_bundle, save_model
from heedful.storage.torch_weights import assign_weights
from heedful.tasks.train import train
from heedful.tasks.training import TrainResult
from heedful.training.events import Event, ValidationEvent, WarningEvent
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel.choice import process_group_size
from heedful.training.parallel.messages import pack, unpack
from heedful.training.parallel.process_group import Rank, SingleProcess, StepPlan
from heedful.training.parallel.shared_memory import SharedMemoryGroup
from heedful.training.step import batch_loss

EVERY = list(Parts.PUT)
IMPORTABLE = ["feed-forward", "attention", "norm with weights of its own", "positions", "output"]
ATTENTION = {"attention", "attention without weights"}


def with_own(name: str) -> Bundle:
    return replace(memorised(), network=with_part(memorised().model, name))


def states(model: Transformer) -> Tensor:
    """Logits of the same random ids for each model of the memorised one's size."""
    generator = torch.Generator().manual_seed(3)
    src, tgt_in = (torch.randint(4, 30, (3, length), generator=generator) for length in (7, 5))
    with torch.no_grad():
        logits: Tensor = model(src, tgt_in)
    return logits


def scores(translator: Translator) -> list[float]:
    return [each.log_prob for each in translator.score(SOURCES, TARGETS)]


def as_paper(model: Transformer) -> Bundle:
    return replace(memorised(), network=model)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("training", [True, False])
def test_fused_operations_replace_nothing_else(name: str, training: bool) -> None:
    model = with_part(memorised().model, name).train(training)
    wanted = states(model)
    assert (wanted - states(memorised().model)).abs().max() > 0.01  # the part matters
    with using_threads(1):
        use_fused_ops(model, kernels=True)
        assert_close(states(model), wanted, FLOAT32.MODEL)


def test_all_else_is_still_replaced() -> None:
    model = with_part(memorised().model, "attention without weights")
    use_fused_ops(model, kernels=True)
    decoder = model.decoder.layers[0]
    assert type(decoder.self_attention.attention) is FirstKey
    assert type(decoder.cross_attention.attention) is FusedAttention
    assert type(decoder.residual) is FusedResidual


@pytest.mark.parametrize("name", EVERY)
def test_the_engine_leaves_it_to_torch_and_says_so_once(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    need_native()
    bundle = with_own(name)
    translator = Translator(bundle)
    assert translator.engine_in_use == "torch"
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{Parts.PLACES[name]}: ")
    assert_close(scores(translator), scores(Translator(bundle, engine="torch")), FLOAT32.SENTENCE)
    with pytest.raises(InputError, match=Parts.PLACES[name]):
        Translator(bundle, engine="native")


def test_an_ordinary_model_is_still_computed_by_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    need_native()
    model = copy.deepcopy(memorised().model)
    for _ in range(2):
        assert Translator(as_paper(model)).engine_in_use == "native"
        assert changed_parts(model) == {}
        use_fused_ops(model, kernels=True)
    assert capsys.readouterr().err.splitlines() == []


def test_a_method_that_is_assigned_to_a_class_changes_stored_models_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_native()
    save_bundle(memorised(), tmp_path / "plain", card="")
    assert Translator.load(tmp_path / "plain").engine_in_use == "native"
    plain = scores(Translator.load(tmp_path / "plain"))
    monkeypatch.setattr(FeedForward, "hidden", squared)
    translator = Translator.load(tmp_path / "plain")
    assert translator.engine_in_use == "torch"
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("FeedForward.hidden: ")
    assert scores(translator) != close(plain, FLOAT32.SENTENCE)
    assert_close(scores(translator), scores(Translator(with_own("feed-forward"))), FLOAT32.SENTENCE)
    with pytest.raises(InputError, match=r"FeedForward\.hidden"):
        Translator(load_bundle(tmp_path / "plain"), engine="native")


def test_a_function_that_is_assigned_to_a_module_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(memorised().model).train()
    formula = attention.attention_weights

    def flat(queries: Tensor, keys: Tensor, mask: Tensor | None, bias: Tensor | None = None) -> Tensor:
        return formula(0.5 * queries, keys, mask, bias)

    monkeypatch.setattr(attention, "attention_weights", flat)
    wanted = states(model)
    with using_threads(1):
        use_fused_ops(model, kernels=True)
        assert_close(states(model), wanted, FLOAT32.MODEL)
    assert not has_plain_self_attention(model)
    assert [*changed_parts(model)] == ["heedful.model.attention.attention_weights"]


@pytest.mark.parametrize("name", EVERY)
def test_only_a_plain_model_is_packed_or_decoded_as_a_graph(name: str) -> None:
    assert has_plain_self_attention(memorised().model)
    of_configuration_alone = "order of a norm"  # each row by itself, as packing needs it
    if name != of_configuration_alone:
        assert not has_plain_self_attention(with_part(memorised().model, name))


def test_own_attention_stays_where_coverage_is_recorded() -> None:
    model = copy.deepcopy(memorised().model)
    for layer in model.decoder.layers:
        layer.cross_attention.attention = FlatAttention()
    translator = Translator(as_paper(model), engine="torch")
    found = translator.translations(SOURCES, options=SearchOptions(coverage_penalty=0.2))
    best = [each.hypotheses[0] for each in found]
    scored = translator.score(SOURCES, [each.written_ids for each in best])
    assert_close([each.log_prob for each in best], [each.log_prob for each in scored], FLOAT32.SENTENCE)


def test_own_attention_is_recorded_by_its_dropout() -> None:
    model = with_part(memorised().model, "attention")
    with record_attention(model) as recorder:
        wanted = states(model)
    assert len(recorder.maps) == 6
    assert_close(wanted, states(model), FLOAT32.MODEL)


def test_attention_that_gives_no_weights_is_refused_where_they_are_needed() -> None:
    model = copy.deepcopy(memorised().model)
    for layer in model.decoder.layers:
        layer.cross_attention.attention = FirstKey()
    translator = Translator(as_paper(model), engine="torch")
    assert len(translator.translate(SOURCES)) == len(SOURCES)
    with pytest.raises(InputError):
        translator.translate(SOURCES, options=SearchOptions(coverage_penalty=0.2))
    with pytest.raises(InputError):
        translator.align(SOURCES, TARGETS)
    with pytest.raises(InputError):
        translator.generator.backend.head_weights([5, 6, 2], [1, 7])


@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_the_loss_is_of_the_models_own_output(r_drop: float) -> None:
    model = option_model().double()
    src, tgt_in = option_inputs()
    real = int((tgt_in != model.config.tgt_pad_id).sum())
    batch, settings = Batch(src, tgt_in, tgt_in, real), TrainConfig(r_drop=r_drop, label_smoothing=0.1)
    fused = batch_loss(model, batch, settings)
    hook = model.output.register_forward_hook(
        lambda _, __, logits: logits
    )  # an own part that changes nothing
    own = batch_loss(model, batch, settings)
    assert_close(own.smoothed, fused.smoothed, FLOAT64.SENTENCE)
    assert_close(own.nll, fused.nll, FLOAT64.SENTENCE)
    hook.remove()
    model.output.__class__ = CappedLinear
    capped = batch_loss(model, batch, replace_settings(settings)).nll
    log_probs = model(src, tgt_in).log_softmax(dim=-1)
    wanted = -log_probs.gather(-1, tgt_in[..., None])[..., 0][tgt_in != model.config.tgt_pad_id].sum()
    assert_close(capped, wanted, FLOAT64.SENTENCE)


def replace_settings(settings: TrainConfig) -> TrainConfig:
    return settings.model_copy(update={"r_drop": 0.0})


def test_adapters_replace_no_layer_of_ones_own() -> None:
    model = copy.deepcopy(memorised().model)
    inner = model.decoder.layers[0].feed_forward.inner
    inner.__class__ = CappedLinear
    with pytest.raises(ConfigError, match=r"decoder\.layers\.0\.feed_forward\.inner"):
        add_adapters(model, LoraConfig(rank=2, targets=("inner",)))
    assert isinstance(model.decoder.layers[0].feed_forward.inner, CappedLinear)


@pytest.mark.parametrize("name", EVERY)
def test_a_bundle_gives_its_weights_to_a_model_of_the_same_code_alone(name: str, tmp_path: Path) -> None:
    bundle = with_own(name)
    save_bundle(bundle, tmp_path / "own", card="")
    for load in (load_bundle, load_model, Translator.load):
        with pytest.raises(BundleError, match=Parts.PLACES[name]):
            load(tmp_path / "own")
    fresh = with_part(Transformer.from_config(bundle.config.model), name)
    loaded = load_bundle(tmp_path / "own", into=fresh)
    assert loaded.network is fresh
    assert torch.equal(states(fresh), states(bundle.model))
    assert load_model(tmp_path / "own", into=fresh) is fresh
    if name == "norm with weights of its own":
        with pytest.raises(BundleError, match=rf"{LAYER}\.feed_forward_norm\.gain"):
            load_bundle(tmp_path / "own", into=Transformer.from_config(bundle.config.model))
    with pytest.raises(BundleError):
        load_bundle(tmp_path / "own", into=Transformer.from_config(small_config()))


def test_a_process_that_has_made_the_same_change_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FeedForward, "hidden", squared)
    monkeypatch.setattr(transformer, "_norm", lambda config: ScaleNorm(config.d_model))
    model = Transformer.from_config(memorised().config.model)
    save_bundle(as_paper(model), tmp_path / "own", card="")
    loaded = load_bundle(tmp_path / "own")
    assert_close(states(loaded.model), states(model), FLOAT32.MODEL)
    assert len(Translator(loaded).translate(SOURCES)) == len(SOURCES)
    monkeypatch.undo()
    with pytest.raises(BundleError):
        load_bundle(tmp_path / "own")


def test_a_weight_that_no_class_has_is_named(tmp_path: Path) -> None:
    model = with_part(memorised().model, "norm with weights of its own")
    save_bundle(as_paper(model), tmp_path / "own", card="")
    save_bundle(memorised(), tmp_path / "plain", card="")
    settings = json.loads((tmp_path / "plain" / "config.json").read_text())
    (tmp_path / "plain" / "model.safetensors").write_bytes(
        (tmp_path / "own" / "model.safetensors").read_bytes()
    )
    own = json.loads((tmp_path / "own" / "config.json").read_text())
    settings["sha256"]["model.safetensors"] = own["sha256"]["model.safetensors"]
    (tmp_path / "plain" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(BundleError, match=rf"{LAYER}\.feed_forward_norm\.gain"):
        load_bundle(tmp_path / "plain")


def test_a_state_that_no_bundle_holds_is_refused(tmp_path: Path) -> None:
    model = copy.deepcopy(memorised().model)
    model.encoder.final_norm = nn.BatchNorm1d(32)
    with pytest.raises(BundleError, match=r"encoder\.final_norm\.num_batches_tracked"):
        save_model(model, tmp_path / "own", config=memorised().config, card="")


@pytest.mark.parametrize("name", EVERY)
def test_no_other_system_gets_it(name: str, tmp_path: Path) -> None:
    for export in (export_ctranslate2, export_marian, export_onnx):
        with pytest.raises(InteropError, match=Parts.PLACES[name]):
            export(with_own(name), tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def configured(folder: Path, **more: object) -> Config:
    write_pairs(folder)
    settings = {
        "data.src": f'"{folder}/ten.en"', "data.tgt": f'"{folder}/ten.de"',
        "data.cache_dir": f'"{folder}/cache"',
        "tokenizer.vocab_size": 200, "batch.tokens": 200, "train.max_steps": 2, "train.processes": 1,
        "train.threads": 1, "train.precision": "float32", "train.log_every_steps": 1, "model.d_model": 32,
        "model.d_ff": 32, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "model.num_heads": 2,
        "model.dropout": 0.0, "valid.decode_sentences": 3, "decode.max_length_offset": 3,
    } | more  # fmt: skip
    overrides = [parse_override(f"{name}={value}") for name, value in settings.items()]
    return load_config(preset="tiny", overrides=overrides)


def trained(config: Config, folder: Path) -> tuple[TrainResult, list[Event]]:
    events: list[Event] = []
    return train(config, folder / "run", callbacks=[events.append]), events


@pytest.fixture
def own_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A feed-forward by a method, a norm with weights of its own, positions and attention by their names."""
    monkeypatch.setattr(FeedForward, "hidden", squared)
    monkeypatch.setattr(transformer, "_norm", lambda config: ScaleNorm(config.d_model))
    monkeypatch.setattr(transformer, "_attention_positions", lambda config, bidirectional: HalfQueries())
    yield


class HalfQueries(attention.AttentionPositions):
    def rotate(self, heads_BHLK: Tensor, start: int) -> Tensor:
        return 0.5 * heads_BHLK


@pytest.mark.usefixtures("own_code")
def test_it_is_trained_validated_and_saved_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(NativeBackend, "__init__")  # not used
    result, events = trained(configured(tmp_path), tmp_path)
    [notice] = [each.message for each in events if isinstance(each, WarningEvent) and "own" in each.message]
    assert notice.startswith("heedful.model.transformer._attention_positions: ")
    [validation] = [each for each in events if isinstance(each, ValidationEvent)]
    bundle = load_bundle(result.last)
    assert type(bundle.model.decoder.layers[0].feed_forward_norm) is ScaleNorm
    translator = Translator(bundle, engine="torch")
    found = [each.log_prob for each in translator.score(["We sing."], ["Wir singen."])]
    fresh = Transformer.from_config(bundle.config.model)
    same = Translator(load_bundle(result.last, into=fresh))
    assert_close(
        found, [each.log_prob for each in same.score(["We sing."], ["Wir singen."])], FLOAT32.SENTENCE
    )
    assert validation.scores["nll"] > 0.0


@pytest.mark.usefixtures("own_code")
def test_other_processes_do_not_train_another_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"heedful\.model\.transformer\._attention_positions"):
        trained(configured(tmp_path, **{"train.processes": 2}), tmp_path)
    model = Transformer.from_config(small_config())
    config = Config.model_validate({"batch": {"tokens": 25_000}, "train": {"max_steps": 1000}})
    with using_threads(2):
        assert process_group_size(config, model)[0] == 1


def test_an_ordinary_model_is_still_trained_by_several_processes() -> None:
    config = Config.model_validate({"batch": {"tokens": 25_000}, "train": {"max_steps": 1000}})
    with using_threads(2):
        assert process_group_size(config, Transformer.from_config(small_config()))[0] == 2


def with_importable_parts(model: Transformer) -> Transformer:
    for name in IMPORTABLE:
        Parts.PUT[name](model)
    return model


def test_another_process_gets_the_modules_themselves() -> None:
    model = with_importable_parts(copy.deepcopy(memorised().model))
    received = unpack(pack(model, model), torch.device("cpu"))
    assert_close(states(with_weights(received, dict(model.named_parameters()))), states(model), FLOAT32.MODEL)


def with_weights(model: Transformer, weights: dict[str, nn.Parameter]) -> Transformer:
    assign_weights(model, weights)
    return model


@pytest.mark.slow
def test_two_processes_train_the_modules_of_the_model(tmp_path: Path) -> None:
    source = small_source(tmp_path)
    sizes = small_config(d_model=32, dropout=0.0, src_vocab_size=60, tgt_vocab_size=60)
    config = Config.model_validate({"model": sizes.model_dump(), "train": {"precision": "float32"}})
    outcomes = []
    for size in (1, 2):
        torch.manual_seed(7)
        model = with_importable_parts(Transformer.from_config(sizes)).double()
        rank = Rank(model, source, config, prepared(model, config), size=size)
        optimizer = build_optimizer(model, config.optimizer, precision="float32")
        group = (
            SingleProcess(rank, optimizer, None)
            if size == 1
            else SharedMemoryGroup(rank, optimizer, None, threads=1)
        )
        with closing(group):
            losses = [group.step(StepPlan(n, ((0, n),), 0.01)).loss for n in (1, 2)]
        outcomes.append((losses, {key: weight.detach() for key, weight in model.named_parameters()}))
    (one, weights), (two, others) = outcomes
    assert_close(two, one, FLOAT64.MODEL)
    for key, weight in weights.items():
        assert_close(others[key], weight, FLOAT64.TRAINING)


SCRIPT = """
import sys
from own_parts import squared
from heedful.model.layers import FeedForward
FeedForward.hidden = squared
from heedful.cli.main import main
sys.argv = ["heedful", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_a_command_says_so_on_stderr_in_one_line(tmp_path: Path) -> None:
    need_native()
    save_bundle(memorised(), tmp_path / "plain", card="")
    support = Path(__file__).resolve().parents[1] / "support"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:0] = [{str(support)!r}]\n{SCRIPT}",
            "translate",
            tmp_path / "plain",
        ],
        input="\n".join([*SOURCES, ""]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == Translator(with_own("feed-forward")).translate(SOURCES)
    [line] = [each for each in done.stderr.splitlines() if "FeedForward.hidden" in each]
    assert "own_parts.squared" in line


def test_the_model_of_a_bundle_that_was_changed_in_memory_is_the_one_that_computes(tmp_path: Path) -> None:
    bundle = load_bundle(save_memorised(tmp_path / "bundle"))
    with torch.no_grad():
        for weight in bundle.model.decoder.parameters():
            weight.mul_(0.5)
    outcomes = [
        [each.score for each in Translator(bundle, engine=engine).score(SOURCES[:3], TARGETS[:3])]
        for engine in ("native", "torch")
    ]
    assert_close(outcomes[0], outcomes[1], FLOAT32.SENTENCE)
    assert outcomes[0] != [each.score for each in Translator(memorised()).score(SOURCES[:3], TARGETS[:3])]
