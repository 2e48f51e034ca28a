"""A LoRA adapter of PEFT is merged into its base, W + scale B A, or added beside it, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import assert_one_clear_line, heedful
from pretrained_models import FAMILIES, batch, logits_of
from safetensors.torch import save_file
from tiny_bundle import memorised
from tolerances import FLOAT32, assert_close, largest

from heedful import load_bundle
from heedful.decoding.backends.adapted_rows import AdaptedRows
from heedful.errors import InteropError
from heedful.tasks.exchange import import_model
from heedful.tasks.loading import load_adapter

# As PEFT 0.21 writes it, without the keys that are null.
CONFIG: dict[str, Any] = {
    "alpha_pattern": {}, "auto_mapping": {"base_model_class": "BartModel"}, "bias": "none",
    "eva_config": None, "fan_in_fan_out": False, "inference_mode": True, "init_lora_weights": True,
    "lora_alpha": 7,
    "lora_bias": False, "lora_dropout": 0.1, "peft_type": "LORA", "peft_version": "0.21.2", "r": 2,
    "rank_pattern": {}, "target_modules": ["v_proj"], "task_type": "SEQ_2_SEQ_LM", "use_dora": False,
}  # fmt: skip
LINEAR, RANKED = "model.encoder.layers.0.self_attn.v_proj", "model.decoder.layers.0.encoder_attn.v_proj"
EMBEDDING, BIAS = "model.shared", "model.encoder.layers.0.fc1.bias"


def write_adapter(directory: Path, base: Path, tensors: dict[str, torch.Tensor], **config: object) -> None:
    directory.mkdir(exist_ok=True)
    settings = {**CONFIG, "base_model_name_or_path": str(base), **config}
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    saved = {f"base_model.model.{name}": tensor for name, tensor in tensors.items()}
    save_file(saved, directory / "adapter_model.safetensors")


def drawn(model: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """Matrices of two linear modules of different ranks and of the embedding, and a trained bias."""
    torch.manual_seed(5)
    d_model, vocab_size = model.config.d_model, model.config.vocab_size
    return {
        f"{LINEAR}.lora_A.weight": torch.randn(2, d_model),
        f"{LINEAR}.lora_B.weight": torch.randn(d_model, 2),
        f"{RANKED}.lora_A.weight": torch.randn(3, d_model),
        f"{RANKED}.lora_B.weight": torch.randn(d_model, 3),
        f"{EMBEDDING}.lora_embedding_A": torch.randn(2, vocab_size),
        f"{EMBEDDING}.lora_embedding_B": torch.randn(d_model, 2),
        BIAS: torch.randn(model.config.encoder_ffn_dim),
    }


@pytest.mark.parametrize(("root", "named"), [(False, True), (True, False)])
def test_logits_are_those_of_merged_weights(root: bool, named: bool, tmp_path: Path) -> None:
    theirs = FAMILIES["bart"].save(tmp_path / "base", scale_embedding=False)
    parts = drawn(theirs)
    base = tmp_path / "base" if named else tmp_path / "elsewhere"
    write_adapter(
        tmp_path / "adapter", base, parts, use_rslora=root, alpha_pattern={"encoder_attn.v_proj": 5}
    )
    output, own = tmp_path / "bundle", None if named else tmp_path / "base"
    import_model(tmp_path / "adapter", output=output, base=own)
    weights = theirs.state_dict()
    with torch.no_grad():
        for module, alpha in ((LINEAR, 7), (RANKED, 5)):
            down, up = parts[f"{module}.lora_A.weight"], parts[f"{module}.lora_B.weight"]
            weights[f"{module}.weight"] += alpha / len(down) ** (0.5 if root else 1.0) * up @ down
        down, up = parts[f"{EMBEDDING}.lora_embedding_A"], parts[f"{EMBEDDING}.lora_embedding_B"]
        weights[f"{EMBEDDING}.weight"] += 7 / 2 ** (0.5 if root else 1.0) * (up @ down).T
        weights[BIAS].copy_(parts[BIAS])
    ours = load_bundle(output).model
    src, tgt = batch(ours)
    wanted = logits_of(theirs, src, tgt, ours.config)
    assert_close(logits_of(ours, src, tgt, ours.config), wanted, FLOAT32.MODEL.at(largest(wanted)))


@pytest.mark.parametrize(
    ("config", "tensors", "named"),
    [
        ({"use_dora": True}, {}, "use_dora"),
        ({"peft_type": "IA3"}, {}, "IA3"),
        ({"init_lora_weights": "pissa"}, {}, "pissa"),
        ({"trainable_token_indices": [3]}, {}, "trainable_token_indices"),
        ({"a_new_way": 3}, {}, "a_new_way"),
        ({"lora_alpha": "x"}, {}, "lora_alpha"),
        ({}, {f"{LINEAR}.lora_magnitude_vector": torch.ones(3)}, "lora_magnitude_vector"),
        ({}, {"lm_head.weight": torch.ones(3, 3)}, "lm_head"),
        ({}, {f"{RANKED}.lora_A.weight": torch.ones(2, 12)}, "encoder_attn"),
        ({}, {f"{LINEAR}.lora_A.weight": torch.ones(2, 5)}, "self_attn"),
    ],
)
def test_what_is_not_lora_or_of_another_base_is_named(
    config: dict[str, object], tensors: dict[str, torch.Tensor], named: str, tmp_path: Path
) -> None:
    FAMILIES["bart"].save(tmp_path / "base")
    plain = {f"{LINEAR}.lora_A.weight": torch.ones(2, 12), f"{LINEAR}.lora_B.weight": torch.ones(12, 2)}
    write_adapter(tmp_path / "adapter", tmp_path / "base", plain | tensors, **config)
    with pytest.raises(InteropError, match=named):
        import_model(tmp_path / "adapter", output=tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_an_adapter_without_its_base_says_what_to_give(tmp_path: Path) -> None:
    write_adapter(tmp_path / "adapter", tmp_path / "none", {"x": torch.ones(1)})
    outcome = heedful("import", tmp_path / "adapter", "-o", tmp_path / "bundle")
    assert_one_clear_line(outcome, 1, "--base")


def linear_modules(theirs: Any) -> dict[str, torch.nn.Linear]:  # noqa: ANN401
    return {name: each for name, each in theirs.named_modules() if name.endswith(LAST) and ".layers." in name}


def logits_beside(bundle: Path, adapter: Path) -> tuple[Any, ...]:
    """The logits of a bundle with an adapter, and what they are of."""
    base = load_bundle(bundle)
    rows = AdaptedRows([load_adapter(adapter, base)] * NUM_ROWS, torch.device("cpu"))
    src, tgt = batch(base.model)
    assert len(src) == NUM_ROWS
    with rows.hooked(base.model):
        return logits_of(base.model, src, tgt, base.config.model), src, tgt, base.config.model


LAST = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")
NUM_ROWS = len(batch(memorised().model)[0])


@pytest.mark.parametrize("name", ["marian", "m2m100", "nllb", "bart", "fsmt"])
def test_beside_the_imported_base_it_computes_what_the_merged_model_does(name: str, tmp_path: Path) -> None:
    theirs = FAMILIES[name].save(tmp_path / "base")
    torch.manual_seed(6)
    parts: dict[str, torch.Tensor] = {}
    for number, (module, layer) in enumerate(linear_modules(theirs).items()):
        rank = 1 + number % 3
        parts[f"{module}.lora_A.weight"] = torch.randn(rank, layer.in_features)
        parts[f"{module}.lora_B.weight"] = torch.randn(layer.out_features, rank)
    write_adapter(tmp_path / "adapter", tmp_path / "base", parts, use_rslora=True, alpha_pattern={"fc1": 3})
    import_model(tmp_path / "base", output=tmp_path / "bundle")
    import_model(tmp_path / "adapter", output=tmp_path / "merged")
    found, src, tgt, config = logits_beside(tmp_path / "bundle", tmp_path / "adapter")
    wanted = logits_of(load_bundle(tmp_path / "merged").model, src, tgt, config)
    assert_close(found, wanted, FLOAT32.MODEL.at(largest(wanted)))


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers")
@pytest.mark.parametrize("name", ["marian", "m2m100"])
def test_its_logits_are_pefts_own(name: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    theirs = FAMILIES[name].save(tmp_path / "base")
    import_model(tmp_path / "base", output=tmp_path / "bundle")
    lora = peft.LoraConfig(r=3, lora_alpha=7, target_modules=[*LAST], rank_pattern={"fc1": 2})
    adapted = peft.get_peft_model(theirs, lora).eval()
    torch.manual_seed(7)
    with torch.no_grad():
        for matrix in (weight for name, weight in adapted.named_parameters() if ".lora_B." in name):
            matrix.normal_()
    adapted.save_pretrained(tmp_path / "adapter")
    found, src, tgt, config = logits_beside(tmp_path / "bundle", tmp_path / "adapter")
    wanted = logits_of(adapted, src, tgt, config)
    assert_close(found, wanted, FLOAT32.MODEL.at(largest(wanted)))


@pytest.mark.parametrize("tensor", [f"{EMBEDDING}.lora_embedding_A", BIAS, "lm_head.lora_A.weight"])
def test_what_is_no_linear_layer_is_for_a_merge(tensor: str, tmp_path: Path) -> None:
    theirs = FAMILIES["bart"].save(tmp_path / "base", scale_embedding=False)
    import_model(tmp_path / "base", output=tmp_path / "bundle")
    parts = drawn(theirs)
    head = {"lm_head.lora_A.weight": torch.ones(2, 12), "lm_head.lora_B.weight": torch.ones(30, 2)}
    module = tensor.partition(".lora_")[0]
    only = {name: part for name, part in (parts | head).items() if name.startswith(module)}
    write_adapter(tmp_path / "adapter", tmp_path / "base", only)
    with pytest.raises(InteropError, match="merge it: heedful import"):
        load_adapter(tmp_path / "adapter", load_bundle(tmp_path / "bundle"))
