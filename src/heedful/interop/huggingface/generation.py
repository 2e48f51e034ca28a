"""Convert the settings of transformers' `generate` to `DecodeConfig` and back; unsupported keys are refused.

See huggingface.co/docs/transformers/main_classes/text_generation, and `GenerationConfig` there.
"""

from collections.abc import Iterator

from heedful.decoding.options import longest_output
from heedful.errors import InteropError
from heedful.interop.conversion import Values
from heedful.interop.huggingface.pretrained import CONFIG_FILE, PretrainedDirectory
from heedful.interop.keys import allowed
from heedful.interop.vocabulary import MAX_NUMBER, TypedSettings, as_list
from heedful.settings.parsing import is_whole, shown
from heedful.settings.run import Config, DecodeConfig
from heedful.text import Tokenizer
from heedful.text.special_tokens import SpecialTokens, suppressed_ids

# Keys that are read, and those without effect on a search without sampling.
_READ = """
    bad_words_ids decoder_start_token_id early_stopping encoder_no_repeat_ngram_size eos_token_id
    force_bos_token_to_be_generated forced_bos_token_id forced_eos_token_id length_penalty max_length
    max_new_tokens min_length min_new_tokens no_repeat_ngram_size num_beams num_return_sequences pad_token_id
    renormalize_logits repetition_penalty suppress_tokens
"""
_WITHOUT_EFFECT = """
    assistant_confidence_threshold assistant_early_exit assistant_ensemble_weight assistant_lookbehind
    bos_token_id cache_config cache_implementation compile_config continuous_batching_config disable_compile
    epsilon_cutoff eta_cutoff is_assistant max_cache_len max_matching_ngram_size min_p num_assistant_tokens
    num_assistant_tokens_schedule output_attentions output_hidden_states output_logits output_scores
    prefill_chunk_size prompt_lookup_num_tokens remove_invalid_values return_dict_in_generate
    return_legacy_cache speculation_type target_lookbehind temperature top_h top_k top_p transformers_version
    typical_p use_cache use_mtp
"""
# Keys that must have this value or be missing; others are not supported.
_FIXED = allowed(
    """
    null   begin_suppress_tokens constraints dola_layers exponential_decay_length_penalty force_words_ids
    null   forced_decoder_ids max_time penalty_alpha sequence_bias stop_strings watermarking_config
    0.0    diversity_penalty
    1.0    encoder_repetition_penalty guidance_scale
    false  do_sample low_memory token_healing
    1      num_beam_groups
    """
)
GENERATION_KEYS = {*_READ.split(), *_WITHOUT_EFFECT.split(), *_FIXED}
_USUAL_NEW_TOKENS = 20
_NO_LIMIT = 1024
_MAX_LENGTH = 512  # of outputs, if a search has no number for it
_EARLY_STOPPING = {True: "first", False: "estimate", "never": "optimal"}


# Keys, heedful's names, and the values of missing keys.
_NUMBERS: dict[str, tuple[str, int | float | None]] = {
    "encoder_no_repeat_ngram_size": ("encoder_no_repeat_ngram_size", 0),
    "forced_bos_token_id": ("forced_first_id", None),
    "forced_eos_token_id": ("forced_last_id", None),
    "length_penalty": ("length_penalty", 1.0),
    "no_repeat_ngram_size": ("no_repeat_ngram_size", 0),
    "num_beams": ("beam_size", 1),
    "num_return_sequences": ("n_best", 1),
    "repetition_penalty": ("repetition_penalty", 1.0),
}


def read_search(directory: PretrainedDirectory) -> Values:
    """Return the settings of `DecodeConfig` for the same outputs as `generate`.

    By default an output has at most 20 tokens, as in `generate`.

    Raises:
        InteropError: a key is unknown or has an unsupported value.
    """
    file = directory.generation_file
    typed = directory.typed(file)
    known = None if file == CONFIG_FILE else GENERATION_KEYS  # all keys of config.json are checked elsewhere
    typed.check(_FIXED, known, ignored=directory.options.ignored)
    early_stopping = typed.one_of("early_stopping", {None: "estimate", **_EARLY_STOPPING})
    search: Values = {"length_normalization": "power", "early_stopping": early_stopping}
    for key, (ours, usual) in _NUMBERS.items():
        value = (typed.number if isinstance(usual, float) else typed.whole_number)(key)
        search[ours] = usual if value is None else value
    if directory.config.get("force_bos_token_to_be_generated") is True and file == CONFIG_FILE:
        search["forced_first_id"] = read_special_id(directory, "bos_token_id")  # as older files of BART say
    search["suppressed_ids"] = _suppressed_ids(typed)
    # The longest texts that it was made for; without it, a limit for training here would be used.
    positions = directory.typed().whole_number("max_position_embeddings") or None
    search["max_source_tokens"] = positions
    search["renormalize"] = typed.values.get("renormalize_logits") is True
    # `min_length` includes the decoder's start token, as does `max_length`.
    lengths = (typed.whole_number("min_length") or 0) - 1, typed.whole_number("min_new_tokens") or 0
    search["min_length"] = max(0, *lengths)
    counts_start = search["no_repeat_ngram_size"] == 1
    typed.require(not counts_start, "no_repeat_ngram_size", " counts the start token there, which is no text")
    changes_logits = search["repetition_penalty"] != 1 and search["beam_size"] == 1
    typed.require(
        not changes_logits,
        "repetition_penalty",
        " with num_beams=1 changes logits there; only log-probabilities can be changed here",
    )
    typed.require(search["length_penalty"] >= 0, "length_penalty", " is negative; it must be at least 0")
    # `max_length` includes the decoder's start token.
    usual_length = min(_USUAL_NEW_TOKENS + 1, positions or _NO_LIMIT)
    limit = typed.whole_number("max_new_tokens") or (typed.whole_number("max_length") or usual_length) - 1
    # The length of the input must not limit the output, even if the user sets another maximum.
    return search | {"max_length": limit, "max_length_offset": max(limit, _NO_LIMIT)}


