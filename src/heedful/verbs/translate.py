"""`heedful translate`: lines in, lines out."""

import itertools
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from heedful.cli.options import SamplingOverrides, SearchOverrides
from heedful.cli.streams import (
    check_stdin_once,
    print_precision,
    suggest_auto_precision,
    translation_display,
    warnings_on_stderr,
)
from heedful.data.streams import Lines, open_input, open_output, write_line
from heedful.errors import InputError
from heedful.settings.options import (
    OUTPUT,
    OUTPUTS,
    SAMPLING,
    SEARCH,
    Ensemble,
    Languages,
    Option,
    Prefix,
    Run,
    Runtime,
    ShortlistFile,
    options_of,
)

if TYPE_CHECKING:
    from heedful.bulk.resumable import ResumableOutput
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator
    from heedful.verbs.memories import MemoryFiles

_STDIN = Path("-")
_CHUNK_LINES = 1024  # a power of two
_PATTERN = re.compile(r"[*?[]")
_HYPOTHESES_AT_ONCE = 65_536  # some 100 MB of them


@dataclass(frozen=True, kw_only=True)
class Translate:
    """Translate lines, by default from stdin to stdout.

    Writes one line for each input line, in order; an empty line stays empty, with score 0. A score is the
    log-probability divided by the length penalty, plus the coverage penalty if there is one. N-best lists
    number the input lines from 0, as in Moses. With --json, each line is an object with the keys source,
    text, score, confidence and hypotheses. A hypothesis has text, score, log_prob (before penalties), ids
    (score --tgt-ids reads them), finished, alignment and confidence. It is not finished if its length limit
    has cut it; a warning says how many lines are. An alignment has pairs of a source and a target
    word, both from 0. Confidence is that of the sentence, its words between spaces and its tokens without the
    end. It is null without calibration (docs/confidence.md). With --glossary there is the key terms. With
    --memory there is memory: the share, source and target of the match, or null; a text that it translates
    has score 0 and no hypotheses. For a multilingual model, set --src-lang and --tgt-lang to its own tags
    (fra_Latn) or to short codes (fr).

    A line of more than --max-source-tokens is split at ends of sentences, else at punctuation or spaces, with
    a warning. Each segment is translated by itself, the first one with the prefix. The outputs of each rank
    are joined and their log-probabilities added. The score is the mean of the segments' scores, weighted by
    tokens.
    """

    run: Run
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
            "Write the translations to this file; those of shards into this directory.",
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
        bool, Option("Write shards or documents into a directory that has files, in place of the same names.")
    ] = False
    column: Annotated[
        str | None,
        Option(
            "Column of Parquet shards that holds the text; names or numbers of those of a table in CSV or "
            "TSV, separated by commas.",
            metavar="NAME",
            default="text for shards",
        ),
    ] = None
    on: Annotated[
        str,
        Option("Where shards are translated; ray is a Ray cluster, or all cores here.", metavar="here|ray"),
    ] = "here"
    n_best: Annotated[
        int,
        Option("Outputs per line; if above 1, printed as `number ||| text ||| score`.", minimum=1),
    ] = 1
    scores: Annotated[bool, Option("Print lines of `score<TAB>text`.")] = False
    json: Annotated[
        bool, Option("Print a JSON object for each line; of a directory of documents, what was done.")
    ] = False
    line_buffered: Annotated[
        bool,
        Option(
            "Translate and flush each line at once, for use as a coprocess; slower. By default, 1,024 "
            "lines are translated together, unless the input is a terminal."
        ),
    ] = False
    ensemble: Ensemble = None
    languages: Languages = field(default_factory=Languages)
    search: SearchOverrides = field(default_factory=dict)
    prefix: Prefix = None
    strategy: Annotated[
        str | None,
        Option(
            "Search strategy with its settings, as in mbr:samples=50,temperature=0.8. One of greedy, "
            "beam, diverse-beam, sampling, mbr, or one that another package registers. Unnamed "
            "settings have the strategy's defaults.",
            SEARCH,
            metavar="NAME[:KEY=VALUE,...]",
            default="the bundle's beam search",
        ),
    ] = None
    sample: Annotated[
        bool, Option("Sample each next token; --n-best says how many outputs to draw.", SAMPLING)
    ] = False
    sampling: SamplingOverrides = field(default_factory=dict)
    shortlist: ShortlistFile = None
    glossary: Annotated[
        Path | None,
        Option(
            "Terms that translations must use: lines of a source term, a tab, and its target forms, with | "
            "between them.",
            OUTPUTS,
            metavar="FILE",
        ),
    ] = None
    glossary_report: Annotated[
        Path | None,
        Option("Write the terms of each line, and which of them are met.", metavar="FILE", is_file=True),
    ] = None
    memory: Annotated[
        list[Path] | None,
        Option(
            "Translation memory in TMX: a text with an exact match is translated as there; repeatable.",
            OUTPUTS,
            metavar="FILE",
        ),
    ] = None
    memory_report: Annotated[
        Path | None,
        Option("Write the exact or fuzzy match of each text in the memories.", metavar="FILE", is_file=True),
    ] = None
    to_tmx: Annotated[
        Path | None,
        Option("Write texts and translations as a translation memory too.", metavar="FILE", is_file=True),
    ] = None
    runtime: Runtime = field(default_factory=Runtime)
    only_finished: bool = False  # no option: an output that the length limit has cut becomes an empty line

    @property
    def memory_files(self) -> "MemoryFiles":
        """The memories that are read and written, and their report."""
        from heedful.verbs.memories import MemoryFiles

        return MemoryFiles(memories=self.memory or (), report=self.memory_report, written=self.to_tmx)


