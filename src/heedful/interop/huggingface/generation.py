"""The settings of transformers' `generate` as those of a search here, key by key, or refused by name.

Facts about them: huggingface.co/docs/transformers/main_classes/text_generation, and `GenerationConfig` there.
"""

from collections.abc import Mapping
from typing import Any

from heedful.interop.huggingface.pretrained import (
    CONFIG_FILE,
    PretrainedDirectory,
    refuse_other_values,
    refuse_unknown_keys,
)
from heedful.interop.typed_settings import MAX_NUMBER
from heedful.parsing import is_whole, shown

# Keys that are followed, and those that do not matter to a search without sampling.
_READ = frozenset(
    (
        "bad_words_ids", "decoder_start_token_id", "early_stopping", "eos_token_id", "forced_bos_token_id",
        "forced_eos_token_id", "length_penalty", "max_length", "max_new_tokens", "min_length",
        "min_new_tokens", "no_repeat_ngram_size", "num_beams", "num_return_sequences", "pad_token_id",
        "renormalize_logits", "suppress_tokens",
    )
)  # fmt: skip
_WITHOUT_EFFECT = frozenset(
    (
        "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
        "assistant_lookbehind", "bos_token_id", "cache_config", "cache_implementation", "compile_config",
        "continuous_batching_config", "disable_compile", "epsilon_cutoff", "eta_cutoff", "is_assistant",
        "max_cache_len", "max_matching_ngram_size", "min_p", "num_assistant_tokens",
        "num_assistant_tokens_schedule", "output_attentions", "output_hidden_states", "output_logits",
        "output_scores", "prefill_chunk_size", "prompt_lookup_num_tokens", "remove_invalid_values",
        "return_dict_in_generate", "return_legacy_cache", "speculation_type", "target_lookbehind",
        "temperature", "top_h", "top_k", "top_p", "transformers_version", "typical_p", "use_cache", "use_mtp",
    )
)  # fmt: skip
# Keys that may only say this, or nothing: what they ask for beyond it does not exist here.
_FIXED: Mapping[str, Any] = {
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_decoder_ids": None,
    "guidance_scale": 1.0,
    "low_memory": False,
    "max_time": None,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "repetition_penalty": 1.0,
    "sequence_bias": None,
    "stop_strings": None,
    "token_healing": False,
    "watermarking_config": None,
}
GENERATION_KEYS = _READ | _WITHOUT_EFFECT | _FIXED.keys()
_USUAL_NEW_TOKENS = 20
_NO_LIMIT = 1024
EARLY_STOPPING = {True: "first", False: "estimate", "never": "optimal"}


def read_search(directory: PretrainedDirectory) -> dict[str, Any]:
    """Return the settings of `DecodeConfig` that make a search find what `generate` finds.

    Where no file says how long an output may be, that is 20 tokens, as in `generate`.

    Raises:
        InteropError: a key asks for what no search here can do, or is not known.
    """
    found, file = directory.generation, directory.generation_file
    refuse_other_values(directory, file, found, _FIXED)
    if file != CONFIG_FILE:  # there, the architecture's reader sees to it
        refuse_unknown_keys(directory, file, found, GENERATION_KEYS)
    typed = directory.typed(file)
    length_penalty = typed.number("length_penalty")
    search: dict[str, Any] = {
        "beam_size": typed.whole_number("num_beams") or 1,
        "n_best": typed.whole_number("num_return_sequences") or 1,
        "length_penalty": 1.0 if length_penalty is None else length_penalty,
        "length_normalization": "average",
        "early_stopping": _early_stopping(directory),
        "forced_first_id": typed.whole_number("forced_bos_token_id"),
        "forced_last_id": typed.whole_number("forced_eos_token_id"),
        "suppressed_ids": _suppressed_ids(directory),
        "renormalize": found.get("renormalize_logits") is True,
        # In `min_length` the token that the decoder starts with counts, as in `max_length`.
        "min_length": max(
            (typed.whole_number("min_length") or 0) - 1, typed.whole_number("min_new_tokens") or 0, 0
        ),
        "no_repeat_ngram_size": typed.whole_number("no_repeat_ngram_size") or 0,
    }
    if search["no_repeat_ngram_size"] == 1:
        raise directory.error(
            "no_repeat_ngram_size=1 counts the start token there; only 2 and more can be followed here",
            file=file,
        )
    if search["length_penalty"] < 0:
        raise directory.error(
            f"length_penalty={search['length_penalty']} is negative; it must be at least 0", file=file
        )
    limit = _max_new_tokens(directory)
    # The length of the input is to limit nothing, also where the user sets another maximum.
    return search | {"max_length": limit, "max_length_offset": max(limit, _NO_LIMIT)}


def read_start_id(directory: PretrainedDirectory) -> int:
    """Return the token that the decoder starts with.

    Raises:
        InteropError: no file says it, or it is no id.
    """
    for file in (directory.generation_file, CONFIG_FILE):
        if (start := directory.typed(file).whole_number("decoder_start_token_id")) is not None:
            return start
    raise directory.error("decoder_start_token_id is missing; the decoder cannot start without it")


def read_special_id(directory: PretrainedDirectory, key: str) -> int:
    """Return the id of a special token of the model, such as "eos_token_id".

    Raises:
        InteropError: it is missing, or there are several.
    """
    for file in (directory.generation_file, CONFIG_FILE):
        if (special_id := directory.typed(file).whole_number(key)) is not None:
            return special_id
    raise directory.error(f"{key} is missing")


def _max_new_tokens(directory: PretrainedDirectory) -> int:
    """In `max_length` the token that the decoder starts with counts; the length of the input never does."""
    typed = directory.typed(directory.generation_file)
    if max_new_tokens := typed.whole_number("max_new_tokens"):
        return max_new_tokens
    if max_length := typed.whole_number("max_length"):
        return max_length - 1
    positions = directory.typed().whole_number("max_position_embeddings")
    return min(_USUAL_NEW_TOKENS, positions - 1) if positions else _USUAL_NEW_TOKENS


def _early_stopping(directory: PretrainedDirectory) -> str:
    value = directory.generation.get("early_stopping") or False
    if not isinstance(value, bool | str) or value not in EARLY_STOPPING:
        raise directory.error(
            f"early_stopping={shown(value)} is not known here", file=directory.generation_file
        )
    return EARLY_STOPPING[value]


def _suppressed_ids(directory: PretrainedDirectory) -> tuple[int, ...]:
    """Tokens that are never written; the end token cannot be one of them, as in `generate`."""
    found, file = directory.generation, directory.generation_file
    words, suppressed = (found.get(key) or [] for key in ("bad_words_ids", "suppress_tokens"))
    for word in words if isinstance(words, list) else [words]:
        if not (isinstance(word, list) and len(word) == 1):
            raise directory.error(
                f"bad_words_ids has {shown(word)}, a word of several tokens; only single ones can be refused "
                "here",
                file=file,
            )
    eos = found.get("eos_token_id")
    ids = [word[0] for word in words if word[0] != eos]
    ids += suppressed if isinstance(suppressed, list) else [suppressed]
    for each in ids:
        if not is_whole(each, most=MAX_NUMBER):
            raise directory.error(
                f"bad_words_ids or suppress_tokens: {shown(each)} is no id of a token", file=file
            )
    return tuple(sorted(set(ids)))
