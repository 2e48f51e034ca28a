"""Small random models of transformers, saved with their tokenizers as that library saves them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from small_tokenizers import (
    blenderbot_small_files,
    fsmt_files,
    m2m100_model,
    marian_files,
    phrases,
    sentencepiece_model,
)
from torch import Tensor, nn

from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.layouts import read_directory
from heedful.model.transformer import Transformer
from heedful.storage.torch_weights import assign_weights, meta_model

SIZES: dict[str, Any] = {
    "d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 64,
    "scale_embedding": True,
}  # fmt: skip
FAIRSEQ = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}


@dataclass(frozen=True)
class Family:
    """A layout, and a random model of it as transformers has it.

    Attributes:
        layout: its name.
        build: writes the tokenizer into a directory and returns the model, not yet random.
        changes: to the model's configuration.
        seed: of the weights.
    """

    layout: str
    build: Callable[[Path, dict[str, Any]], Any]
    changes: dict[str, Any] = field(default_factory=dict)
    seed: int = 81

    def save(self, directory: Path, *, strength: float = 1.0, **changes: Any) -> Any:  # noqa: ANN401
        """Write everything, and return the model; strong matrices make outputs differ, and round more."""
        model = self.build(directory, SIZES | self.changes | changes)
        randomise(model, self.seed, strength)
        model.eval().save_pretrained(directory)
        return model


_TO_SOURCE = ("encoder_attn", "EncDec", "cross_attn")


def randomise(model: nn.Module, seed: int, strength: float) -> None:
    """Draw every weight, also gains and biases; attention to the source is strong, so that outputs differ."""
    generator, stored = torch.Generator().manual_seed(seed), model.state_dict().keys()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            kind = type(model.get_submodule(name.rpartition(".")[0])).__name__
            if "Sinusoidal" in kind or name not in stored:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if "norm" in name and name.endswith("weight"):
                tensor.copy_((0.5 if "Gemma" in kind else 1.0) + 0.2 * noise)  # Gemma adds one itself
            else:
                is_matrix = tensor.ndim == 2 and len(tensor) > 1
                deviation = (
                    (1.0 if any(each in name for each in _TO_SOURCE) else 0.5) * strength
                    if is_matrix
                    else 0.2
                )
                tensor.copy_(deviation * noise)


def end_sooner(model: Any, by: float) -> None:  # noqa: ANN401
    """Raise the logit of the end token, through the last norm, as a matrix may be shared."""
    head = getattr(model, "lm_head", None)  # FSMT has none
    if not hasattr(model, "model") or hasattr(head, "out_proj"):  # norms have no shift
        _end_t5_sooner(model, by)
        return
    decoder = model.model.decoder
    norm = getattr(decoder, "layer_norm", None) or decoder.layers[-1].final_layer_norm
    output = head or decoder.output_projection
    end = output.weight[model.generation_config.eos_token_id]
    with torch.no_grad():
        norm.bias += by * end / (end @ end)


def _end_t5_sooner(model: Any, by: float) -> None:  # noqa: ANN401
    """Add the mean state to the end token's vector."""
    ids = torch.randint(3, 100, (20, 12), generator=torch.Generator().manual_seed(85))
    with torch.no_grad():
        states = model(input_ids=ids, decoder_input_ids=ids, output_hidden_states=True).decoder_hidden_states[
            -1
        ]
        mean = states.flatten(0, 1).mean(0)
        output = getattr(model.lm_head, "out_proj", model.lm_head)
        output.weight[model.generation_config.eos_token_id] += by * mean / (mean @ mean)


