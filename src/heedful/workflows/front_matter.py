"""The YAML front matter of a model card, for the Hugging Face hub.

The keys are those of the hub's model card specification; `model-index` has the scores. Free text is a
double-quoted scalar, so that it is not misread (`no` is Norwegian, not false).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from heedful.config import Config, DataConfig

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

    Args:
        config: of the model, for its languages and the name of the validation text.
        title: the name of the model.
        scores: of the validation text; non-finite ones are omitted.
        signatures: of those scores that have one.
        base_model: the model on the hub that this one was made from, as `user/model`.
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
        lines += [
            f"    - {_metric(name, value, (signatures or {}).get(name))}" for name, value in finite.items()
        ]
    return "\n".join([*lines, "---", ""])


def _dataset(data: DataConfig) -> str:
    """Return the dataset of the scores: lines in local files, of type `text` on the hub."""
    files = [file for file in (data.valid_pairs, data.valid_src, data.valid_tgt) if file]
    split = ", split: validation" if files else ""  # else pairs of the training text
    files = files or [file for file in (data.pairs, data.src, data.tgt) if file]
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
        files = (config.data.src or "", config.data.tgt or "")
        codes = [Path(file.removesuffix(".gz")).suffix[1:] for file in files]
        codes = codes if set(codes) <= set(_ISO_639_1.split()) else []
    return list(dict.fromkeys(codes))


def _quoted(text: str) -> str:
    """Return a YAML scalar: a JSON string with unprintable characters escaped as in YAML."""
    letters = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in letters)
