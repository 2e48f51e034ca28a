"""Translate what a task says: a file of lines, a document, or a directory of shards or documents.

How each is written and resumed is in `bulk/`.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Unpack

from heedful.bulk.folders import folder_at
from heedful.bulk.lines import LineLayout, LineTranslation, MarkedLines
from heedful.bulk.manifest import Display, no_display
from heedful.bulk.memories import open_lookup, open_term_report
from heedful.bulk.shards import Outcome, list_shards, open_job, run_job
from heedful.data.streams import Lines, open_input
from heedful.decoding.glossary import Glossary
from heedful.decoding.options import search_options
from heedful.decoding.translator import Translator
from heedful.documents.formats import TEXT, format_of, refuse_documents
from heedful.errors import OptionError, refuse_if
from heedful.runtime.durable import is_replaceable
from heedful.settings.arguments import checked
from heedful.settings.options import Languages, options_of
from heedful.storage.description import CONFIG_FILE, file_sha256
from heedful.tasks.keywords import TranslationKeywords
from heedful.tasks.loading import from_keywords, load_translator, refuse_options_of_models
from heedful.tasks.options import Notify, TranslationOptions, say_nothing
from heedful.tasks.output_checks import check_output, check_outputs_differ

_EMPTY = "{}: the path is empty; give one, or leave the option out"
_PATTERN = re.compile(r"[*?[]")


@checked
def translate_file(
    model: Translator | str | Path,
    input: str | Path,
    output: str | Path,
    *,
    document: bool | None = None,
    notify: Notify = say_nothing,
    **options: Unpack[TranslationKeywords],
) -> None:
    """Translate a file, a document or a directory into another one: `heedful translate`.

    >>> heedful.translate_file(translator, "test.en", "out.de", beam_size=1)
    >>> print(Path("out.de").read_text(encoding="utf-8").splitlines()[0])
    Das Haus ist klein.

    The output has its name when it is complete. With `resume=True`, a later call goes on where an earlier one
    was interrupted.

    Args:
        model: a translator, or the path of a run or bundle.
        input: lines, .gz too; shards: a directory, a pattern such as "news/*.gz", or a URL; or documents.
        output: the file; for a directory or a pattern, the directory.
        document: whether the input is a document, or a directory of documents. None: by the name of a file;
            a .docx is one, a .txt has lines.
        notify: called with lines about the progress.
        options: options of the command, by the same names: resume, overwrite, n_best, scores, json, prefix,
            glossary, memory, to_tmx and others; options of the search, such as beam_size=1. For a path also
            precision, threads, src_lang, shortlist and others that a `Translator` has already.

    Raises:
        BundleError: no usable bundle.
        CorpusError: a bad line, after those before it are written.
        InputError: options that do not exist or contradict each other, or a file that cannot be used.
        RunError: an earlier output has other settings, or some shards or documents have failed.
    """
    source = str(input)
    if document is None:
        document = format_of(source) not in (None, TEXT)
    where = {"document": Path(source)} if document else {"source": source}
    if isinstance(model, Translator):
        refuse_options_of_models(options)
    task = from_keywords(TranslationOptions, options, translate_file, output=str(output), **where)
    model = model if isinstance(model, Translator) else Path(model)
    if (outcome := translate(model, task, notify=notify)) is not None:
        outcome.raise_if_failed()


def translate(
    model: Translator | Path,
    options: TranslationOptions,
    *,
    notify: Notify,
    display: Display = no_display,
) -> Outcome | None:
    """Translate; every output is complete or absent.

    Args:
        model: the models, or the path of a run or bundle, which is loaded.
        options: what to translate, and how.
        notify: called with lines about the progress.
        display: shows the progress.

    Returns:
        The outcome of a directory (failures are listed, not raised); None for one file.

    Raises:
        OptionError: options that contradict each other.
        CorpusError: a bad line, after those before it are written.
        HeedfulError: a model, a file or an earlier output that cannot be used.
    """
    is_kept = options.keep is not None or options.keep_file is not None
    in_lines = is_kept and options.document is None
    refuse_if(
        (options.scores and options.json, "--scores and --json exclude each other; JSON holds the scores"),
        (options.memory and options.prefix is not None, "--memory and --prefix exclude each other"),
        (options.markup and options.prefix is not None, "--markup and --prefix exclude each other"),
        (is_kept and options.prefix is not None, "--keep and --prefix exclude each other"),
        (options.through and options.to_tmx is not None, "--through and --to-tmx exclude each other"),
        (options.markup and options.to_tmx is not None, "--markup and --to-tmx exclude each other"),
        (in_lines and options.to_tmx is not None, "--keep and --to-tmx exclude each other for lines"),
        (options.resume and options.to_tmx is not None, "--to-tmx needs a run that is not resumed"),
        (options.source == "", _EMPTY.format("--input")),
        (options.output == "", _EMPTY.format("--output")),
    )
    task = _Task(model, options, notify, display)
    if options.document is not None:
        return task.documents(options.document)
    if options.on != "here" or (options.source is not None and _are_shards(options.source)):
        return task.shards()
    task.lines()
    return None


def _are_shards(source: str) -> bool:
    """Return whether an input is shards: a directory, a pattern, a URL or a Parquet file."""
    path = Path(source)
    is_pattern = _PATTERN.search(source) is not None and not path.exists()
    return is_pattern or "://" in source or source.endswith(".parquet") or path.is_dir()


@dataclass(frozen=True)
class _Task:
    model: Translator | Path
    options: TranslationOptions
    notify: Notify
    display: Display

    def lines(self) -> None:
        """Translate a file or stdin; the lines before a bad one come out."""
        options = self.options
        ends_in_slash = (options.output or "").endswith(("/", os.sep))  # which a path does not keep
        has_terms = options.glossary is not None and not options.resume
        refuse_if(
            (options.column, "--column is for Parquet shards, and this is a file of lines"),
            (ends_in_slash, f"{options.output}: is a directory; give the name of a file"),
            (
                options.glossary_report is not None and not has_terms,
                "--glossary-report needs --glossary, and a run that is not resumed",
            ),
        )
        source, output = Path(options.source or "-"), None if options.output is None else Path(options.output)
        if options.source is not None:
            refuse_documents([options.source])
        self._check_outputs([source, options.prefix])
        cannot = options.line_buffered or not is_replaceable(output)
        refuse_if(
            (options.resume and cannot, "--resume needs --output, the name of a file, and no --line-buffered")
        )
        with ExitStack() as stack:
            lines, prefixes = Lines(*stack.enter_context(open_input(source))), None
            if options.prefix is not None:
                prefixes = Lines(*stack.enter_context(open_input(options.prefix)))
            translation = self._translation(stack)
            if options.glossary is not None:
                report = open_term_report(options.glossary_report, notify=self.notify)
                translation = replace(translation, terms=stack.enter_context(report))
            translation.write(
                lines,
                output,
                prefixes=prefixes,
                resume=options.resume,
                line_buffered=options.line_buffered,
                notify=self.notify,
                display=self.display,
            )

    def documents(self, document: Path) -> Outcome | None:
        """Translate a document, or all documents of a directory."""
        options, is_folder = self.options, document.is_dir()
        lines_only = (
            "source",
            "prefix",
            "scores",
            "n_best",
            "line_buffered",
            "on",
            "glossary_report",
            "markup",
        )
        self._refuse((*lines_only, *([] if is_folder else ["json"])), "--document and {} exclude each other")
        if options.output is None:
            raise OptionError("--document needs --output, the name of the translated document")
        from heedful.bulk import documents  # 0.1 s

        output = Path(options.output)
        files = documents.list_documents(document, options.output) if is_folder else None
        if files is None:
            is_file, is_same = is_replaceable(output), output.suffix.lower() == document.suffix.lower()
            refuse_if(
                (str(document) == "-", "--document needs the name of a file; text of stdin needs no option"),
                (is_file and not is_same, f"{output}: must end in {document.suffix}, as the document does"),
                (options.resume and not is_file, "--resume needs --output, the name of a file"),
            )
        self._check_outputs([document] if files is None else [files.path / name for name in files.documents])
        with ExitStack() as stack:
            job = documents.DocumentJob(
                source=str(document.parent if files is None else files.path),
                output=str((output.parent if files is None else output).absolute()),
                load=lambda: self._translation(stack),
                column=options.column,
                resume=options.resume,
                notify=self.notify,
            )
            if files is None:
                job.translate_file(document, output, display=self.display)
                return None
            return documents.translate_folder(job, files, overwrite=options.overwrite, display=self.display)

    def shards(self) -> Outcome:
        """Translate the files of a directory into another one."""
        options, on_ray = self.options, self.options.on == "ray"
        if options.source is None or options.output is None:
            raise OptionError("shards need --input and --output, both directories")
        files_only = ("prefix", "line_buffered", "memory", "glossary_report", "to_tmx")
        self._refuse(files_only, "{} is for single files, not for shards")
        is_loaded = on_ray and isinstance(self.model, Translator)
        refuse_if(
            (options.on not in ("here", "ray"), f"--on {options.on}: must be here or ray"),
            (is_loaded, "--on ray: each process loads the model; give the path of the run or bundle"),
        )
        from heedful.bulk.text_shards import TextShards  # 0.1 s

        folder, sizes = list_shards(options.source)
        refuse_documents([f"{folder.url}/{name}" for name in sizes])
        is_parquet = any(name.endswith(".parquet") for name in sizes)
        is_of_text = options.json or options.n_best > 1
        refuse_if(
            (is_parquet and is_of_text, "--json and --n-best are for text; Parquet shards get a column"),
            (
                is_parquet and options.output.endswith(".parquet"),
                f"{options.output}: Parquet files are written into a directory; name one in --output",
            ),
        )
        output = folder_at(options.output)
        load = partial(_load, self.model, options, self.notify)
        job = TextShards(
            source=folder.location,
            output=output.location,
            load=self._loading_elsewhere() if on_ray else load,
            column=options.column or "text",
        )
        return run_job(
            job,
            open_job(job, sizes, resume=options.resume, overwrite=options.overwrite),
            ray_cpus=options.runtime.threads or 1 if on_ray else 0,
            ray_gpus=int(options.runtime.device == "cuda"),
            display=self.display,
        )

    def _refuse(self, names: Iterable[str], message: str) -> None:
        """Refuse options that are not left at their defaults; `message` has {} for the flag."""
        for name in names:
            if getattr(self.options, name) != getattr(TranslationOptions, name):
                flags = options_of(TranslationOptions)[name].flags_of(name)
                raise OptionError(message.format(flags[0]))

    def _translation(self, stack: ExitStack) -> LineTranslation:
        """Return how lines are translated, with the memories, which are read and written in the stack."""
        options, lines = self.options, _load(self.model, self.options, self.notify)
        if not options.memory and options.to_tmx is None:
            return lines
        config, memories = lines.translator.bundle.config, options.memory or ()
        lookup = open_lookup(memories, config, written=options.to_tmx, notify=self.notify)
        return replace(lines, lookup=stack.enter_context(lookup))

    def _loading_elsewhere(self) -> Callable[[], LineTranslation]:
        """Return how other processes load the models: by absolute paths, with one thread each by default."""
        options = self.options

        def absolute(path: Path) -> Path:
            return path.absolute() if path.exists() else path

        there = replace(
            options,
            shortlist=options.shortlist and absolute(options.shortlist),
            adapter=options.adapter and absolute(options.adapter),
            glossary=options.glossary and absolute(options.glossary),
            keep_file=options.keep_file and absolute(options.keep_file),
            through=options.through and absolute(options.through),
            ensemble=[absolute(path) for path in options.ensemble or ()],
            runtime=replace(options.runtime, threads=options.runtime.threads or 1),
        )
        assert isinstance(self.model, Path)  # a loaded one is refused
        return partial(_load, absolute(self.model), there)

    def _check_outputs(self, inputs: Sequence[Path | None]) -> None:
        """Refuse files that cannot be written, that are inputs, or that are another output too."""
        options, output = self.options, None
        if options.output is not None:
            output = Path(options.output)
        files = {
            "--output": output,
            "--glossary-report": options.glossary_report,
            "--to-tmx": options.to_tmx,
        }
        check_outputs_differ(files)
        if options.document is not None and options.document.is_dir():
            del files["--output"]
        inputs = [*inputs, options.shortlist, options.glossary, options.keep_file, *(options.memory or ())]
        models = [*(options.ensemble or ()), *([options.through] if options.through else [])]
        if isinstance(self.model, Translator):
            bundles = (self.model.bundle, *self.model.ensemble)
            models += [bundle.path for bundle in bundles if bundle.path is not None]
        else:
            models.append(self.model)
        for option, file in files.items():
            if file is not None or option == "--output":
                check_output(file, inputs=inputs, models=models)


def _load(
    model: Translator | Path,
    options: TranslationOptions,
    notify: Notify = say_nothing,
) -> LineTranslation:
    """Load the models of a task, unless they are; return how they translate lines."""
    translator, keep = model, None
    if options.keep or options.keep_file is not None:
        from heedful.tasks.keep_rules import keep_rules  # and the pipeline of texts with marks

        keep = keep_rules(options.keep, options.keep_file)
    if not isinstance(translator, Translator):
        translator = load_translator(
            translator,
            options.languages,
            options.runtime,
            shortlist=options.shortlist,
            adapter=options.adapter,
            ensemble=options.ensemble or (),
            notify=notify,
        )
    search = search_options({**options.search, "n_best": options.n_best}, translator.bundle.config.decode)
    if options.glossary is not None:
        glossary = Glossary.load(options.glossary)
        glossary.check_writable(translator.bundle.tokenizers.tgt, str(options.glossary))
        search = replace(search, glossary=glossary)
    layout = LineLayout(
        json=options.json,
        scores=options.scores,
        n_best=options.n_best,
        terms=options.glossary is not None,
        memory=bool(options.memory),
    )
    shortlist = None if options.shortlist is None else file_sha256(options.shortlist)
    further: dict[str, object] = {"prefix": options.prefix is not None, "shortlist": shortlist}
    if options.adapter is not None:
        further["adapter"] = translator.adapters[str(options.adapter)].sha256
    if options.memory:
        further["memory"] = [file_sha256(memory) for memory in options.memory]
    through: Translator | None = None
    if options.through is not None:
        through = load_translator(options.through, Languages(), options.runtime, notify=notify)
        assert through.bundle.path is not None
        further["through"] = file_sha256(through.bundle.path / CONFIG_FILE)
    marked: MarkedLines | None = None
    if keep is not None:
        further["keep"] = keep
    if options.markup is not None or keep is not None:
        from heedful.tasks.marked_lines import LineMarkup  # what reads tags, which plain lines do not need

        own = () if keep is None else keep.of(options.source or "lines.txt")
        marked = LineMarkup(options.markup or "text", translator, search, through, own)
        further["markup"] = options.markup
    return LineTranslation(
        translator=translator,
        options=search,
        layout=layout,
        through=through,
        marked=marked,
        keep=keep,
        further=further,
    )