def _marian(directory: Path, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    files = directory.with_name(f"{directory.name}-files")
    _, _, pieces = marian_files(files)
    names = ["source.spm", "target.spm", "vocab.json"]
    separate = settings.pop("separate_vocabs", False)
    if separate:
        names.append("target_vocab.json")
        pieces = ["</s>", "<unk>", *reversed(pieces[2:-1]), "<pad>", "<more>"]
        (files / names[-1]).write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    tokenizer = MarianTokenizer(*(str(files / name) for name in names), separate_vocabs=separate)
    tokenizer.save_pretrained(directory)
    pad, eos = pieces.index("<pad>"), pieces.index("</s>")
    settings = {
        "vocab_size": tokenizer.vocab_size, "decoder_vocab_size": len(pieces), "pad_token_id": pad,
        "decoder_start_token_id": pad, "eos_token_id": eos, "forced_eos_token_id": eos,
        "activation_function": "swish",
    } | settings  # fmt: skip
    return MarianMTModel(MarianConfig(**settings))


def files_beside(directory: Path) -> Path:
    """An empty directory for what a tokenizer is made of."""
    files = directory.with_name(f"{directory.name}-files")
    files.mkdir(parents=True)
    return files


def built(kind: str, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    """A model of transformers, with fairseq's ids if the settings have none of their own."""
    import transformers

    ids = {} if "pad_token_id" in settings else FAIRSEQ
    config = getattr(transformers, f"{kind}Config")(**(ids | settings))
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


def of_size(kind: str, files: Callable[[Path], int], **ids: int) -> Callable[[Path, dict[str, Any]], Any]:
    """Build a model with a row for each token of the tokenizer that `files` writes."""
    return lambda directory, settings: built(kind, ids | {"vocab_size": files(directory)} | settings)


def _m2m100(directory: Path) -> int:
    from transformers import M2M100Tokenizer
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    files = files_beside(directory)
    model, pieces = m2m100_model()
    (files / "model").write_bytes(model)
    (files / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    # As the published ones are: their settings name the tags as special tokens.
    tags = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    languages = {"src_lang": "en", "tgt_lang": "de"}
    M2M100Tokenizer(
        str(files / "vocab.json"), str(files / "model"), additional_special_tokens=list(tags), **languages
    ).save_pretrained(directory)
    return len(pieces) + len(tags)


def _fairseq_tokenizer(directory: Path, name: str, algorithm: str, languages: dict[str, str]) -> int:
    """Save an NLLB or mBART tokenizer, and return its size."""
    import transformers

    files = files_beside(directory)
    model = sentencepiece_model(sum(phrases(), ()), algorithm, 200)
    (files / "sentencepiece.bpe.model").write_bytes(model)
    more = {"extra_special_tokens": [*languages.values()]} if name == "NllbTokenizer" else {}
    tokenizer = getattr(transformers, name).from_pretrained(files, **more, **languages)
    tokenizer.save_pretrained(directory)
    return len(tokenizer)


def _nllb(directory: Path) -> int:
    languages = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    return _fairseq_tokenizer(directory, "NllbTokenizer", "bpe", languages) + 2


def _mbart(directory: Path, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    languages = {"src_lang": "en_XX", "tgt_lang": "de_DE"}
    size = _fairseq_tokenizer(directory, settings.pop("tokenizer"), "unigram", languages)
    return built("MBart", {"vocab_size": size} | settings)


def _plbart(directory: Path, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    from transformers import PLBartTokenizer

    files = files_beside(directory)
    (files / "model").write_bytes(sentencepiece_model(sum(phrases(), ()), "bpe", 200))
    tokenizer = PLBartTokenizer(str(files / "model"), src_lang="python", tgt_lang="en_XX")
    tokenizer.save_pretrained(directory)
    # Without it, transformers starts from the end token of its shifted labels.
    start = tokenizer.convert_tokens_to_ids("__en_XX__")
    return built("PLBart", {"vocab_size": tokenizer.vocab_size, "decoder_start_token_id": start} | settings)


def _byte_level(directory: Path, name: str) -> int:
    """Save a byte-level BPE tokenizer of a class of transformers, and return its size."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    files = files_beside(directory)
    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(
        sum(phrases(), ()), vocab_size=400, special_tokens=special, show_progress=False
    )
    trained.save_model(str(files))
    kind = getattr(transformers, name)
    tokenizer = kind(vocab=str(files / "vocab.json"), merges=str(files / "merges.txt"))
    tokenizer.save_pretrained(directory)
    return len(tokenizer)


def _bart(directory: Path) -> int:
    return _byte_level(directory, "BartTokenizer")


def _blenderbot(directory: Path) -> int:
    from tokenizers import processors
    from transformers import AutoTokenizer

    size = _byte_level(directory, "BlenderbotTokenizer")
    # The published files add the end token, as their tokenizer.json says; today's class forgets it.
    tokenizer = AutoTokenizer.from_pretrained(directory)
    ends = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    tokenizer.backend_tokenizer.post_processor = ends
    tokenizer.save_pretrained(directory)
    return size


def _fsmt(directory: Path, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    src, tgt = fsmt_files(directory, joint=settings.get("tie_word_embeddings", False))
    sizes = {"src_vocab_size": src, "tgt_vocab_size": tgt, "langs": ["en", "de"], "num_beams": 1}
    return built("FSMT", sizes | settings)


def pegasus_files(directory: Path, *, corpus: tuple[str, ...] | None = None, vocab_size: int = 180) -> int:
    """Write spiece.model and the settings of Pegasus's tokenizer, as the published ones; return its size."""
    lines = corpus or sum(phrases(), ())
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "spiece.model").write_bytes(sentencepiece_model(lines, "unigram", vocab_size, **ids))
    special = ["<mask_1>", *(f"<unk_{i}>" for i in range(2, 103))]
    settings = {"tokenizer_class": "PegasusTokenizer", "offset": 103, "additional_special_tokens": special}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return vocab_size + 103


_T5_NAMES = {
    "encoder_layers": "num_layers", "decoder_layers": "num_decoder_layers",
    "encoder_attention_heads": "num_heads", "encoder_ffn_dim": "d_ff",
    "decoder_attention_heads": None, "decoder_ffn_dim": None, "max_position_embeddings": None,
    "scale_embedding": None,
}  # fmt: skip
T5_IDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}


def t5_sizes(settings: dict[str, Any]) -> dict[str, Any]:
    """The same sizes by T5's names, with heads that do not add up to d_model."""
    named = {_T5_NAMES.get(key, key): value for key, value in settings.items()}
    return {"d_kv": 5} | {key: value for key, value in named.items() if key is not None}


def t5_files(
    directory: Path, *, madlad: bool = False, corpus: tuple[str, ...] | None = None, vocab_size: int = 180
) -> int:
    """Write spiece.model and the settings of a T5 tokenizer, as the published ones are; return its size."""
    ids = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1} if madlad else {"pad_id": 0, "eos_id": 1}
    ids = {"unk_id": 2, "bos_id": -1} | ids
    tags = ["<2de>", "<2fr>", "<2zh_Latn>"] if madlad else []
    lines = corpus or sum(phrases(), ())
    model = sentencepiece_model(lines, "unigram", vocab_size, symbols=tuple(tags), **ids)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "spiece.model").write_bytes(model)
    settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0 if madlad else 100, "eos_token": "</s>"}
    settings |= {"unk_token": "<unk>", "pad_token": "<s>" if madlad else "<pad>"}
    settings |= {"additional_special_tokens": []} if madlad else {}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return vocab_size + (0 if madlad else 100)


