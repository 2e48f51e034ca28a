"""Read checkpoints of OpenNMT-py 3 (`.pt`) and directories of its successor Eole.

Both are pre-norm with final norms. With sinusoids they multiply embeddings by the root of d_model, with
rotary positions they do not. Their vocabularies are in the file, and their texts are tokens with spaces
between them, unless the options name SentencePiece models. A source has no end token.
"""

import argparse
import fnmatch
import re
import zipfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, cat

from heedful.errors import InteropError
from heedful.interop.conversion import (
    ANGLE_ROUNDING,
    STACKS,
    Conversion,
    DeferredTensor,
    Imported,
    Positions,
    Settings,
    Tensors,
    Values,
    in_float32,
    read_checkpoint,
)
from heedful.interop.ctranslate2.reading import TextFiles, Vocabulary, tokenizer_of
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions, tokenizer_section
from heedful.interop.keys import Keys, allowed, columns, named, split
from heedful.interop.tables import Table
from heedful.interop.vocabulary import (
    TypedSettings,
    as_list,
    is_texts,
    read_bytes,
    read_settings,
    unique_names,
)
from heedful.model.positions import sinusoids
from heedful.model.transformer import SINUSOIDS
from heedful.settings.parsing import shown
from heedful.settings.run import Config
from heedful.storage.torch_weights import read_pickled
from heedful.text import SpecialIds, TokenizerPair

LAYOUT, EOLE = "opennmt-py", "eole"

