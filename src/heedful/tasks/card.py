"""The model card of a bundle: data, scores, command; no directory of the machine stands in what is shared."""

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.data.files import plain_name
from heedful.data.store import ParallelStore
from heedful.settings.plugins import plugin_options
from heedful.settings.run import Config, DataConfig
from heedful.tasks.loading import hub_repo
from heedful.tasks.setup import Origin

# The hub's name and the display name of a metric; by default both are its own name.
_METRICS = {
    "bleu": ("sacrebleu", "BLEU"),
    "chrf": ("chrf", "chrF"),
    "ter": ("ter", "TER"),
    "exact": ("exact_match", "Exact match (%)"),
    "perplexity": ("perplexity", "Perplexity per token"),
    "nll": ("nll", "Negative log-likelihood per token"),
}
# A language tag of a vocabulary begins with an ISO 639 code: eng_Latn, en_XX, __en__, >>eng<<.
_TAG = re.compile(r"[^a-z]*([a-z]{2,3})(?![a-z])")
_ISO_639_1 = """
aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el
en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it
iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt
my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl
sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo
za zh zu
"""


def front_matter(
    config: Config,
    *,
    title: str,
    scores: Mapping[str, float] | None = None,
    signatures: Mapping[str, str] | None = None,
    base_model: str | None = None,
) -> str:
    """Return the front matter, from `---` to `---`.

    `base_model` is the model on the hub that this one was fine-tuned from, as `user/model`.
    """
    lines = ["---", "library_name: heedful", "pipeline_tag: translation"]
    if languages := _languages(config):
        lines += ["language:", *(f"- {_quoted(language)}" for language in languages)]
    if base_model:
        lines.append(f"base_model: {_quoted(base_model)}")
    lines += ["tags:", "- transformer", "- encoder-decoder"]
    finite = {name: value for name, value in (scores or {}).items() if math.isfinite(value)}
    if finite:
        lines += ["model-index:", f"- name: {_quoted(title)}", "  results:"]
        lines += ["  - task: {type: translation, name: Translation}"]
        lines += [f"    dataset: {_dataset(config.data)}", "    metrics:"]
        signed = signatures or {}
        lines += [f"    - {_metric(name, value, signed.get(name))}" for name, value in finite.items()]
    return "\n".join([*lines, "---", ""])


def _dataset(data: DataConfig) -> str:
    """Return the dataset of the scores: lines in local files, of type `text` on the hub."""
    files = [file for file in (data.valid_pairs, data.valid_src, data.valid_tgt) if file]
    split = ", split: validation" if files else ""  # else pairs of the training text
    files = files or [*data.training_files]
    return f"{{type: text, name: {_quoted(' and '.join(Path(file).name for file in files))}{split}}}"


def _metric(name: str, value: float, signature: str | None) -> str:
    kind, shown = _METRICS.get(name, (name, name))
    args = f", args: {{signature: {_quoted(signature)}}}" if signature else ""
    return f"{{type: {_quoted(kind)}, name: {_quoted(shown)}, value: {value:.4f}{args}}}"


def _languages(config: Config) -> list[str]:
    """Return the languages, source first, that tags or file-name suffixes identify."""
    tags = [_TAG.match(tag) for tag in (config.languages.src_tag, config.languages.tgt_tag) if tag]
    codes: Sequence[str] = [match[1] for match in tags if match]
    if not codes:
        codes = [plain_name(Path(file or "")).suffix[1:] for file in config.data.first_text]
        codes = codes if set(codes) <= set(_ISO_639_1.split()) else []
    return list(dict.fromkeys(codes))


def _quoted(text: str) -> str:
    """Return a YAML scalar: a JSON string with unprintable characters escaped as in YAML."""
    letters = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in letters)


_BAR = r"\|"  # of a signature, in a cell of a table
_OPTION = re.compile(r"(?:--?[\w-]+=|\w+\.\w+=)?")  # before its value: --src=, or data.src= after --set
_FILES = ("src", "tgt", "valid_src", "valid_tgt", "pairs", "valid_pairs")


def without_directories(argument: str) -> str:
    """Return an argument of the command line with the file name alone of a path: directories name people.

    >>> without_directories("--set"), without_directories("data.src=/home/anna/acme/train.en")
    ('--set', 'data.src=train.en')
    """
    option = _OPTION.match(argument)
    start = option.end() if option else 0
    return argument[:start] + _file_name(argument[start:])


def shell_command(words: Iterable[str]) -> str:
    """Return the words of a command as one line for a shell.

    >>> shell_command(["heedful", "train", "-o", "my run"])
    "heedful train -o 'my run'"
    """
    return " ".join(map(_shell_word, words))


def words_of_settings(config: Config, settings: Mapping[str, Any]) -> list[str]:
    """Return the options of a command for the plugins of a configuration, and for settings by whole keys."""
    words = plugin_options(name for _, name in config.plugged)
    for key, value in settings.items():
        written = value if isinstance(value, str) else json.dumps(False if value is None else value)
        words += ["--set", f"{key}={written}"]
    return words


