"""Read a directory saved by transformers: settings, weights and tokenizer files, without executing code.

The files are documented at huggingface.co/docs/transformers and in its configuration classes. The library
itself is not needed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from torch import Tensor

from heedful.decoding.shortlist import Shortlist
from heedful.errors import InteropError
from heedful.interop.conversion import Settings, Tensors, Values, read_checkpoint
from heedful.interop.huggingface.adapters import merge_adapter
from heedful.interop.vocabulary import TypedSettings, first_file, read_bytes, read_settings
from heedful.settings.parsing import is_plain_name, shown
from heedful.settings.run import Config
from heedful.text import Tokenizer, TokenizerPair

CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
TOKENIZER_FILE, PIPELINE_FILE = "tokenizer_config.json", "tokenizer.json"
# Classes that say nothing about the texts of a model.
_ANY_CLASS = ("", "PreTrainedTokenizer", "PythonBackend", "TokenizersBackend")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that exists, whole or sharded
# Any of these shows that there is a tokenizer.
_TOKENIZER_FILES = (
    TOKENIZER_FILE,
    PIPELINE_FILE,
    "vocab.json",
    "merges.txt",
    "source.spm",
    "sentencepiece.bpe.model",
    "spiece.model",
)


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """The user's settings of an imported model; the files give all others.

    Attributes:
        settings: settings of the model, by key of `ModelConfig`.
        src_lang: the language of the source, if the model has several.
        tgt_lang: the language to translate into.
        ignored: unknown keys of the JSON files that do not change the outputs.
        vocabularies: files of source and target tokens; None: the model's own.
        task: a key of "task_specific_params" in config.json.
        adapter: the directory of a LoRA adapter of PEFT to merge into the weights.
    """

    settings: Settings
    src_lang: str | None = None
    tgt_lang: str | None = None
    ignored: Collection[str] = ()
    vocabularies: tuple[Path, Path] | None = None
    task: str | None = None
    adapter: Path | None = None


@dataclass(frozen=True)
class ImportedBundle:
    """An imported model with its tokenizers.

    Attributes:
        config: the configuration of the bundle.
        weights: the weights by heedful's names; each may be read only when it is used.
        tokenizers: the tokenizers; None if the model works on ids.
        notes: sentences for the user about what was not in the files.
        shortlist: the shortlist, if the files have one.
    """

    config: Config
    weights: Mapping[str, Tensor]
    tokenizers: TokenizerPair | None
    notes: tuple[str, ...] = ()
    shortlist: Shortlist | None = None


def tokenizer_section(tokenizers: TokenizerPair, *, joint: bool, source_eos: bool = True) -> Values:
    """Return the section `[tokenizer]` of an imported model."""
    src = tokenizers.src
    return {"kind": src.kind, "vocab_size": src.vocab_size, "joint": joint, "source_eos": source_eos}


@dataclass(frozen=True)
class PretrainedDirectory:
    """The JSON files of a directory, parsed.

    Attributes:
        path: the directory.
        config: the content of config.json.
        generation: the content of generation_config.json or, for older models, of config.json.
        generation_file: the name of that file.
        tokenizer: tokenizer_config.json merged with special_tokens_map.json; empty if there is none.
        options: the user's settings.
        prefix: the text before each source, if the task has one.
    """

    path: Path
    config: Settings
    generation: Settings
    generation_file: str
    tokenizer: Settings
    options: ImportOptions
    prefix: str | None = None

    def refuse(self, problem: str, *, file: str = CONFIG_FILE) -> NoReturn:
        """Raise an InteropError that names the file."""
        raise InteropError(f"{self.path / file}: {problem}")

    def typed(self, file: str = CONFIG_FILE) -> TypedSettings:
        """Return typed access to the settings of a file, except private ones such as `_name_or_path`."""
        files = {self.generation_file: self.generation, TOKENIZER_FILE: self.tokenizer}
        values = self.config if file == CONFIG_FILE else files[file]
        public = {key: value for key, value in values.items() if not key.startswith("_")}
        return TypedSettings(public, self.path / file)

    def read_bytes(self, name: str) -> bytes:
        """Return the contents of a file.

        Raises:
            InteropError: it is missing or too large.
        """
        try:
            return read_bytes(self.path / name)
        except InteropError as error:
            raise InteropError(f"{error}; copy the whole directory") from None

    def token(self, name: str, default: str) -> str:
        """Return the tokenizer's special token of a name such as "pad_token"."""
        return name_of_token(self.tokenizer.get(name, default)) or default

    def tokenizer_class(self, *known: str) -> str | None:
        """Return the class of the tokenizer, without "Fast", if a file names it: one of the family's classes.

        It is in the tokenizer's settings, or for many published models in config.json.

        Raises:
            InteropError: it is another class, which may frame and split texts otherwise.
        """
        for file in (TOKENIZER_FILE, CONFIG_FILE):
            typed = self.typed(file)
            name = (typed.text("tokenizer_class") or "").removesuffix("Fast")
            if name in known:
                return name
            is_any = name in _ANY_CLASS
            kind = shown(self.config.get("model_type"))
            typed.require(
                is_any, "tokenizer_class", f" is not supported for {kind}; there is {' or '.join(known)}"
            )
        return None

    @property
    def has_tokenizer(self) -> bool:
        """Whether there are tokenizer files, complete or not."""
        return first_file(self.path, _TOKENIZER_FILES) is not None

    def read_tensors(self) -> Tensors:
        """Return the weights, memory-mapped if the file allows it, with the adapter merged into them.

        Raises:
            InteropError: there are none, they cannot be read without executing code, or the adapter is not
                supported.
        """
        tensors: Tensors = {}
        for file in self._weight_files():
            tensors |= read_checkpoint(self.path / file).tensors
        adapter = self.options.adapter
        return tensors if adapter is None else merge_adapter(tensors, adapter)

    def _weight_files(self) -> list[str]:
        """Return the files of weights, which must be next to their index if there are several."""
        for name in _WEIGHTS:
            if (self.path / name).is_file():
                return [name]
            index = f"{name}.index.json"
            if (self.path / index).is_file():
                typed = TypedSettings(read_settings(self.path / index), self.path / index)
                files = list(typed.settings("weight_map").values())
                for file in files:
                    if not is_plain_name(file):
                        self.refuse(f"{shown(file)} is not the name of a file next to it", file=index)
                return sorted(set(files))
        self.refuse(f"there is neither {' nor '.join(_WEIGHTS)}; copy the whole directory", file="")


