"""T5, T5 1.1, FLAN-T5, mT5, UMT5, ByT5 and MADLAD-400 as saved by transformers.

They are pre-norm with RMSNorm, have no biases, and see positions by relative biases alone. Their attention
does not divide scores by sqrt(d_kv), so queries are scaled here. T5 1.0 divides the decoder's output by
sqrt(d_model), so the gain of its last norm is scaled. ByT5 and MADLAD-400 are T5s with other tokenizers.
Sentinels, and ids that no token has, are never written.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from heedful.interop.conversion import Conversion, Settings, same_numbers, scaled
from heedful.interop.fairseq import tokens
from heedful.interop.huggingface.added_tokens import with_added_tokens
from heedful.interop.huggingface.pretrained import PIPELINE_FILE, TOKENIZER_FILE, PretrainedDirectory
from heedful.interop.huggingface.reading import (
    ACTIVATIONS,
    FIXED,
    WITHOUT_EFFECT,
    Family,
    target_before_source,
    tokenizer_of_pipeline,
    vocabulary_tokenizer,
)
from heedful.interop.keys import Keys, columns, named
from heedful.interop.tables import AS_IS, Table, Transform
from heedful.interop.vocabulary import pieces
from heedful.text import ByteTokenizer, Tokenizer
from heedful.text.tokenizer import is_sentinel

_MODEL_FILE = "spiece.model"
_USUAL_SENTINELS = 100
# Tokens of a source in the training of the published T5s; of mT5, UMT5 and ByT5.
_USUAL_SOURCE, _LONG_SOURCE = 512, 1024
_BYTES = "ByT5Tokenizer"
_CLASSES = ("T5Tokenizer", "MT5Tokenizer", _BYTES)
_OTHERS = ("initializer_factor", "n_positions", "scalable_attention", "scale_decoder_outputs")
_FEED_FORWARD = {
    f"gated-{name}" if gated else name: {"activation": ours, "gated": gated}
    for gated in (False, True)
    for name, ours in ACTIVATIONS.items()
} | {"gated-gelu": {"activation": "gelu_tanh", "gated": True}}


def _with_factors(table: Table, conversion: Conversion) -> Table:
    """Return the table with the factors of queries and of the decoder's last norm."""
    scales = _scales_outputs(conversion.beside)
    if scales is None:
        _refuse_unclear_scale(conversion)
    root = math.sqrt(conversion.required("d_k"))
    transforms = {
        "times_root": Transform(lambda query: scaled(query, root)),
        "divided": AS_IS if scales is False else Transform(lambda gain: scaled(gain, len(gain) ** -0.5)),
    }
    is_umt5 = conversion.beside["model_type"] == "umt5"
    return replace(table, transforms=transforms, facts={**table.facts, "relative_per_layer": is_umt5})


def _scales_outputs(config: Settings) -> bool | None:
    """Return whether the decoder's output is divided by sqrt(d_model); None: if its matrix is the embedding.

    A file of transformers 4 says it by `tie_word_embeddings`. Version 5 writes true there for all families,
    and the truth into `scale_decoder_outputs` for T5 alone; its mT5 never scales.
    """
    scales, tied = config.get("scale_decoder_outputs"), config.get("tie_word_embeddings")
    if isinstance(scales, bool):
        return scales
    is_old = re.match("[5-9]|[1-9][0-9]", str(config.get("transformers_version", ""))) is None
    if config["model_type"] == "mt5":
        return is_old and tied is True
    return None if tied and not is_old and config["model_type"] == "umt5" else tied is not False


def _refuse_unclear_scale(conversion: Conversion) -> None:
    """Refuse a UMT5 that transformers 5 saved, if its matrices differ: the published ones are not scaled."""
    names = ("shared.weight", "lm_head.weight")
    is_one = not all(name in conversion.left for name in names) or same_numbers(*map(conversion.look, names))
    conversion.require(
        is_one,
        "transformers 5 wrote tie_word_embeddings=true, but lm_head is not the embedding; add "
        '"scale_decoder_outputs": false for a published model, true for one trained by transformers 5',
    )