def write_search(
    config: Config, special_tokens: SpecialTokens, tgt: Tokenizer, *, max_positions: int
) -> Values:
    """Return the settings of `generate` that are closest to a search.

    Args:
        config: the configuration of the bundle.
        special_tokens: the special-token template.
        tgt: the tokenizer of the outputs.
        max_positions: the maximum length of a sequence in transformers.
    """
    search = config.decode
    suppressed = suppressed_ids(
        search.suppressed_ids, start_id=special_tokens.start_id, pad_id=tgt.pad_id, eos_id=tgt.eos_id
    )
    # If `generate` has no equal search, "never" would only be slow: it always generates max_length tokens.
    estimates = search.early_stopping == "optimal" and not _is_expressible(search)
    stopping = "estimate" if estimates else search.early_stopping
    named = {key: getattr(search, ours) for key, (ours, _) in _NUMBERS.items()}
    settings = {key: value for key, value in named.items() if value != _NUMBERS[key][1]} | {
        "decoder_start_token_id": special_tokens.start_id,
        "eos_token_id": tgt.eos_id,
        # `max_length` includes the start token.
        "max_length": min((longest_output(config) or _MAX_LENGTH - 1) + 1, max_positions),
        "num_beams": search.beam_size,
        "pad_token_id": tgt.pad_id,
    }
    if special_tokens.tgt_prefix:
        settings["forced_bos_token_id"] = special_tokens.tgt_prefix[0]
    optional = {
        "bad_words_ids": [[token_id] for token_id in suppressed],
        "min_new_tokens": search.min_length,
        "renormalize_logits": search.renormalize,
    }
    settings |= {key: value for key, value in optional.items() if value}
    settings.pop("length_penalty", None)
    if search.beam_size > 1:
        settings["early_stopping"] = {ours: theirs for theirs, ours in _EARLY_STOPPING.items()}[stopping]
        settings["length_penalty"] = search.length_penalty
    return settings


def inexact_settings(search: DecodeConfig) -> Iterator[str]:
    """Yield a sentence for each setting of a search that `write_search` can only approximate."""
    if search.beam_size > 1 and search.length_normalization == "gnmt":
        yield (
            f"heedful divided log-probabilities by ((5 + length) / 6) ** {search.length_penalty}, which "
            f"`generate` cannot: it divides by length ** {search.length_penalty}, which is similar for "
            "long outputs, and favours length more in short ones."
        )
    if search.beam_size > 1 and search.early_stopping == "optimal" and not _is_expressible(search):
        yield (
            "heedful searches until no better hypothesis is possible; `generate` stops by an estimate "
            '(`early_stopping=False`), which rarely makes a difference and is much faster than `"never"`.'
        )
    if not _has_one_limit(search):
        yield (
            f"heedful limits an output to {search.max_length_ratio or 1:g} times the length of its input "
            f"plus {search.max_length_offset} tokens; `generate` has one maximum, `max_length`."
        )
    if search.repetition_penalty != 1:
        yield (
            "The repetition penalty multiplies log-probabilities in heedful; `generate` with "
            "`num_beams=1` applies it to logits."
        )


def _is_expressible(search: DecodeConfig) -> bool:
    """Return whether `generate` has equivalent settings."""
    return search.length_normalization == "power" and _has_one_limit(search)


def _has_one_limit(search: DecodeConfig) -> bool:
    return search.max_length is not None and search.max_length_offset >= search.max_length


def read_special_id(directory: PretrainedDirectory, key: str) -> int:
    """Return the id of a special token of the model, such as "eos_token_id".

    Raises:
        InteropError: it is missing, or there are several.
    """
    for file in (directory.generation_file, CONFIG_FILE):
        if (special_id := directory.typed(file).whole_number(key)) is not None:
            return special_id
    directory.refuse(f"{key} is missing")


def _suppressed_ids(typed: TypedSettings) -> tuple[int, ...]:
    """Return the tokens that are never generated; the end token cannot be one of them, as in `generate`."""
    suppressed = as_list(typed.values.get("suppress_tokens"))
    for word in as_list(typed.values.get("bad_words_ids")):
        if not (isinstance(word, list) and len(word) == 1):
            problem = f"bad_words_ids has {shown(word)}, several tokens; only single tokens are supported"
            raise InteropError(f"{typed.file}: {problem}")
        if word != [typed.values.get("eos_token_id")]:
            suppressed = suppressed + word
    for token_id in suppressed:
        if not is_whole(token_id, most=MAX_NUMBER):
            problem = f"{shown(token_id)} is not the id of a token"
            raise InteropError(f"{typed.file}: bad_words_ids or suppress_tokens: {problem}")
    return tuple(sorted(set(suppressed)))
