"""The README of an exported CTranslate2 model: Python that translates with it, and what to know."""

import json
from collections.abc import Iterable, Sequence
from string import Template

from heedful.bundle import Bundle
from heedful.config import Config
from heedful.interop.ctranslate2.position_limit import position_limit
from heedful.interop.ctranslate2.search_settings import penalties
from heedful.interop.ctranslate2.tokens import TokenNames
from heedful.text import HuggingFaceTokenizer, SentencePieceTokenizer, Tokenizer
from heedful.text.framing import Framing, suppressed_ids
from heedful.text.pair import JOINT, SOURCE, TARGET

# What CTranslate2 does by itself.
_DEFAULTS = {"repetition_penalty": (1,), "no_repeat_ngram_size": (0,), "min_decoding_length": (0, 1)}
_README = Template("""# Transformer $size, for CTranslate2

Exported with heedful, with weights in $weights. After `pip install ctranslate2 $packages`:

```python
import ctranslate2
$imports

directory = "."  # where this file is
$tokenizers
translator = ctranslate2.Translator(directory)
special = $special


def translate(lines):
    results = translator.translate_batch(
        [$source for line in lines],
        $arguments,
        return_end_token=True,  # the length penalty counts it
    )
    outputs = [[token for token in result.hypotheses[0] if token not in special] for result in results]
    return [$text for tokens in outputs]


print(translate(["..."]))
```

$notes
""")


def readme(bundle: Bundle, framing: Framing, names: TokenNames, *, weights: str) -> str:
    """Write it, in Markdown.

    Args:
        bundle: what was exported.
        framing: the special-token template.
        names: of the tokens.
        weights: the type in which they are stored.
    """
    model, tokenizers = bundle.config.model, bundle.tokenizers
    packages = sorted({_package(tokenizers.src), _package(tokenizers.tgt)})
    files = {"tokenizer": (tokenizers.src, JOINT)}
    if not tokenizers.joint:
        files = {"source": (tokenizers.src, SOURCE), "target": (tokenizers.tgt, TARGET)}
    first, *_, last = files if len(files) > 1 else [*files, *files]
    return _README.substitute(
        size=f"{model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}",
        weights=weights,
        packages=" ".join(packages),
        imports="\n".join(f"import {package}" for package in packages),
        tokenizers="\n".join(f"{variable} = {_loading(*file)}" for variable, file in files.items()),
        special=_literal(_special(bundle, framing, names)),
        source=_cutting(tokenizers.src, first, framing, names),
        arguments=",\n        ".join(_arguments(bundle, framing, names)),
        text=_joining(tokenizers.tgt, last),
        notes="\n".join(f"- {note}" for note in _notes(bundle.config, framing, names)),
    )


def _package(tokenizer: Tokenizer) -> str:
    return "tokenizers" if isinstance(tokenizer, HuggingFaceTokenizer) else "sentencepiece"


def _loading(tokenizer: Tokenizer, stem: str) -> str:
    """Python that loads a tokenizer, of files whose names begin with `stem`."""
    file = f'f"{{directory}}/{stem}{next(iter(tokenizer.to_files()))}"'
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return f"tokenizers.Tokenizer.from_file({file})"
    return f"sentencepiece.SentencePieceProcessor(model_file={file})"


def _cutting(tokenizer: Tokenizer, variable: str, framing: Framing, names: TokenNames) -> str:
    """Python that turns `line` into tokens; the end token is CTranslate2's own affair where it comes last."""
    is_library = isinstance(tokenizer, HuggingFaceTokenizer)
    cut = "encode(line, add_special_tokens=False).tokens" if is_library else "encode(line, out_type=str)"
    before = [names.src[i] for i in framing.src_prefix]
    after = [names.src[i] for i in framing.src_suffix]
    if framing.src_suffix == (tokenizer.eos_id,):
        after = []
    if not before and not after:
        return f"{variable}.{cut}"
    return f"[{', '.join([*map(_literal, before), f'*{variable}.{cut}', *map(_literal, after)])}]"