def _shell_word(word: str) -> str:
    r"""Quote a word for a shell; with line ends, or bytes that are not UTF-8, it is written as $'\xff'."""
    if word.isprintable():
        return shlex.quote(word)
    plain = {byte: chr(byte) for byte in range(32, 127) if byte not in b"'\\"}
    letters = (plain.get(byte, f"\\x{byte:02x}") for byte in word.encode("utf-8", "surrogateescape"))
    return f"$'{''.join(letters)}'"


def _plugged_section(config: Config) -> list[str]:
    """Return what is not heedful's own, if anything; the code is not in a bundle."""
    if not config.plugged:
        return []
    rows = [f"- `{key}`: `{name}`" for key, name in config.plugged]
    needed = dict.fromkeys(part.partition(":")[0] for part in config.model.plugged.values())
    code = f" To use the model, you need the code of {' and '.join(needed)}." if needed else ""
    return ["## Plugins", "", f"These parts are not heedful's own.{code}", "", *rows, ""]


def shared_config(config: Config) -> Config:
    """Return the configuration that a bundle has, with file names instead of paths."""
    data = config.data.model_dump() | {"cache_dir": None}
    names: dict[str, Any] = {key: data[key] and _file_name(data[key]) for key in _FILES}
    names["corpora"] = [
        {key: _file_name(value) if key in _FILES and value else value for key, value in corpus.items()}
        for corpus in data["corpora"]
    ]
    init = config.train.init and shared_name(config.train.init)
    bundle = config.tokenizer.bundle and shared_name(config.tokenizer.bundle)
    return config.replace(
        data=data | names,
        train=config.train.replace(init=init).model_dump(),
        tokenizer=config.tokenizer.replace(bundle=bundle).model_dump(),
    )


def shared_name(bundle: str) -> str:
    """Return the name of a bundle: on the hub, or of its directory."""
    return bundle if hub_repo(Path(bundle)) else _file_name(bundle)


def _file_name(path: str) -> str:
    return Path(path).name or path


def model_card(
    config: Config,
    store: ParallelStore,
    *,
    command: str,
    step: int,
    scores: Mapping[str, float],
    signatures: Mapping[str, str],
    origin: Origin | None = None,
) -> str:
    """Return the model card in Markdown, with the hub's front matter."""
    report = store.report
    rows = "".join(
        f"| {name} | {value:.4g} | {signatures.get(name, '').replace('|', _BAR)} |\n"
        for name, value in scores.items()
    )
    title = model_title(config)
    load = "".join(f"{word} " for word in plugin_options(config.model.plugged.values()))
    base = hub_repo(Path(origin.name)) if origin else None
    text = " and ".join(_file_name(file) for file in config.data.training_files)
    front = front_matter(config, title=title, scores=scores, signatures=signatures, base_model=base)
    parts = [*(_origin_section(origin, config) if origin else []), *_plugged_section(config)]
    sections, provenance = ("".join(f"{line}\n" for line in lines) for lines in (parts, _provenance(config)))
    return f"""{front}
# {title}

An encoder-decoder Transformer trained with heedful for {step:,} steps.

## Use

```sh
heedful translate {load}path/to/this/directory < input.txt  # or a name on the hub: user/model
```

```python
from heedful import Translator

translator = Translator.load("path/to/this/directory")  # or download_bundle("user/model")
print(translator.translate(["..."]))
```

{sections}## Data

- training text: {text}
{provenance}- pairs read: {report.num_read:,}; used: {report.num_kept:,}; \
left out as empty: {report.num_empty:,}; as longer than {report.max_length} tokens: {report.num_too_long:,}
- fingerprint: `{store.fingerprint}`

## Scores on the validation set

Decoded metrics are of a greedy search over at most {config.valid.decode_sentences:,} sentences; \
they chose this model, so a test set will differ.

| metric | value | signature |
|---|---|---|
{rows}
## Command

```sh
{command}
```
"""


def _provenance(config: Config) -> list[str]:
    """Return a line for each corpus that says how it was made, and for a vocabulary of another model."""
    lines = []
    for corpus in config.data.corpora:
        if corpus.provenance:
            files = " and ".join(_file_name(file) for file in (corpus.pairs, corpus.src, corpus.tgt) if file)
            tag = f", with the tag `{corpus.tag}`" if corpus.tag else ""
            lines.append(f"- synthetic text, {files}{tag}: {corpus.provenance}")
    if config.tokenizer.bundle and not config.train.init:
        lines.append(f"- vocabulary: that of `{shared_name(config.tokenizer.bundle)}`")
    return lines


def _origin_section(origin: Origin, config: Config) -> list[str]:
    """Return the section on the base model, its training text, and the trained weights."""
    changed = "all weights"
    if config.lora.rank:
        layers = ", ".join(config.lora.targets)
        changed = f"low-rank adapters of rank {config.lora.rank} on {layers}, merged into the weights"
    if config.train.freeze:
        changed += f", except {', '.join(f'`{prefix}`' for prefix in config.train.freeze)}"
    return [
        "## Base model",
        "",
        f"- bundle: `{shared_name(origin.name)}`, weights `{origin.sha256}`",
        f"- its training text: {origin.data}",
        f"- trained here: {changed}",
        "",
    ]


def model_title(config: Config) -> str:
    """Return a title with the model's size: layers of encoder and decoder, and d_model."""
    model = config.model
    return f"Transformer {model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}"
