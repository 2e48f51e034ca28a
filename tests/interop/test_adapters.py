"""A LoRA adapter of PEFT is merged into its base, W + scale B A, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import assert_one_clear_line, heedful
from pretrained_models import FAMILIES, batch, logits_of
from safetensors.torch import save_file
from tolerances import FLOAT32, assert_close, largest

from heedful import load_bundle
from heedful.errors import InteropError
from heedful.tasks.exchange import import_model

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