def _joining(tokenizer: Tokenizer, variable: str) -> str:
    """Python that turns `tokens` into a text."""
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return f"{variable}.decode([{variable}.token_to_id(token) for token in tokens])"
    if isinstance(tokenizer, SentencePieceTokenizer):
        return f"{variable}.decode(tokens)"
    return f'{variable}.decode(tokens).replace("▁", " ").strip()'  # tokens that the model does not know


def _special(bundle: Bundle, framing: Framing, names: TokenNames) -> list[str]:
    """The tokens of an output that stand for no text; SentencePiece alone writes unknown ones as `⁇`."""
    tgt = bundle.tokenizers.tgt
    ids = {tgt.pad_id, tgt.bos_id, tgt.eos_id, *framing.tgt_prefix}
    if not isinstance(tgt, SentencePieceTokenizer):
        ids.add(tgt.unk_id)
    return [names.tgt[i] for i in sorted(ids)]


def _arguments(bundle: Bundle, framing: Framing, names: TokenNames) -> Iterable[str]:
    """The bundle's own search, as far as CTranslate2 has it."""
    search, tgt = bundle.config.decode, bundle.tokenizers.tgt
    first: Sequence[int] = framing.tgt_prefix
    if not first and search.forced_first_id is not None:
        first = [search.forced_first_id]
    if first:
        yield f"target_prefix=[{_literal([names.tgt[i] for i in first])}] * len(lines)"
    yield f"beam_size={search.beam_size}"
    for name, value in penalties(search).items():
        if value not in _DEFAULTS.get(name, ()):
            yield f"{name}={value}"
    if search.beam_size > 1 and search.early_stopping == "optimal":
        yield "patience=2"
    suppressed = suppressed_ids(
        search.suppressed_ids, start_id=framing.start_id, pad_id=tgt.pad_id, eos_id=tgt.eos_id
    )
    if sequences := [[names.tgt[i]] for i in suppressed]:
        yield f"suppress_sequences={_literal(sequences)}"
    if search.max_length is not None:
        yield f"max_decoding_length={search.max_length}"
    yield f"max_batch_size={search.batch_tokens}"
    yield 'batch_type="tokens"'


def _notes(config: Config, framing: Framing, names: TokenNames) -> Iterable[str]:
    source = [names.src[i] for i in (*framing.src_prefix, *framing.src_suffix[1:])]
    tags = [*source, *(names.tgt[i] for i in framing.tgt_prefix)]
    if tags:
        listed = " and ".join(f"`{tag}`" for tag in tags)
        yield f"{listed} name the languages; other tags of the vocabulary may take their places."
    yield (
        "CTranslate2 reads 1,024 tokens of a line and writes 256, unless it is given another "
        "`max_input_length` and `max_decoding_length`."
    )
    if config.decode.repetition_penalty != 1:
        yield "Its repetition penalty changes logits, where heedful's changes log-probabilities."
    limit = position_limit(config.model)
    if limit is not None and config.model.positions == "alibi":
        yield f"Distances from {limit:,} tokens on count as {limit:,}."
    elif limit is not None:
        yield f"Positions end at {limit:,} tokens on either side; beyond, CTranslate2 stops with an error."
    yield (
        'It searches as heedful does with `length_normalization = "average"`, `early_stopping = "first"` and '
        "`renormalize = true`: scores are log-probabilities divided by the length to the power of the "
        "penalty, a sentence ends with its beam_size-th finished hypothesis, and what is suppressed leaves "
        "its probability to the rest. With `patience=2` it ends with twice as many, and rarely misses what "
        '"optimal" finds.'
    )


def _literal(value: Sequence[str] | Sequence[Sequence[str]]) -> str:
    return json.dumps(value, ensure_ascii=False)