def _t5(directory: Path, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    import transformers

    settings = t5_sizes(settings)
    name, untied, tokens = (settings.pop(key, None) for key in ("class", "untied", "tokens"))
    if tokens == "bytes":
        transformers.ByT5Tokenizer().save_pretrained(directory)
        size = 384
    else:
        size = 8 + t5_files(directory, madlad=tokens == "madlad")
    if tokens == "madlad":
        settings |= {"pad_token_id": 1, "eos_token_id": 2}
    model = built(name or "T5", T5_IDS | {"vocab_size": size} | settings)
    if untied:
        model.lm_head.weight = nn.Parameter(torch.empty(size, model.config.d_model))
    return model


def _t5gemma(directory: Path, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    """A T5Gemma, or if "class" says so a T5Gemma 2, with windows that are shorter than the texts."""
    import transformers

    size = _gemma_tokenizer(directory)
    stack = {
        "vocab_size": size, "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "query_pre_attn_scalar": 2, "sliding_window": 4,
        "num_hidden_layers": 3, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
    }  # fmt: skip
    if settings.get("class") != "T5Gemma2":
        stack |= {"attn_logit_softcapping": 12.0, "final_logit_softcapping": 20.0}
        decoder = stack | {"num_hidden_layers": 2}
        config = transformers.T5GemmaConfig(encoder=stack, decoder=decoder, vocab_size=size)
        config._attn_implementation = "eager"  # the others leave out the caps
        return transformers.T5GemmaForConditionalGeneration(config)
    stack |= {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    stack |= {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }}  # fmt: skip
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    images = dict.fromkeys(("eoi_token_index", "image_token_index", "boi_token_index"), size)  # no token
    encoder = {"text_config": stack, "vision_config": vision, "mm_tokens_per_image": 4, **images}
    config = transformers.T5Gemma2Config(encoder=encoder, decoder=stack, eoi_token_index=size)
    return transformers.T5Gemma2ForConditionalGeneration(config)


def _gemma_tokenizer(directory: Path) -> int:
    """Save a tokenizer of Gemma's class, BPE that falls back to bytes, and return its size."""
    from tokenizers import Tokenizer, models, normalizers, processors, trainers
    from transformers import GemmaTokenizer

    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trained = Tokenizer(models.BPE(byte_fallback=True))
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.train_from_iterator(
        sum(phrases(), ()), trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False)
    )
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(each) for each in model["merges"]]
    tokenizer = GemmaTokenizer(vocab=model["vocab"], merges=merges)
    # The published files begin with <bos>, as their tokenizer.json says; today's class forgets it.
    begins = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    tokenizer.backend_tokenizer.post_processor = begins
    tokenizer.save_pretrained(directory)
    return len(tokenizer) + 3


