"""The options of the tasks that a command and Python share: a frozen dataclass for each.

A verb adds to them what only a command line has, and its help. Nothing heavy is imported here, for `--help`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from heedful.data.streams import is_text
from heedful.errors import OptionError, refuse_if
from heedful.settings.options import (
    KEEPING,
    OUTPUT,
    OUTPUTS,
    PRESET,
    RUN,
    TEXT,
    TOKENIZE,
    AdapterOfBase,
    BleuTokenizer,
    Ensemble,
    File,
    Keep,
    Languages,
    Option,
    Overwrite,
    Prefix,
    Remove,
    Run,
    Runtime,
    Settings,
    ShortlistFile,
    ValidSrc,
    ValidTgt,
    settings_like,
)

SHORTLIST = "shortlist.safetensors"
METRICS_SHOWN = "bleu,chrf"
# The tables are in evaluation/metrics.py and interop/layouts.py, which a help text has no time to import; a
# test holds these names against them.
METRICS = "bleu, chrf, chrf++, spbleu, ter, wer, cer, item_error_rate, per, exact, comet=MODEL"
LAYOUTS = (
    "ctranslate2, argos, marian-native, marian, m2m100, bart, fsmt, pegasus, blenderbot, t5, t5gemma, "
    "opennmt-py, eole, fairseq, torch, annotated, abhishek-thread, nptel-lecture, kaggle-notebook, "
    "adeveloperdiary, jadore, jadore-prj"
)
Notify = Callable[[str], None]  # takes lines about the progress
Search = Mapping[str, Any]  # changes of the model's own search, as for `Translator.translations`


def say_nothing(message: str) -> None:
    """Take a line about the progress that nobody reads."""


@dataclass(frozen=True, kw_only=True)
class TranslationOptions:
    """What is translated, into what, and how."""

    source: Annotated[
        str | None,
        Option(
            "Lines to translate; .gz too. Or shards, text or Parquet: a directory, a pattern such as "
            "'news/*.gz', or a URL.",
            default="stdin",
            metavar="PATH",
            flags=("--input", "-i"),
        ),
    ] = None
    output: Annotated[
        str | None,
        Option(
            "The output file; for shards or a directory of documents, the output directory.",
            default="stdout",
            metavar="PATH",
            flags=OUTPUT,
        ),
    ] = None
    document: Annotated[
        Path | None,
        Option(
            "Translate a document, for example .docx or .html, or all documents of a directory with its "
            "subdirectories; see docs/documents.md. In a directory, other files are copied; hidden files and "
            "links that lead out of it are left out.",
            metavar="PATH",
        ),
    ] = None
    resume: Annotated[
        bool, Option("Go on where an earlier run with the same --output was interrupted, if there was one.")
    ] = False
    overwrite: Annotated[
        bool,
        Option(
            "Write shards or documents into a directory that has files, in place of the same names.",
            is_common=False,
        ),
    ] = False
    column: Annotated[
        str | None,
        Option(
            "The text column of Parquet shards. For CSV or TSV documents: column names or numbers, "
            "comma-separated.",
            metavar="NAME",
            default="text for shards",
            is_common=False,
        ),
    ] = None
    on: Annotated[
        str,
        Option(
            "Where shards are translated. here: in this process; ray: on a Ray cluster, or on all cores of "
            "this machine if there is none.",
            metavar="here|ray",
            is_common=False,
        ),
    ] = "here"
    n_best: Annotated[
        int, Option("Outputs per line; if above 1, printed as `number ||| text ||| score`.", minimum=1)
    ] = 1
    scores: Annotated[bool, Option("Print lines of `score<TAB>text`.")] = False
    json: Annotated[
        bool, Option("Print a JSON object for each line; of a directory of documents, what was done.")
    ] = False
    line_buffered: Annotated[
        bool,
        Option(
            "Translate and flush each line at once, for use as a coprocess; slower. By default, 1,024 "
            "lines are translated together, unless the input is a terminal.",
            is_common=False,
        ),
    ] = False
    ensemble: Ensemble = None
    languages: Languages = field(default_factory=Languages)
    search: Search = field(default_factory=dict)
    prefix: Prefix = None
    shortlist: ShortlistFile = None
    adapter: AdapterOfBase = None
    glossary: Annotated[
        Path | None,
        Option(
            "Terms that translations must use: lines of a source term, a tab, and its target forms, with | "
            "between them; or a .csv or .xlsx with these columns.",
            OUTPUTS,
            metavar="FILE",
            is_common=True,
        ),
    ] = None
    glossary_report: Annotated[
        Path | None,
        Option(
            "Write the terms of each line, and which of them are met.",
            metavar="FILE",
            is_file=True,
            is_common=False,
        ),
    ] = None
    memory: Annotated[
        list[Path] | None,
        Option(
            "Translation memory in TMX: a text with an exact match is translated as there; repeatable.",
            OUTPUTS,
            metavar="FILE",
            is_common=True,
        ),
    ] = None
    to_tmx: Annotated[
        Path | None,
        Option(
            "Write texts and translations as a translation memory too.",
            metavar="FILE",
            is_file=True,
            is_common=False,
        ),
    ] = None
    markup: Annotated[
        Literal["html", "xml", "auto"] | None,
        Option(
            "Keep the tags inside lines, at the words that they belong to. auto: a line with a tag or an "
            "entity is HTML, any other is text."
        ),
    ] = None
    through: Annotated[
        Path | None,
        Option(
            "A model that translates each text first, into the language that RUN reads. A memory and a "
            "glossary then match what it returns.",
            metavar="MODEL",
        ),
    ] = None
    keep: Annotated[
        list[str] | None,
        Option(
            "What else stays as it is: a regular expression, or the forms of a program by its name, such as "
            "unity or wordpress (docs/documents.md lists them); repeatable.",
            KEEPING,
            metavar="PATTERN|NAME",
        ),
    ] = None
    keep_file: Annotated[
        Path | None,
        Option(
            "A TOML file with more of what --keep takes: lists by the ending of files, such as "
            "md = ['SKU-[0-9]+'], and for all of them: all = ['unity'].",
            KEEPING,
            metavar="FILE",
        ),
    ] = None
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """How outputs are scored, and how models are loaded and search."""

    metric: Annotated[
        str,
        Option(
            f"{METRICS}, or a metric of a plugin, PLUGIN:NAME; comma-separated.",
            metavar="NAMES",
        ),
    ] = METRICS_SHOWN
    tokenize: Annotated[BleuTokenizer, Option(TOKENIZE)] = "auto"
    lowercase: Annotated[bool, Option("Ignore case.")] = False
    resamples: Annotated[
        int,
        Option(
            "Bootstrap resamples for confidence intervals and p-values; 0 disables both.",
            minimum=0,
            maximum=100_000,
        ),
    ] = 1000
    languages: Languages = field(default_factory=Languages)
    search: Search = field(default_factory=dict)
    shortlist: ShortlistFile = None
    adapter: AdapterOfBase = None
    ensemble: Ensemble = None
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True, kw_only=True)
class ComparedSystems:
    """What is scored, and against what."""

    run: Annotated[Path | None, RUN] = None
    src: Annotated[
        Path | None, Option("Source lines; .gz too. Needed to translate, and for item_error_rate and per.")
    ] = None
    ref: Annotated[
        list[Path], Option("Reference lines; repeatable, for several references.", metavar="<path>")
    ]
    hyp: Annotated[
        list[Path] | None,
        Option("Score the outputs in this file; give it again for more systems.", metavar="<path>"),
    ] = None
    compare: Annotated[
        list[Path] | None,
        Option(
            "Another run or bundle, or a file of outputs, to compare with the first system; give it again "
            "for more.",
            metavar="OTHER",
        ),
    ] = None
    calibrate: Annotated[
        bool,
        Option("Fit the confidence of RUN to these lines, which it was not trained on, and store it in RUN."),
    ] = False
    output: Annotated[
        Path | None, Option("Write the outputs of RUN to this file.", flags=OUTPUT, is_file=True)
    ] = None


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(ScoringOptions, ComparedSystems):
    """What is scored, against what, and how."""

    def __post_init__(self) -> None:
        """Check that there is something to score.

        Raises:
            OptionError: neither a run nor a file of outputs, or an option of a run without one.
        """
        if self.run is not None:
            return
        refuse_if(
            (not self.hyp, "nothing to score: give RUN, or a file of outputs with --hyp"),
            (self.calibrate, "--calibrate is for RUN, and there is none"),
            (self.output is not None, "--output is for the outputs of RUN, and there is none"),
        )
        changed = vars(self.runtime).items() - vars(Runtime()).items()
        of_models = {
            **self.search,
            "shortlist": self.shortlist,
            "ensemble": self.ensemble,
            "src_lang": self.languages.src_lang,  # scores depend on tgt_lang too
            **dict(sorted(changed)),
        }
        used = [name for name, value in of_models.items() if value is not None]
        if used and all(map(is_text, self.compare or ())):
            raise OptionError(f"--{used[0].replace('_', '-')} is for translating, and no RUN translates")


@dataclass(frozen=True, kw_only=True)
class ShortlistOptions:
    """What a shortlist is learned from, and how."""

    run: Run
    src: Annotated[Path, Option("Source lines, such as the training text; .gz too.")]
    tgt: Annotated[Path, Option("Their translations, line by line.")]
    output: Annotated[
        Path | None, Option("The file to write.", default=f"{SHORTLIST} in RUN", flags=OUTPUT, is_file=True)
    ] = None
    candidates: Annotated[int, Option("Number of likely target tokens per source token.", minimum=0)] = 100
    frequent: Annotated[int, Option("Number of frequent target tokens in each shortlist.", minimum=0)] = 100
    pairs: Annotated[
        int, Option("Maximum number of lines to learn from, spread over the text.", minimum=1)
    ] = 200_000
    check: Annotated[
        Path | None,
        Option("Sentences to translate with and without the shortlist, to compare.", metavar="FILE"),
    ] = None
    search: Search = field(default_factory=dict)
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True, kw_only=True)
class SyntheticOptions:
    """How text is translated, the pairs are filtered, and a model is trained on them."""

    output: Annotated[
        Path, Option("The run directory; the translations are in its folder synthetic.", flags=OUTPUT)
    ]
    config: Annotated[
        Path | None, Option("A recipe of the training, or a run's config.toml.", metavar="CONFIG.toml")
    ] = None
    preset: Annotated[str | None, PRESET] = None
    settings: Annotated[
        Settings, settings_like("A setting of the training, for example train.max_minutes=20; repeatable.")
    ] = ()
    resume: Annotated[
        bool, Option("Go on with the translation or training that was interrupted, if there was one.")
    ] = False
    overwrite: Overwrite = False
    valid_src: ValidSrc = None
    valid_tgt: ValidTgt = None
    weight: Annotated[
        float | None,
        Option("Synthetic pairs for each pair that people translated.", TEXT, above=0, default="by size"),
    ] = None
    keep: Keep = None
    remove: Remove = None
    languages: Languages = field(default_factory=Languages)
    search: Search = field(default_factory=dict)
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True, kw_only=True)
class DistillOptions(SyntheticOptions):
    """The training of a student on the translations of its teachers."""

    teachers: Annotated[
        list[Path],
        Option(
            "Runs, bundles, or USER/MODEL[@REVISION] on the hub; several translate together.",
            metavar="TEACHER...",
            is_argument=True,
        ),
    ]
    src: Annotated[Path, Option("Source text; .gz too.", TEXT)]
    tgt: Annotated[
        Path | None, Option("Its translations by people, to train on them too; parallel line by line.", TEXT)
    ] = None

    makes_sources: ClassVar[bool] = False  # of the pairs to train on; their targets
    tag: ClassVar[str] = ""

    @property
    def parts(self) -> tuple[Sequence[Path], Path, Path | None, Path | None]:
        """The models, their text, a file of the language of the translations, the model of the vocabulary."""
        return self.teachers, self.src, self.tgt or self.valid_tgt, self.teachers[0]

    def __post_init__(self) -> None:
        """Check that there is a teacher, and something that a weight is weighed against.

        Raises:
            OptionError: there is not.
        """
        refuse_if(
            (not self.teachers, "no teacher: give a run or a bundle"),
            (self.weight is not None and self.tgt is None, "--weight needs --tgt, the pairs of weight 1"),
        )


@dataclass(frozen=True, kw_only=True)
class BackTranslationOptions(SyntheticOptions):
    """The training on pairs, and on text of the target language with translations as sources."""

    model: Annotated[
        Path,
        Option(
            "A model of the other direction: a run, a bundle, or USER/MODEL[@REVISION] on the hub.",
            metavar="REVERSE_MODEL",
            is_argument=True,
        ),
    ]
    mono: Annotated[Path, Option("Text of the target language; .gz too.", TEXT)]
    src: Annotated[Path, Option("Source of the text that people translated; .gz too.", TEXT)]
    tgt: Annotated[Path, Option("Its translations by people, parallel line by line.", TEXT)]
    tag: Annotated[str, Option("Token before each synthetic source; '' for none.", TEXT)] = "<BT>"
    makes_sources: ClassVar[bool] = True

    @property
    def parts(self) -> tuple[Sequence[Path], Path, Path | None, Path | None]:
        """As for `DistillOptions`; the training makes a new vocabulary."""
        return [self.model], self.mono, self.src, None


@dataclass(frozen=True, kw_only=True)
class ModelImport:
    """Import a model of another implementation.

    No code in the files is executed. The bundle gives the same logits; docs/interop.md and docs/systems.md
    describe the layouts.

    Examples:
        heedful import Helsinki-NLP/opus-mt-en-de -o opus
    """

    source: Annotated[
        File,
        Option(
            "A file from torch.save, or .safetensors. A directory of transformers, CTranslate2 or Eole. An "
            "Argos package. Marian's model.npz or .bin, or a directory or .zip with one. OpenNMT-py's .pt. "
            "A LoRA adapter of PEFT, which is merged. Or the id of a model on the hub.",
            metavar="SOURCE",
            is_argument=True,
        ),
    ] = field(kw_only=False)
    output: Annotated[File, Option("The bundle to write.", flags=OUTPUT)]
    layout: Annotated[
        str | None,
        Option(
            f"The system that wrote the weights. Needed if several fit: {LAYOUTS}, or a layout "
            "of a plugin, PLUGIN:NAME.",
            metavar="NAME",
            default="recognised",
        ),
    ] = None
    settings: Annotated[
        Settings,
        settings_like("A setting that is not in the weights, for example model.num_heads=8; repeatable."),
    ] = ()
    src_vocab: Annotated[
        File | None, Option("For a file: source tokens by id, one per line, or .json. Without it, ids only.")
    ] = None
    tgt_vocab: Annotated[File | None, Option("The same for target tokens.")] = None
    src_lang: Annotated[
        str | None, Option("For a multilingual model: the source language.", metavar="LANG")
    ] = None
    tgt_lang: Annotated[str | None, Option("The language to translate into.", metavar="LANG")] = None
    task: Annotated[
        str | None,
        Option(
            "For a directory of transformers: one of its task_specific_params, such as "
            "translation_en_to_de for T5. Each source is preceded by the task's text.",
            metavar="NAME",
        ),
    ] = None
    base: Annotated[
        File | None,
        Option(
            "For a LoRA adapter of PEFT: the directory or hub id of its base model.",
            metavar="DIR",
            default="as adapter_config.json says",
        ),
    ] = None
    lang_dict: Annotated[
        File | None,
        Option(
            "For a multilingual model of fairseq: its languages in their order, one per line. Without it, "
            "the checkpoint's arguments say them.",
            metavar="FILE",
        ),
    ] = None
    ignore: Annotated[
        Sequence[str],
        Option(
            "A key of config.json that is unknown here and only describes text; repeatable.", metavar="KEY"
        ),
    ] = ()
    notify: Callable[[str], object] | None = None


@dataclass(frozen=True, kw_only=True)
class ModelExport(Languages):
    """Export a model for another system.

    ctranslate2: a directory for ctranslate2.Translator. marian: one for transformers' MarianMTModel and
    MarianTokenizer. t5gemma: one for its T5Gemma classes. onnx: an encoder and a decoder step for ONNX
    Runtime. The README.md in the directory shows its use. Models that the system does not support are refused
    before anything is written.

    Examples:
        heedful export runs/en-de --to ctranslate2 -o en-de-ct2
    """

    bundle: Annotated[File, RUN] = field(kw_only=False)
    to: Annotated[str, Option("The system to export for.", metavar="ctranslate2|marian|onnx|t5gemma")]
    output: Annotated[File, Option("The directory to create.", flags=OUTPUT)]
    quantization: Annotated[
        str | None,
        Option(
            "Type of the weights, for ctranslate2: int8, int8_float32, int8_float16, int8_bfloat16, int16, "
            "float16, bfloat16.",
            metavar="TYPE",
            default="float32",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DocumentAlignment:
    """Find sentence pairs in documents of two languages.

    The documents have any formats that `translate --document` reads, also different ones. Two belong
    together if they have the same path and name without ending and language: guide/index.en.html with
    --src-lang en, and guide/index.de.docx with --tgt-lang de. Sentences are aligned by words, lengths and
    structure. What is missing or added on one side is left out; another order is no obstacle. docs/pairs.md
    says how, and how well.

    Examples:
        heedful pairs site/en site/de -o pairs.tsv --valid valid.tsv --test test.tsv
    """

    source: Annotated[
        File,
        Option(
            "A directory of documents in the source language, or one document.",
            metavar="SOURCE",
            is_argument=True,
        ),
    ] = field(kw_only=False)
    target: Annotated[
        File, Option("The directory or document with their translations.", metavar="TARGET", is_argument=True)
    ] = field(kw_only=False)
    output: Annotated[
        File,
        Option(
            "The pairs, a table for `train --pairs` with source, target, confidence, document and place.",
            metavar="PAIRS.tsv",
            flags=OUTPUT,
        ),
    ]
    valid: Annotated[
        File | None,
        Option("Write the pairs of some of the documents here instead, for validation.", metavar="VALID.tsv"),
    ] = None
    test: Annotated[
        File | None,
        Option("Write the pairs of some other documents here, for a test.", metavar="TEST.tsv"),
    ] = None
    held_out: Annotated[
        float,
        Option(
            "The share of the documents for --valid, and for --test.",
            minimum=0.0,
            maximum=0.4,
            is_common=False,
        ),
    ] = 0.1
    left_out: Annotated[
        File | None,
        Option(
            "Write the documents and sentences that are in no pair here, with reasons.", metavar="LEFT.tsv"
        ),
    ] = None
    min_confidence: Annotated[
        float, Option("The least probability that a pair is right.", minimum=0.5, maximum=1.0)
    ] = 0.8
    bridge: Annotated[
        File | None,
        Option(
            "A model for these languages, whose translations are compared with the target.", metavar="MODEL"
        ),
    ] = None
    src_lang: Annotated[
        str | None, Option("Code of the source language in names of files, such as en.", metavar="CODE")
    ] = None
    tgt_lang: Annotated[
        str | None, Option("Code of the target language in names of files.", metavar="CODE")
    ] = None
    on_progress: Callable[[str, float], object] | None = None


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Compare a model with its own record.

    Compares checksums of the weights, the tokens of the recorded sentences, what each layer returns, and the
    outputs of each engine and precision that runs here. "near" is what rounding explains. Exit code 1: a part
    differs.

    Examples:
        heedful verify runs/en-de
        heedful verify runs/en-de --write --src important.en
    """

    run: Annotated[File, RUN] = field(kw_only=False)
    write: Annotated[bool, Option("Record what the model says now, then compare.")] = False
    src: Annotated[
        File | None,
        Option("With --write: sentences to record, 200 at most.", default="words of the vocabulary"),
    ] = None
    on_progress: Callable[[str, float], object] | None = None