def load(task: Translate) -> "tuple[Translator, SearchOptions, int]":
    """Load the models of a task.

    Returns:
        The translator, its search, and how many lines to translate at a time: a power of two, fewer where
        each line has hundreds of hypotheses.

    Raises:
        BadParameter: options that say nothing together, or that exclude each other.
        BundleError: no usable bundle.
        InputError: settings that cannot be, or models that cannot translate together.
    """
    from heedful.decoding.options import search_options
    from heedful.runs.loading import load_translator

    overrides = {**task.search, **_sampling(task), "n_best": task.n_best}
    translator = load_translator(
        task.run, task.languages, task.runtime, shortlist=task.shortlist, ensemble=task.ensemble or ()
    )
    if task.runtime.precision == "auto":
        print_precision(translator.precision_in_use)
    options = search_options(overrides, translator.bundle.config.decode)
    if task.glossary is not None:
        from heedful.decoding.glossary import Glossary

        options = replace(options, glossary=Glossary.load(task.glossary))
    at_once = max(1, _HYPOTHESES_AT_ONCE // options.strategy.num_hypotheses(options.n_best))
    return translator, options, min(_CHUNK_LINES, 1 << at_once.bit_length() - 1)


def _sampling(task: Translate) -> dict[str, Any]:
    """Return the strategy in place of beam search and its settings; nothing where there is none.

    Raises:
        BadParameter: options that say nothing together, or that exclude each other.
    """
    from heedful.decoding.strategies.beam import DiverseBeamSearch
    from heedful.decoding.strategies.sampling import Sampling

    has_beam = not options_of(DiverseBeamSearch).keys().isdisjoint(task.search)
    if task.strategy is not None:
        if task.sampling or task.sample or has_beam:
            raise typer.BadParameter(
                "--strategy excludes the options of other searches; its settings follow its name, as in "
                "--strategy beam:beam_size=8"
            )
        return {"strategy": task.strategy}
    if not task.sample and "samples" not in task.sampling:
        if task.sampling:
            raise typer.BadParameter(f"{', '.join(_flags(Sampling))} need --sample or --mbr")
        return {}
    if has_beam:
        *others, last = _flags(DiverseBeamSearch)
        raise typer.BadParameter(
            f"--sample and --mbr exclude {', '.join(others)} and {last}; sampling needs no beam"
        )
    return {"sample": True, **task.sampling}


def _flags(strategy: type) -> list[str]:
    return [flag for name, option in options_of(strategy).items() for flag in option.flags_of(name)]


def command(task: Translate) -> None:
    """Translate a file or stdin, a document, or shards."""
    if task.scores and task.json:
        raise typer.BadParameter("--scores and --json exclude each other; JSON holds the scores")
    if task.memory and task.prefix is not None:
        raise typer.BadParameter("--memory and --prefix exclude each other")
    if task.resume and (task.memory_report is not None or task.to_tmx is not None):
        raise typer.BadParameter("--memory-report and --to-tmx need a run that is not resumed")
    for option, path in {"--input": task.source, "--output": task.output}.items():
        if path == "":
            raise typer.BadParameter(f"{option}: the path is empty; give one, or leave the option out")
    _sampling(task)
    if task.document is not None:
        _translate_document(task, task.document)
    elif task.on != "here" or (task.source is not None and _are_shards(task.source)):
        _translate_shards(task)
    else:
        _translate_lines(task)


def _translate_lines(task: Translate) -> None:
    """Translate a file or stdin; the lines before a bad one come out."""
    _check_lines(task)
    source, output = Path(task.source or _STDIN), None if task.output is None else Path(task.output)
    _refuse_documents([str(source)])
    check_stdin_once(input=source, prefix=task.prefix)
    from heedful.runs.output_checks import check_output

    started = time.monotonic()
    inputs = [source, task.prefix, task.shortlist, task.glossary]
    models = [task.run, *(task.ensemble or ())]
    check_output(output, inputs=[*inputs, *(task.memory or ())], models=models)
    task.memory_files.check(inputs=inputs, models=models, output=output)
    # Somebody who types waits for each answer; a file is better read ahead, for fuller batches.
    typed = source == _STDIN and sys.stdin.isatty()
    at_once = typed or task.line_buffered
    journaled = output if output is not None and not at_once and _is_file(output) else None
    if task.resume and journaled is None:
        raise typer.BadParameter("--resume needs --output, the name of a file, and no --line-buffered")
    out: BinaryIO | ResumableOutput
    with ExitStack() as stack:
        stack.enter_context(warnings_on_stderr())
        lines, prefixes = Lines(*stack.enter_context(open_input(source))), None
        if task.prefix is not None:
            prefixes = Lines(*stack.enter_context(open_input(task.prefix))).strictly()
        translator, options, chunk_lines = load(task)
        aligned = task.json and translator.generator.backend.records_attention
        translate = partial(translator.translate_lines, options=options, aligned=aligned)
        through = partial(task.memory_files.through, config=translator.bundle.config)
        if journaled is not None:
            from heedful.bulk.resumable import open_resumable, settings_of

            texts: list[Iterable[str]] = [lines, *([] if prefixes is None else [prefixes])]
            settings = settings_of(translator, options, _output_settings(task))
            out = stack.enter_context(open_resumable(journaled, texts, settings, resume=task.resume))
            done, (rest, *rest_of_prefixes) = out.start.lines, out.inputs.lines
            prefixes = rest_of_prefixes[0] if rest_of_prefixes else None
            translate = partial(translate, prefixes=prefixes, chunk_lines=chunk_lines, first_line=done + 1)
            translations = stack.enter_context(through(rest, translate))
            translations = _with_checkpoints(translations, out, lines)
        else:
            out, done = stack.enter_context(open_output(output, at_once=at_once)), 0
            translate = partial(translate, prefixes=prefixes, chunk_lines=1 if at_once else chunk_lines)
            translations = stack.enter_context(through(lines, translate))
        if task.glossary is not None:
            from heedful.verbs.memories import glossary_report

            report = stack.enter_context(glossary_report(task.glossary_report))
            translations = map(report, translations, itertools.count(done + 1))
        for number, translation in enumerate(translations, start=done):
            for line in shown(translation, number, task):
                write_line(out, line)
            if at_once:
                out.flush()
        out.flush()
        lines.raise_if_bad()
        if prefixes is not None and next(prefixes, None) is not None:
            raise InputError(f"{task.prefix}: has more lines than the input; give one for each line")
    if not typed:
        suggest_auto_precision(task.runtime.precision, time.monotonic() - started)


def _translate_document(task: Translate, document: Path) -> None:
    """Translate a document into a file of the same format, or those of a directory into another one.

    Raises:
        BadParameter: options that do not go with documents.
        InputError: a document cannot be read, or the output cannot be written.
        RunError: some documents of a directory have failed.
    """
    is_folder = document.is_dir()
    lines_only = {
        "--input": task.source, "--prefix": task.prefix, "--scores": task.scores,
        "--json": task.json and not is_folder, "--n-best": task.n_best > 1,
        "--line-buffered": task.line_buffered, "--on": task.on != "here",
        "--glossary-report": task.glossary_report,
    }  # fmt: skip
    if excluded := [option for option, value in lines_only.items() if value]:
        raise typer.BadParameter(f"--document and {excluded[0]} exclude each other")
    if task.output is None:
        raise typer.BadParameter("--document needs --output, the name of the translated document")
    from heedful.verbs.documents import (
        DocumentTranslation,
        FolderFiles,
        summary,
        summary_lines,
        translate_document,
        translate_folder,
    )

    notify = partial(print, file=sys.stderr, flush=True)
    files = FolderFiles.of(document, task.output) if is_folder else None
    _check_documents(task, [document] if files is None else [files.path / each for each in files.documents])
    with warnings_on_stderr(), ExitStack() as stack:

        def loaded() -> DocumentTranslation:
            translator, options, _ = load(task)
            lookup = stack.enter_context(task.memory_files.opened(translator.bundle.config))
            layout = {"document": True, **_output_settings(replace(task, json=False))}
            return DocumentTranslation(translator, options, lookup, task.column, layout, task.resume, notify)

        if files is None:
            translate_document(loaded(), document, Path(task.output))
            return
        outcome = translate_folder(
            files, task.output, loaded, resume=task.resume, overwrite=task.overwrite, notify=notify
        )
    print(*summary_lines(files, outcome), sep="\n", file=sys.stderr)
    if task.json:
        print(json.dumps(summary(files, outcome)))
    outcome.raise_if_failed()


def _check_documents(task: Translate, documents: Sequence[Path]) -> None:
    """Refuse an output that is no file for a document, and memories that cannot be written.

    Raises:
        BadParameter: the output has another ending, or cannot be resumed.
        InputError: a file cannot be written.
    """
    from heedful.runs.output_checks import check_output

    document, output = documents[0], Path(task.output or _STDIN)
    inputs, models = [*documents, task.shortlist, task.glossary], [task.run, *(task.ensemble or ())]
    task.memory_files.check(inputs=inputs, models=models, output=output)
    if task.document != document:  # a directory
        return
    if _is_file(output) and output.suffix.lower() != document.suffix.lower():
        raise typer.BadParameter(f"{output}: must end in {document.suffix}, as the document does")
    if task.resume and not _is_file(output):
        raise typer.BadParameter("--resume needs --output, the name of a file")
    check_output(output, inputs=[*inputs, *(task.memory or ())], models=models)


def _with_checkpoints(
    translations: "Iterable[Translation]", output: "ResumableOutput", lines: Lines
) -> "Iterator[Translation]":
    """Yield translations; once a chunk of them is written, it is safe, and the progress is shown."""
    tokens = 0
    if output.notice:
        print(output.notice, file=sys.stderr)
    with translation_display(lambda: lines.share_read) as show:
        for number, translation in enumerate(translations, start=output.start.lines + 1):
            yield translation
            tokens += translation.num_tokens
            if number % _CHUNK_LINES == 0:
                output.checkpoint(number)
                show(number, tokens)


def _are_shards(source: str) -> bool:
    """Return whether an input is shards: a directory, a pattern, a URL or a Parquet file."""
    path = Path(source)
    is_pattern = _PATTERN.search(source) is not None and not path.exists()
    return is_pattern or "://" in source or source.endswith(".parquet") or path.is_dir()


def _refuse_documents(names: Iterable[str]) -> None:
    """Refuse files that are no lines, by their names: lines would lose the structure of a document.

    Raises:
        InputError: naming the first document.
    """
    from heedful.documents.formats import TEXT, format_of

    for name in names:
        kind = format_of(name[:-3] if name.lower().endswith(".gz") else name)
        if kind not in (None, TEXT):
            raise InputError(f"{name}: is {kind}, not lines of text; translate it with --document")


def _is_file(output: Path) -> bool:
    """Return whether an output is a file of its own, which is there when it is complete."""
    from heedful.runtime.durable import is_replaceable

    return output != _STDIN and is_replaceable(output)


def _output_settings(task: Translate) -> dict[str, object]:
    """Return what the task says about the output besides the search."""
    from heedful.storage.bundle import file_sha256

    shortlist = None if task.shortlist is None else file_sha256(task.shortlist)
    has_prefix = task.prefix is not None
    memory = [file_sha256(each) for each in task.memory or ()]
    shown = {"json": task.json, "scores": task.scores, "prefix": has_prefix, "shortlist": shortlist}
    return shown | ({"memory": memory} if memory else {})


def _check_lines(task: Translate) -> None:
    """Refuse what does not go with a file of lines."""
    if task.column is not None:
        raise typer.BadParameter("--column is for Parquet shards, and this is a file of lines")
    if task.output is not None and task.output.endswith(("/", os.sep)):  # which a path does not keep
        raise typer.BadParameter(f"{task.output}: is a directory; give the name of a file")
    if task.glossary_report is not None:
        _check_report(task, task.glossary_report)


def _check_report(task: Translate, report: Path) -> None:
    """Refuse a report of the terms that cannot be written, or what does not go with one."""
    from heedful.runs.output_checks import check_output

    if task.glossary is None or task.resume:
        raise typer.BadParameter("--glossary-report needs --glossary, and a run that is not resumed")
    if task.output is not None:
        real, output = os.path.realpath(report), os.path.realpath(task.output)
        if real == output or real.startswith(f"{output}.unfinished"):
            raise typer.BadParameter(f"{report}: is --output too; give the report another name")
    inputs = [Path(task.source or _STDIN), task.prefix, task.shortlist, task.glossary]
    check_output(report, inputs=inputs, models=[task.run, *(task.ensemble or ())])


def _translate_shards(task: Translate) -> None:
    """Translate the files of a directory into another one.

    Raises:
        BadParameter: options that do not go with shards.
        InputError: there are no shards, or the output is their directory.
    """
    if task.source is None or task.output is None:
        raise typer.BadParameter("shards need --input and --output, both directories")
    files_only = {
        "--prefix": task.prefix, "--line-buffered": task.line_buffered, "--memory": task.memory,
        "--glossary-report": task.glossary_report, "--to-tmx": task.to_tmx,
        "--memory-report": task.memory_report,
    }  # fmt: skip
    if excluded := [option for option, value in files_only.items() if value]:
        raise typer.BadParameter(f"{excluded[0]} is for single files, not for shards")
    if task.on not in ("here", "ray"):
        raise typer.BadParameter(f"--on {task.on}: must be here or ray")
    from heedful.bulk.lines import ShardTranslator, TranslationJob
    from heedful.bulk.shards import list_shards, work_on_shards

    folder, sizes = list_shards(task.source)
    _refuse_documents([f"{folder.url}/{name}" for name in sizes])
    if any(name.endswith(".parquet") for name in sizes) and (task.json or task.n_best > 1):
        raise typer.BadParameter("--json and --n-best are for text; Parquet shards get a column")
    if Path(task.output).absolute() == Path(folder.path):
        raise InputError(f"{task.output}: is the input too; write to another directory")
    own = _for_other_machines(task) if task.on == "ray" else task
    job = TranslationJob(
        source=folder.path if folder.is_local else folder.url,
        output=task.output if "://" in task.output else str(Path(task.output).absolute()),
        load=partial(load, own),
        shown=partial(shown, task=own),
        layout=_output_settings(task),
        column=task.column or "text",
        with_scores=task.scores,
    )
    cpus = task.runtime.threads or 1 if task.on == "ray" else 0
    gpus = int(task.runtime.device == "cuda")
    with warnings_on_stderr():
        outcome = work_on_shards(
            ShardTranslator,
            job,
            sizes,
            resume=task.resume,
            overwrite=task.overwrite,
            ray_cpus=cpus,
            ray_gpus=gpus,
            display=translation_display,
        )
    outcome.raise_if_failed()
    print(outcome, file=sys.stderr)


def _for_other_machines(task: Translate) -> Translate:
    """Return a task with absolute paths, and one thread for each worker where nothing else is asked for."""
    paths = {name: getattr(task, name) for name in ("run", "shortlist", "glossary")}
    return replace(
        task,
        **{
            name: path.absolute() if path is not None and path.exists() else path
            for name, path in paths.items()
        },
        ensemble=[path.absolute() if path.exists() else path for path in task.ensemble or ()],
        runtime=replace(task.runtime, threads=task.runtime.threads or 1),
    )


def shown(translation: "Translation", number: int, task: Translate) -> Iterable[str]:
    """Return the output lines of a translation, of which the input has `number` before it."""
    if task.only_finished and not translation.finished:
        yield ""
    elif task.json:
        hypotheses = [
            {name: getattr(each, name) for name in ("text", "score", "log_prob")}
            | {"ids": each.written_ids, "finished": each.finished}
            | {"confidence": each.confidence and asdict(each.confidence)}
            | ({} if each.alignment is None else {"alignment": each.alignment.links})
            for each in translation.hypotheses
        ]
        yield json.dumps(
            {
                "source": translation.source,
                "text": translation.text,
                "score": translation.score,
                "confidence": translation.confidence and translation.confidence.sentence,
                "hypotheses": hypotheses,
            }
            | ({"terms": [asdict(each) for each in translation.terms]} if task.glossary else {})
            | ({"memory": translation.match and asdict(translation.match)} if task.memory else {}),
            ensure_ascii=False,
        )
    elif task.n_best > 1:
        n_best = translation.hypotheses or (translation,)
        yield from (f"{number} ||| {each.text} ||| {each.score:.6f}" for each in n_best)
    elif task.scores:
        yield f"{translation.score:.6f}\t{translation.text}"
    else:
        yield translation.text