OPENNMT_WEIGHTS = """
    encoder.transformer.{i}.                           encoder.layers.{i}.
        self_attn.linear_{query,keys,values}           self_attention.{query,key,value}
        self_attn.final_linear                         self_attention.output
        {,feed_forward.}layer_norm                     {self_attention,feed_forward}_norm
        feed_forward.w_{MATRICES}                      feed_forward.{OURS}
    decoder.transformer_layers.{i}.                    decoder.layers.{i}.
        {self,context}_attn.linear_{query,keys,values} {self,cross}_attention.{query,key,value}
        {self,context}_attn.final_linear               {self,cross}_attention.output
        {layer_norm_1,layer_norm_2}                    {self_attention,cross_attention}_norm
        feed_forward.layer_norm                        feed_forward_norm
        feed_forward.w_{MATRICES}                      feed_forward.{OURS}
    {stack}.layer_norm                                 {stack}.final_norm
    {stack}.embeddings.make_embedding.                 {stack}.embedding.
        emb_luts.0                                     tokens
        pe.pe                                          positions.weight
    generator|decoder.embeddings.make_embedding.emb_luts.0   output
"""
# Matrices that are shared are left out.
EOLE_WEIGHTS = """
    {stack}.transformer_layers.{i}.                    {stack}.layers.{i}.
        {self,context}_attn.linear_{query,keys,values} {self,cross}_attention.{query,key,value}
        {self,context}_attn.final_linear               {self,cross}_attention.output
        {input,precontext,post_attention}_layernorm    {self_attention,cross_attention,feed_forward}_norm
        mlp.{MATRICES}_proj                            feed_forward.{OURS}
    {stack}.layer_norm                                 {stack}.final_norm
    src_emb.embeddings                                 encoder.embedding.tokens
    tgt_emb.embeddings|src_emb.embeddings              decoder.embedding.tokens
    generator|tgt_emb.embeddings|src_emb.embeddings    output
    src_emb.pe.weight|src_emb.pe.pe                    encoder.embedding.positions.weight
    tgt_emb.pe.weight|tgt_emb.pe.pe                    decoder.embedding.positions.weight
    {stack}.transformer_layers.{i}.layer_scalar        -
"""
# The matrices of a feed-forward part, without a gate and with one.
MATRICES = {
    OPENNMT_WEIGHTS: (("1,2", "inner,outer"), ("1,3,2", "gate,inner,outer")),
    EOLE_WEIGHTS: (("gate_up,down", "inner,outer"), ("gate_up,up,down", "gate,inner,outer")),
}
_SPECIAL = {"pad": "<blank>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
_NORMS = named("norm_kind", {"standard": "layer", "rms": "rms"})
_SINUSOIDS = {
    "SinusoidalInterleaved": {"positions": "sinusoidal", "scale_embeddings": True},
    "SinusoidalConcat": {"positions": "marian", "scale_embeddings": True},
}
_RELU = {"activation": "relu", "gated": False}
_GELU = {"activation": "gelu", "gated": False}
_ZERO_IS_NONE = ("num_kv", "heads_kv", "head_dim")
OPENNMT = Keys(
    read=columns("heads num_heads\nnum_kv num_kv_heads\nnorm_eps layer_norm_eps"),
    choices={
        "pos_ffn_activation_fn": {
            "relu": _RELU,
            "gelu": _GELU,
            "gated-gelu": _GELU | {"gated": True},
            "silu": {"activation": "swish", "gated": True},
        },
        "layer_norm": _NORMS,
        "position_encoding_type": _SINUSOIDS,
    },
    defaults={
        "pos_ffn_activation_fn": "relu",
        "layer_norm": "standard",
        "norm_eps": 1e-6,
        "position_encoding_type": "SinusoidalInterleaved",
    },
)
# The default search of OpenNMT-py and Eole.
_SEARCH: Settings = {
    "beam_size": 5,
    "length_normalization": "power",
    "length_penalty": 1.0,
    "max_length": 250,
    "max_length_offset": 1024,
}
_DROPOUTS = columns("dropout dropout activation_dropout\nattention_dropout attention_dropout")
_OLDER = re.compile(r"'(onmt|torchtext)\.")  # classes of the vocabulary
_ROTARY = -1
# Options of a model that must have one of these values or be absent.
OPENNMT_FIXED = allowed(
    """
    false          copy_attn coverage_attn lora_embedding parallel_residual shared_layer_norm
    0              n_src_feats num_experts relative_positions_buckets rotary_dim sliding_window
    []             lora_layers quant_layers
    "transformer"  decoder_type encoder_type
    "softmax"      generator_function
    "seq2seq"      model_task
    "text"         model_type
    10000          rotary_theta
    "scaled-dot"|"scaled-dot-flash"  self_attn_type
    """
)


def is_opennmt(path: Path) -> bool:
    """Return whether a file is a checkpoint of OpenNMT-py 3; InteropError for one of 2 or older."""
    if not zipfile.is_zipfile(path):
        return False
    try:
        contents = read_pickled(path)
    except ValueError as error:
        if _OLDER.search(str(error)) is None:
            return False
        raise InteropError(
            f"{path}: of OpenNMT-py 2 or older, whose vocabulary is code; give one of 3"
        ) from None
    return isinstance(contents, Mapping) and {"model", "generator", "opt", "vocab"} <= contents.keys()


def read_opennmt(path: Path, options: ImportOptions) -> ImportedBundle:
    """Read a checkpoint of OpenNMT-py 3.

    Raises:
        InteropError: it is not one, or has options or tensors that are not supported.
        TokenizerError: a SentencePiece model beside it is not usable.
        ConfigError: the settings are invalid.
    """
    is_opennmt(path)  # refuses older ones by name
    checkpoint = read_checkpoint(path)
    arguments, vocabulary = (checkpoint.beside.get(key) for key in ("opt", "vocab"))
    if not isinstance(arguments, argparse.Namespace) or not isinstance(vocabulary, Mapping):
        raise InteropError(
            f"{path}: it has no options or no lists of tokens; give a checkpoint of OpenNMT-py 3"
        )
    settings = TypedSettings(vars(arguments), path)
    settings.check(OPENNMT_FIXED)
    vocabularies = _vocabularies(TypedSettings(vocabulary, path), options)
    tensors = dict(checkpoint.tensors)
    generator = checkpoint.beside.get("generator")
    for name in ("weight", "bias"):
        tensor = generator.get(name) if isinstance(generator, Mapping) else None
        if isinstance(tensor, Tensor):
            tensors[f"generator.{name}"] = in_float32(tensor)
    values = settings.values
    reach, absolute = values.get("max_relative_positions", 0), values.get("position_encoding", False)
    settings.require(
        (reach, absolute) in ((_ROTARY, False), (0, True)),
        "max_relative_positions",
        f" is not supported with position_encoding={shown(absolute)}; sinusoids and rotary positions are",
    )
    facts = _facts(OPENNMT, settings, values)
    if not absolute:
        facts |= {"positions": "rotary", "scale_embeddings": False}
    conversion = Conversion(tensors, layout=LAYOUT, origin=path, settings=options.settings)
    in_pairs = values.get("rotary_interleave", True) is True
    models = _subword_models(values.get("transforms"), settings)
    return _bundle(conversion, OPENNMT_WEIGHTS, facts, vocabularies, in_pairs=in_pairs, subwords=models)


def _facts(keys: Keys, settings: TypedSettings, training: Settings) -> Values:
    """Return the settings of `ModelConfig`, with dropouts of the training."""
    given = {key: value for key, value in settings.values.items() if value or key not in _ZERO_IS_NONE}
    facts = keys.settings(TypedSettings(given, settings.file))
    for theirs, names in _DROPOUTS.items():
        first = as_list(training.get(theirs))[:1]
        if first and isinstance(first[0], float):
            facts |= dict.fromkeys(names, first[0])
    return facts


def _in_halves(imported: Imported) -> Imported:
    """Reorder queries and keys: rotary pairs are neighbours (2i, 2i + 1) there, and halves apart here."""
    decode = partial(_reordered, size=imported.config.head_key_size)
    weights = dict(imported.weights)
    for name, tensor in imported.weights.items():
        if re.search(r"self_attention\.(query|key)\.", name):
            weights[name] = DeferredTensor(tensor, decode, tensor.shape)
    return Imported(imported.config, weights)


def _reordered(rows: Tensor, *, size: int) -> Tensor:
    heads = rows.reshape(-1, size, *rows.shape[1:])
    return cat([heads[:, ::2], heads[:, 1::2]], dim=1).reshape(rows.shape)


def _subword_models(transforms: object, options: TypedSettings) -> list[Path]:
    """Return the names of the SentencePiece models of source and target, if there are two."""
    if "sentencepiece" not in as_list(transforms):
        return []
    names = options.text("src_subword_model"), options.text("tgt_subword_model")
    return list(map(Path, filter(None, names)))


def _vocabularies(saved: TypedSettings, options: ImportOptions) -> list[Vocabulary]:
    """Return the vocabularies of source and target; the begin token of the target starts the decoder."""
    if options.src_lang or options.tgt_lang:
        problem = "there is no choice of languages; leave out --src-lang and --tgt-lang"
        raise InteropError(f"{saved.file}: {problem}")
    saved.require(not saved.values.get("src_feats"), "src_feats", ": features of tokens are not supported")
    specials = TypedSettings(saved.settings("specials"), saved.file)
    names = {kind: specials.text(f"{kind}_token") or usual for kind, usual in _SPECIAL.items()}
    start = saved.text("decoder_start_token") or names["bos"]
    results = []
    for language, special in (("src", names), ("tgt", {**names, "bos": start})):
        tokens: Any = saved.values.get(language)
        saved.require(is_texts(tokens), language, " is not a list of tokens")
        known = {token: i for i, token in reversed([*enumerate(tokens)])}  # the first of equal ones
        needed = special if language == "tgt" else special.keys() - {"bos"}
        for kind in needed:
            saved.require(special[kind] in known, language, f" has no token {shown(special[kind])}")
        eos = known[names["eos"]]
        ids = {kind: known.get(token, eos) for kind, token in special.items()}
        results.append(Vocabulary(unique_names(tokens, {}), SpecialIds(**ids)))
    return results


def _bundle(
    conversion: Conversion,
    rows: str,
    facts: Settings,
    vocabularies: list[Vocabulary],
    *,
    in_pairs: bool,
    subwords: Iterable[Path],
) -> ImportedBundle:
    """Convert the weights; return the model with its tokenizers.

    Args:
        conversion: the tensors and the user's settings.
        rows: the names of the weights.
        facts: settings of the model.
        vocabularies: the vocabularies of source and target.
        in_pairs: whether rotary positions rotate neighbouring dimensions (2i and 2i + 1).
        subwords: the names of SentencePiece models beside the weights; without them, texts are tokens with
            spaces between them.
    """
    src, tgt = (vocabulary.ids for vocabulary in vocabularies)
    ids = {"src_pad_id": src.pad, "tgt_pad_id": tgt.pad, "decoder_start_id": tgt.bos}
    sizes = {key: facts[key] for key in ("d_k", "d_v") if key in facts}
    conversion.settings = {**sizes, **ids, **conversion.settings}
    kind = facts["positions"]
    is_learned = kind == "learned"
    positions = Positions(
        learned=is_learned,
        fixed=kind in SINUSOIDS,
        required=is_learned,
        formula=SINUSOIDS.get(kind, sinusoids),
        rounding=ANGLE_ROUNDING,
    )
    theirs, ours = MATRICES[rows][bool(facts["gated"])]
    table = Table(rows.replace("MATRICES", theirs).replace("OURS", ours), positions=positions)
    imported = table.read(conversion, norm="pre", **facts)
    if in_pairs and kind == "rotary":
        imported = _in_halves(imported)
    config, path = imported.config, conversion.origin
    for vocabulary, size in zip(vocabularies, (config.src_vocab_size, config.tgt_vocab_size), strict=True):
        number = len(vocabulary.tokens)
        conversion.require(number == size, f"{number:,} tokens, but {size:,} rows in the embedding")
    folder = path if path.is_dir() else path.parent
    files = [folder / name.name for name in subwords]
    models: list[bytes | None] = [None, None]
    notes = ["Texts are tokens with spaces between them, as OpenNMT-py and Eole take them."]
    if len(files) == len(STACKS) and all(map(Path.is_file, files)):
        models, notes = list(map(read_bytes, files)), []
    src_texts, tgt_texts = zip(models, vocabularies, strict=True)
    is_joint = src_texts == tgt_texts
    one, other = (
        tokenizer_of(model, vocabulary, TextFiles()) for model, vocabulary in (src_texts, tgt_texts)
    )
    tokenizers = TokenizerPair(one, one if is_joint else other)
    sections: Values = {
        "model": config.model_dump(),
        "decode": _SEARCH,
        "tokenizer": tokenizer_section(tokenizers, source_eos=False, joint=is_joint),
    }
    return ImportedBundle(Config(**sections), imported.weights, tokenizers, tuple(notes))


# Settings of an Eole model that must have one of these values or be absent. Those of other kinds of models
# are not here: they are unknown, and so refused.
EOLE_FIXED = allowed(
    """
    false          add_estimator coverage_attn embedding_layer_norm ffn_layernorm key_norm
    false          parallel_residual q_gating query_norm shared_layer_norm value_norm
    true           final_encoder_layer_norm with_cross_attn
    0              num_experts num_mtp_heads position_shift relative_positions_buckets sliding_window
    null           attn_scaling layer_types
    "transformer"  decoder_type encoder_type
    "standard"     embedding_type encoder_layer_style
    false|true     add_key_bias
    "transformer"|"custom"  architecture
    "softmax"      generator_function
    "causal"       LM_type
    """
)
EOLE_ROTARY_FIXED = allowed(
    """
    0      interleave_local rotary_dim rotary_dim_global tmax_index
    null   scaling_type xdrope_section
    false  multidimensional_rope
    0.0    partial_rotary_factor
    10000  rotary_theta
    """
)
EOLE_KNOWN = split(
    """
    adapter_bias add_ffnbias add_final_linear_bias add_qkvbias alignment_heads alignment_layer decoder
    dim_per_head embeddings encoder eole_version estimator_type first_k_dense_replace freeze_word_vecs_dec
    freeze_word_vecs_enc full_context_alignment generator_bias head_dim heads heads_kv hidden_size
    huggingface_model input_feed lambda_align lambda_coverage layer_norm layers left_pad
    max_position_embeddings mlp_activation_fn n_positions norm_eps normalize num_experts_per_tok
    num_shared_experts position_encoding position_encoding_type rope_config share_decoder_embeddings
    share_embeddings src_word_vec_size tgt_word_vec_size token_type_vocab_size transformer_ff word_vec_size
    """
)
# Keys of rotary positions that only their scaling reads.
_EOLE_ROTARY_KNOWN = split(
    """
    alpha high_freq_factor low_freq_factor original_max_position_embeddings rotary_interleave
    rotary_theta_local scaling_factor
    """
)
_GELU_TANH, _SILU = {"activation": "gelu_tanh", "gated": False}, {"activation": "swish", "gated": False}
EOLE_KEYS = Keys(
    read=columns(
        """
        heads     num_heads
        heads_kv  num_kv_heads
        head_dim  d_k d_v
        norm_eps  layer_norm_eps
        """
    ),
    choices={
        "mlp_activation_fn": {
            "relu": _RELU,
            "gelu": _GELU,
            "gated-gelu": _GELU | {"gated": True},
            "gelu-tanh": _GELU_TANH,
            "gated-gelu-tanh": _GELU_TANH | {"gated": True},
            "silu": _SILU,
            "gated-silu": _SILU | {"gated": True},
        },
        "layer_norm": _NORMS,
        "position_encoding_type": {
            **_SINUSOIDS,
            "Learned": {"positions": "learned", "scale_embeddings": False},
            "Rotary": {"positions": "rotary", "scale_embeddings": False},
        },
    },
    defaults={
        "heads": 8,
        "mlp_activation_fn": "relu",
        "layer_norm": "standard",
        "norm_eps": 1e-5,
        "position_encoding_type": "SinusoidalInterleaved",
    },
)
_CONFIG, _VOCABULARY, _WEIGHTS = "config.json", "vocab.json", "model.*.safetensors"


def is_eole(path: Path) -> bool:
    """Return whether a path is a directory of Eole."""
    return (path / _VOCABULARY).is_file() and any(path.glob(_WEIGHTS)) and (path / _CONFIG).is_file()


def read_eole(path: Path, options: ImportOptions) -> ImportedBundle:
    """Read a directory of Eole.

    Raises:
        InteropError: a file is missing, or has settings or tensors that are not supported.
        TokenizerError: a SentencePiece model beside it is not usable.
        ConfigError: the settings are invalid.
    """
    if not is_eole(path):
        files = f"{_CONFIG}, {_VOCABULARY} or {_WEIGHTS}"
        raise InteropError(f"{path}: there is no {files}; copy the whole directory")
    config = TypedSettings(read_settings(path / _CONFIG), path / _CONFIG)
    settings = _eole_settings(config.settings("model"), config)
    settings.check(EOLE_FIXED, EOLE_KNOWN, ignored=options.ignored)
    rotary = TypedSettings(settings.settings("rope_config"), path / _CONFIG)
    rotary.check(EOLE_ROTARY_FIXED, _EOLE_ROTARY_KNOWN, ignored=options.ignored)
    facts = _facts(EOLE_KEYS, settings, config.settings("training"))
    is_scaled = settings.values.get("normalize")
    settings.require(
        not is_scaled or facts["positions"] == "rotary",
        "normalize",
        " is not supported with positions that are not rotary",
    )
    facts["scale_embeddings"] |= is_scaled is True
    file = path / _VOCABULARY
    vocabularies = _vocabularies(TypedSettings(read_settings(file), file), options)
    tensors: Tensors = {}
    for file in sorted(path.glob(_WEIGHTS)):
        tensors |= read_checkpoint(file).tensors
    conversion = Conversion(tensors, layout=EOLE, origin=path, settings=options.settings)
    for name in fnmatch.filter(tensors, "*.layer_scalar"):
        conversion.require(
            bool((tensors[name] == 1).all()), f"the weight {name!r} is not 1, which is not supported"
        )
    texts = TypedSettings(config.settings("transforms_configs"), config.file)
    options_of_models = TypedSettings(texts.settings("sentencepiece"), config.file)
    subwords = _subword_models(config.values.get("transforms"), options_of_models)
    in_pairs = rotary.values.get("rotary_interleave", True) is True
    return _bundle(conversion, EOLE_WEIGHTS, facts, vocabularies, in_pairs=in_pairs, subwords=subwords)


def _eole_settings(model: Settings, config: TypedSettings) -> TypedSettings:
    """Return the settings of the model, which are equal in both stacks."""
    sections = TypedSettings(model, config.file)
    for key in STACKS:
        is_there = sections.values.get(key) is not None
        sections.require(
            is_there, key, ": it has no encoder or no decoder; only models with both are supported"
        )
    parts = {key: sections.settings(key) for key in ("embeddings", "encoder", "decoder")}
    own = {key: value for key, value in model.items() if key not in parts}
    merged = sections.merged({"model": own} | parts, apart=("layers", "encoder_type", "decoder_type"))
    return TypedSettings(merged, config.file)