_TABLE = Table(
    """
    {stack}.block.{i}.layer.                            {stack}.layers.{i}.
        0.SelfAttention.q                               self_attention.query                times_root
        0.SelfAttention.{k,v,o}                         self_attention.{key,value,output}
        0.SelfAttention.relative_attention_bias         self_attention.positions
        0.layer_norm                                    self_attention_norm
    encoder.block.{i}.layer.                            encoder.layers.{i}.
        1.DenseReluDense.{wi,wi_0,wi_1,wo}              feed_forward.{inner,gate,inner,outer}
        1.layer_norm                                    feed_forward_norm
    decoder.block.{i}.layer.                            decoder.layers.{i}.
        1.EncDecAttention.q                             cross_attention.query               times_root
        1.EncDecAttention.{k,v,o}                       cross_attention.{key,value,output}
        1.layer_norm                                    cross_attention_norm
        2.DenseReluDense.{wi,wi_0,wi_1,wo}              feed_forward.{inner,gate,inner,outer}
        2.layer_norm                                    feed_forward_norm
    encoder.final_layer_norm                            encoder.final_norm
    decoder.final_layer_norm                            decoder.final_norm                  divided
    decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight  -
    """
    + tokens(),
    facts={
        "attention_bias": False,
        "feed_forward_bias": False,
        "norm": "pre",
        "norm_kind": "rms",
        "positions": "relative",
        "scale_embeddings": False,
    },
    adapt=_with_factors,
)


def _has_bytes(directory: PretrainedDirectory) -> bool:
    return directory.has_tokenizer and directory.tokenizer_class(*_CLASSES) == _BYTES


def _tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load the SentencePiece model and add the sentinels, or a tokenizer.json; ByT5 has no file."""
    if _has_bytes(directory):
        own = ByteTokenizer().tokens(range(ByteTokenizer().vocab_size))
        _, added = with_added_tokens(directory, own)
        return ByteTokenizer([each for each in added if each.content not in own])
    if (directory.path / _MODEL_FILE).is_file():
        model = directory.read_bytes(_MODEL_FILE)
        own = pieces(model, _MODEL_FILE)
        special = _added_sentinels(directory, own)
        return vocabulary_tokenizer(
            directory, model, [*own, *special], special=special, starts_with_pad=True, in_library=True
        )
    if not (directory.path / PIPELINE_FILE).is_file():
        directory.refuse(
            "no such file, nor is there a tokenizer.json; copy the whole directory", file=_MODEL_FILE
        )
    return tokenizer_of_pipeline(directory, starts_with_pad=True)


def _added_sentinels(directory: PretrainedDirectory, own: Sequence[str]) -> list[str]:
    """Return the sentinels after the model's own tokens, the last first; none if these have them."""
    count = directory.typed(TOKENIZER_FILE).whole_number("extra_ids")
    if count is None:
        count = 0 if any(map(is_sentinel, own)) else _USUAL_SENTINELS
    if count > len(own):
        directory.refuse(f"extra_ids={count:,} is more than there are tokens", file=TOKENIZER_FILE)
    return [f"<extra_id_{i}>" for i in reversed(range(count))]


def _longest_source(directory: PretrainedDirectory) -> int:
    is_long = directory.config["model_type"] != "t5" or _has_bytes(directory)
    return directory.typed().whole_number("n_positions") or (_LONG_SOURCE if is_long else _USUAL_SOURCE)


def _never_written(tokenizer: Tokenizer, size: int) -> Iterable[int]:
    """Yield the sentinels, and the ids that no token has."""
    for i, token in enumerate(tokenizer.tokens(range(tokenizer.vocab_size))):
        if is_sentinel(token):
            yield i
    yield from range(tokenizer.vocab_size, size)


_KEYS = Keys(
    read=columns(
        """
        d_model                          d_model
        d_ff                             d_ff
        d_kv                             d_k d_v
        num_heads                        num_heads
        num_layers                       num_encoder_layers
        num_decoder_layers               num_decoder_layers
        dropout_rate                     dropout attention_dropout activation_dropout
        relative_attention_num_buckets   relative_buckets
        relative_attention_max_distance  relative_max_distance
        layer_norm_epsilon               layer_norm_eps
        """
    ),
    choices={
        "feed_forward_proj": _FEED_FORWARD,
        "dense_act_fn": {None: {}, **named("activation", ACTIVATIONS)},
        "is_gated_act": {None: {}, True: {"gated": True}, False: {"gated": False}},
    },
    fixed=FIXED,
    ignored=(*WITHOUT_EFFECT, *_OTHERS),
    # The classes' own, if a file lacks the key.
    defaults={
        "d_kv": 64,
        "dropout_rate": 0.1,
        "feed_forward_proj": "relu",
        "layer_norm_epsilon": 1e-6,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
    },
)
T5 = Family(
    layout="t5",
    model_type="t5",
    weights=_TABLE,
    keys=_KEYS,
    classes=_CLASSES,
    tokenizer=_tokenizer,
    languages=target_before_source,
    source_tokens=_longest_source,
    never_written=_never_written,
)
MT5 = replace(
    T5,
    model_type="mt5",
    keys=replace(_KEYS, defaults={**_KEYS.defaults, "feed_forward_proj": "gated-gelu"}),
)
UMT5 = replace(MT5, model_type="umt5")