SMALL = of_size(
    "BlenderbotSmall", blenderbot_small_files, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=1,
)  # fmt: skip
GATED = {"class": "T5", "untied": True, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
FAMILIES: dict[str, Family] = {
    "marian": Family("marian", _marian),
    "marian, gelu, untied": Family(
        "marian",
        _marian,
        {"activation_function": "gelu", "scale_embedding": False, "tie_word_embeddings": False}
        | {"share_encoder_decoder_embeddings": False},
    ),
    "marian, separate vocabularies": Family(
        "marian", _marian, {"separate_vocabs": True, "share_encoder_decoder_embeddings": False}, seed=82
    ),
    "m2m100": Family("m2m100", of_size("M2M100", _m2m100)),
    "nllb": Family("m2m100", of_size("M2M100", _nllb)),
    "bart": Family("bart", of_size("Bart", _bart), {"scale_embedding": False}),
    "mbart": Family("bart", _mbart, {"tokenizer": "MBartTokenizer"}),
    "t5": Family("t5", _t5),
    "t5 1.1": Family("t5", _t5, GATED),
    "t5, tied and gated": Family(
        "t5", _t5, {"feed_forward_proj": "gated-silu", "scale_decoder_outputs": False}
    ),
    "t5, untied and scaled": Family("t5", _t5, {"untied": True, "feed_forward_proj": "gelu"}),
    "mt5": Family("t5", _t5, GATED | {"class": "MT5"}),
    "umt5": Family("t5", _t5, {"class": "UMT5", "feed_forward_proj": "gated-gelu"}),
    "byt5": Family("t5", _t5, GATED | {"tokens": "bytes"}),
    "madlad": Family("t5", _t5, GATED | {"tokens": "madlad"}),
    "t5gemma": Family("t5gemma", _t5gemma, seed=82),
    "t5gemma 2": Family("t5gemma", _t5gemma, {"class": "T5Gemma2"}),
    "plbart": Family("bart", _plbart),
    "mvp": Family("bart", of_size("Mvp", _bart), {"scale_embedding": False}),
    "fsmt": Family("fsmt", _fsmt),
    "fsmt, tied": Family("fsmt", _fsmt, {"tie_word_embeddings": True, "activation_function": "swish"}),
    "pegasus": Family("pegasus", of_size("Pegasus", pegasus_files, **T5_IDS), seed=83),
    "blenderbot": Family("blenderbot", of_size("Blenderbot", _blenderbot), seed=89),
    "blenderbot small": Family("blenderbot", SMALL, {"scale_embedding": False}),
    "blenderbot small, scaled": Family("blenderbot", SMALL),
    "mbart-50": Family("bart", _mbart, {"tokenizer": "MBart50Tokenizer", "activation_function": "relu"}, 84),
}


def imported(
    layout: str,
    directory: Path,
    **options: Any,  # noqa: ANN401
) -> tuple[ImportedBundle, Transformer]:
    """What is read, and a model of it."""
    found = read_directory(layout, directory, ImportOptions(**({"settings": {}} | options)))
    model = meta_model(found.config.model)
    assign_weights(model, found.weights)
    return found, model.eval()


def batch(model: Transformer, seed: int = 83) -> tuple[Tensor, Tensor]:
    """Ids of several lengths, (3, 13) and (3, 11), padded on the right."""
    config, generator = model.config, torch.Generator().manual_seed(seed)
    sides = []
    for size, pad, lengths in (
        (config.src_vocab_size, config.src_pad_id, (13, 2, 7)),
        (config.tgt_vocab_size, config.tgt_pad_id, (5, 11, 3)),
    ):
        ids = torch.randint(0, size - 1, (len(lengths), max(lengths)), generator=generator)
        ids[ids == pad] = size - 1 if pad != size - 1 else 0
        for row, length in enumerate(lengths):
            ids[row, length:] = pad
        sides.append(ids)
    return sides[0], sides[1]


def logits_of(model: Any, src: Tensor, tgt_in: Tensor, config: Any) -> Tensor:  # noqa: ANN401
    """The logits at every position that holds a token; of a model of transformers or of ours."""
    with torch.no_grad():
        if isinstance(model, Transformer):
            found = model(src, tgt_in)
        else:
            real = (src != config.src_pad_id).long()
            # With a cache, FSMT has no causal mask.
            found = model(
                input_ids=src, attention_mask=real, decoder_input_ids=tgt_in, use_cache=False
            ).logits
    return found[tgt_in != config.tgt_pad_id]
