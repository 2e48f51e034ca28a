"""Read the architecture from config.json of transformers; unsupported keys are refused by name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.interop.huggingface.generation import GENERATION_KEYS
from heedful.interop.huggingface.pretrained import (
    CONFIG_FILE,
    PretrainedDirectory,
    refuse_other_values,
    refuse_unknown_keys,
)
from heedful.parsing import shown

# Keys of any config.json that do not change the outputs of a trained model.
_WITHOUT_EFFECT = frozenset(
    (
        "architectures", "bos_token_id", "classif_dropout", "classifier_dropout", "decoder_layerdrop",
        "dtype", "encoder_layerdrop", "extra_pos_embeddings", "finetuning_task", "gradient_checkpointing",
        "id2label", "init_std", "label2id", "name_or_path", "num_hidden_layers", "num_labels",
        "output_attentions", "output_hidden_states", "output_past", "prefix", "problem_type", "return_dict",
        "sep_token_id", "task_specific_params", "tokenizer_class", "torch_dtype", "torchscript",
        "transformers_version", "use_bfloat16", "use_cache",
    )
)  # fmt: skip
# Keys that must have this value or be absent.
_FIXED: Mapping[str, Any] = {
    "add_cross_attention": False,
    "auto_map": None,
    "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": None,
    "is_decoder": False,
    "is_encoder_decoder": True,
    "pruned_heads": {},
    "quantization_config": None,
    "tie_encoder_decoder": False,
}
_PAIRS = ("attention_heads", "ffn_dim")  # one number for both stacks
# Common settings of all families, and their names in this package.
_NUMBERS = {
    "d_model": "d_model",
    "encoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "d_ff",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "scale_embedding": "scale_embeddings",
}
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}


def read_architecture(
    directory: PretrainedDirectory,
    model_types: Sequence[str],
    *,
    known: Iterable[str] = (),
    fixed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Check every key of config.json and return the settings of the model.

    Args:
        directory: of the model.
        model_types: the allowed values of "model_type".
        known: keys that the family reads itself.
        fixed: keys of the family that must have this value.

    Raises:
        InteropError: a key is unknown or has an unsupported value.
    """
    config = directory.config
    if config.get("model_type") not in model_types:
        raise directory.error(
            f"model_type is {shown(config.get('model_type'))}, not {' or '.join(map(repr, model_types))}; "
            "give another --layout"
        )
    refuse_other_values(directory, CONFIG_FILE, config, {**_FIXED, **(fixed or {})})
    both = [f"{stack}_{key}" for key in _PAIRS for stack in ("encoder", "decoder")]
    refuse_unknown_keys(
        directory,
        CONFIG_FILE,
        config,
        {*_NUMBERS, *both, *_FIXED, *(fixed or {}), *known, *_WITHOUT_EFFECT, *GENERATION_KEYS}
        | {
            "activation_function",
            "max_position_embeddings",
            "model_type",
            "tie_word_embeddings",
            "vocab_size",
        },
    )
    for key in _PAIRS:
        one, other = config.get(f"encoder_{key}"), config.get(f"decoder_{key}")
        if one != other:
            raise directory.error(
                f"encoder_{key}={shown(one)} and decoder_{key}={shown(other)} differ; they must be equal"
            )
    activation = config.get("activation_function")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise directory.error(
            f"activation_function={shown(activation)} is unknown; there are {', '.join(ACTIVATIONS)}"
        )
    return {ours: config[theirs] for theirs, ours in _NUMBERS.items() if theirs in config} | {
        "activation": ACTIVATIONS[activation]
    }