def name_of_token(token: object) -> str:
    """Return the text of a token, which files have as such or with its flags; "" if it is neither."""
    token = token.get("content") if isinstance(token, Mapping) else token
    return token if isinstance(token, str) else ""


def read_pretrained(path: Path, *, options: ImportOptions | None = None) -> PretrainedDirectory:
    """Read the JSON files of a directory.

    Args:
        path: the directory.
        options: the user's settings; the settings of a task override the search in the files.

    Raises:
        InteropError: it is not a directory of transformers, no file has an ignored key, or the model has no
            such task.
    """
    if not path.is_dir():
        problem = "is a file" if path.is_file() else "no such directory"
        raise InteropError(f"{path}: {problem}; give the directory that transformers' save_pretrained wrote")
    options = options or ImportOptions(settings={})
    bare = PretrainedDirectory(path, {}, {}, CONFIG_FILE, {}, options)
    config = read_settings(path / CONFIG_FILE)
    generation_file = GENERATION_FILE if (path / GENERATION_FILE).is_file() else CONFIG_FILE
    generation = read_settings(path / generation_file)
    for key in options.ignored:
        if key not in config | generation:
            bare.refuse(f"--ignore {shown(key)}: there is no such key; leave it out")
    tokenizer: Values = {}
    for name in ("special_tokens_map.json", TOKENIZER_FILE):
        if (path / name).is_file():
            tokenizer |= read_settings(path / name)
    params = _task(bare, config)
    prefix = TypedSettings(params, path / CONFIG_FILE).text("prefix") or ""
    params.pop("prefix", None)
    return PretrainedDirectory(
        path=path,
        config=config | params,
        generation=generation | params,
        generation_file=generation_file,
        tokenizer=tokenizer,
        options=options,
        prefix=prefix if prefix.strip() else None,
    )


def _task(bare: PretrainedDirectory, config: Settings) -> Values:
    """Return the settings of a task; without one, the text that the model has before each source."""
    name = bare.options.task
    if name is None:
        return {"prefix": config.get("prefix")}
    typed = TypedSettings(config, bare.path / CONFIG_FILE)
    tasks = TypedSettings(typed.settings("task_specific_params"), typed.file)
    if not (task := tasks.settings(name)):
        bare.refuse(f"--task {name}: not a task of this model; it has {', '.join(tasks.values) or 'none'}")
    return dict(task)


def tag_of(
    directory: PretrainedDirectory,
    tokenizer: Tokenizer,
    key: str,
    *,
    usual: str | None = None,
    default_id: int | None = None,
) -> str:
    """Return the tag of a language, as a token: the option's, or else `generate`'s, or the tokenizer's.

    Args:
        directory: its options or tokenizer_config.json may name the language.
        tokenizer: the tokenizer with the tags.
        key: "src_lang" or "tgt_lang".
        usual: the default language.
        default_id: the id that `generate` begins outputs with, if it is a tag's.

    Raises:
        InteropError: the language is not specified, or invalid.
        TokenizerError: there is no such tag; the message names close ones.
    """
    name = getattr(directory.options, key)
    if name is None and (default_id is None or tokenizer.tokens([default_id])[0] not in tokenizer.tags()):
        name = directory.typed(TOKENIZER_FILE).text(key) or usual
    tag_id = tokenizer.tag_id(name) if name else default_id
    if tag_id is None:
        problem = f"{key} is missing; give --{key.replace('_', '-')}, the language of the texts"
        directory.refuse(problem, file=TOKENIZER_FILE)
    if tag_id >= tokenizer.vocab_size:
        directory.refuse(f"{key} has id {tag_id:,}, but the tokenizer {tokenizer.vocab_size:,} ids")
    return tokenizer.tokens([tag_id])[0]
