"""`heedful translate`: lines in, lines out."""

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import SamplingOverrides, SearchOverrides, sampling_overrides
from heedful.cli.streams import (
    check_stdin_once,
    print_precision,
    suggest_auto_precision,
    translation_display,
    warnings_on_stderr,
)
from heedful.data.streams import Lines, open_input
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
)

if TYPE_CHECKING:
    from heedful.bulk.documents import DocumentTranslation
    from heedful.bulk.lines import LineTranslation
    from heedful.bulk.memories import MemoryLookup
    from heedful.decoding.translator import Translator

_PATTERN = re.compile(r"[*?[]")


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

    Examples:
        heedful translate runs/en-de -i news.en -o news.de
        heedful translate runs/en-de --document report.docx -o report.de.docx
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
        bool,
        Option(
            "Write shards or documents into a directory that has files, in place of the same names.",
            is_common=False,
        ),
    ] = False
    column: Annotated[
        str | None,
        Option(
            "Column of Parquet shards that holds the text; names or numbers of those of a table in CSV or "
            "TSV, separated by commas.",
            metavar="NAME",
            default="text for shards",
            is_common=False,
        ),
    ] = None
    on: Annotated[
        str,
        Option(
            "Where shards are translated; ray is a Ray cluster, or all cores here.",
            metavar="here|ray",
            is_common=False,
        ),
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
            "lines are translated together, unless the input is a terminal.",
            is_common=False,
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
    memory_report: Annotated[
        Path | None,
        Option(
            "Write the exact or fuzzy match of each text in the memories.",
            metavar="FILE",
            is_file=True,
            is_common=False,
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
    runtime: Runtime = field(default_factory=Runtime)


def command(task: Translate) -> None:
    """Translate a file or stdin, a document, or shards."""
    if task.scores and task.json:
        raise typer.BadParameter("--scores and --json exclude each other; JSON holds the scores")
    if task.memory and task.prefix is not None:
        raise typer.BadParameter("--memory and --prefix exclude each other")
    if task.resume and (task.memory_report is not None or task.to_tmx is not None):
        raise typer.BadParameter("--memory-report and --to-tmx need a run that is not resumed")
    if task.memory_report is not None and not task.memory:
        raise typer.BadParameter("--memory-report needs --memory")
    for option, path in {"--input": task.source, "--output": task.output}.items():
        if path == "":
            raise typer.BadParameter(f"{option}: the path is empty; give one, or leave the option out")
    chosen = sampling_overrides(task.search, task.sampling, sample=task.sample, strategy=task.strategy)
    task = replace(task, search={**task.search, **chosen, "n_best": task.n_best})
    if task.document is not None:
        _translate_document(task, task.document)
    elif task.on != "here" or (task.source is not None and _are_shards(task.source)):
        _translate_shards(task)
    else:
        _translate_lines(task)


def _translate_lines(task: Translate) -> None:
    """Translate a file or stdin; the lines before a bad one come out."""
    if task.column is not None:
        raise typer.BadParameter("--column is for Parquet shards, and this is a file of lines")
    if task.output is not None and task.output.endswith(("/", os.sep)):  # which a path does not keep
        raise typer.BadParameter(f"{task.output}: is a directory; give the name of a file")
    if task.glossary_report is not None and (task.glossary is None or task.resume):
        raise typer.BadParameter("--glossary-report needs --glossary, and a run that is not resumed")
    from heedful.bulk.memories import open_term_report
    from heedful.bulk.resumable import is_resumable
    from heedful.documents.formats import refuse_documents

    started = time.monotonic()
    source, output = Path(task.source or "-"), None if task.output is None else Path(task.output)
    refuse_documents([str(source)])
    check_stdin_once(input=source, prefix=task.prefix)
    _check_outputs(task, [source, task.prefix])
    # Interactive input is translated line by line; a file is better read ahead, for fuller batches.
    typed = source == Path("-") and sys.stdin.isatty()
    line_buffered = typed or task.line_buffered
    if task.resume and (line_buffered or not is_resumable(output)):
        raise typer.BadParameter("--resume needs --output, the name of a file, and no --line-buffered")
    with warnings_on_stderr(), ExitStack() as stack:
        lines = Lines(*stack.enter_context(open_input(source)))
        prefixes = None if task.prefix is None else Lines(*stack.enter_context(open_input(task.prefix)))
        translation = _line_translation(task)
        lookup = stack.enter_context(_lookup(task, translation.translator))
        terms = stack.enter_context(open_term_report(task.glossary_report, notify=_notify))
        replace(translation, lookup=lookup, terms=terms).write(
            lines,
            output,
            prefixes=prefixes,
            resume=task.resume,
            line_buffered=line_buffered,
            notify=_notify,
            display=translation_display,
        )
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
    from heedful.bulk import documents
    from heedful.bulk.resumable import is_resumable

    output = Path(task.output)
    files = documents.FolderFiles.of(document, task.output) if is_folder else None
    if files is None and is_resumable(output) and output.suffix.lower() != document.suffix.lower():
        raise typer.BadParameter(f"{output}: must end in {document.suffix}, as the document does")
    if files is None and task.resume and not is_resumable(output):
        raise typer.BadParameter("--resume needs --output, the name of a file")
    _check_outputs(task, [document] if files is None else [files.path / each for each in files.documents])
    with warnings_on_stderr(), ExitStack() as stack:

        def load() -> "DocumentTranslation":
            lines = _line_translation(task)
            lookup = stack.enter_context(_lookup(task, lines.translator))
            return documents.DocumentTranslation(
                replace(lines, lookup=lookup), column=task.column, resume=task.resume, notify=_notify
            )

        if files is None:
            documents.translate_document(load(), document, output, display=translation_display)
            return
        outcome = documents.translate_folder(
            files,
            task.output,
            load,
            resume=task.resume,
            overwrite=task.overwrite,
            notify=_notify,
            display=translation_display,
        )
    print(*documents.summary_lines(files, outcome), sep="\n", file=sys.stderr)
    if task.json:
        print(json.dumps(documents.summary(files, outcome)))
    outcome.raise_if_failed()


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
    from heedful.bulk.shards import list_shards, work_on_shards
    from heedful.bulk.text_shards import ShardTranslator, TranslationJob
    from heedful.documents.formats import refuse_documents

    folder, sizes = list_shards(task.source)
    refuse_documents([f"{folder.url}/{name}" for name in sizes])
    if any(name.endswith(".parquet") for name in sizes) and (task.json or task.n_best > 1):
        raise typer.BadParameter("--json and --n-best are for text; Parquet shards get a column")
    if Path(task.output).absolute() == Path(folder.path):
        raise InputError(f"{task.output}: is the input too; write to another directory")
    job = TranslationJob(
        source=folder.path if folder.is_local else folder.url,
        output=task.output if "://" in task.output else str(Path(task.output).absolute()),
        load=partial(_line_translation, _for_other_machines(task) if task.on == "ray" else task),
        column=task.column or "text",
    )
    with warnings_on_stderr():
        outcome = work_on_shards(
            ShardTranslator,
            job,
            sizes,
            resume=task.resume,
            overwrite=task.overwrite,
            ray_cpus=task.runtime.threads or 1 if task.on == "ray" else 0,
            ray_gpus=int(task.runtime.device == "cuda"),
            display=translation_display,
        )
    outcome.raise_if_failed()
    print(outcome, file=sys.stderr)


def _notify(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _are_shards(source: str) -> bool:
    """Return whether an input is shards: a directory, a pattern, a URL or a Parquet file."""
    path = Path(source)
    is_pattern = _PATTERN.search(source) is not None and not path.exists()
    return is_pattern or "://" in source or source.endswith(".parquet") or path.is_dir()


def _for_other_machines(task: Translate) -> Translate:
    """Return a task with absolute paths, and one thread for each worker where nothing else is asked for."""

    def absolute(path: Path) -> Path:
        return path.absolute() if path.exists() else path

    return replace(
        task,
        run=absolute(task.run),
        shortlist=task.shortlist and absolute(task.shortlist),
        glossary=task.glossary and absolute(task.glossary),
        ensemble=[absolute(path) for path in task.ensemble or ()],
        runtime=replace(task.runtime, threads=task.runtime.threads or 1),
    )


def _check_outputs(task: Translate, inputs: Sequence[Path | None]) -> None:
    """Refuse files that cannot be written, that are inputs, or that are another output too."""
    from heedful.runs.output_checks import check_output, check_outputs_differ

    output = None if task.output is None else Path(task.output)
    reports = {"--glossary-report": task.glossary_report, "--memory-report": task.memory_report}
    files = {"--output": output, **reports, "--to-tmx": task.to_tmx}
    check_outputs_differ(files)
    if task.document is not None and task.document.is_dir():
        del files["--output"]
    inputs = [*inputs, task.shortlist, task.glossary, *(task.memory or ())]
    for option, file in files.items():
        if file is not None or option == "--output":
            check_output(file, inputs=inputs, models=[task.run, *(task.ensemble or ())])


def _line_translation(task: Translate) -> "LineTranslation":
    """Load the models of a task; return how they translate lines."""
    from heedful.bulk.lines import LineLayout, LineTranslation
    from heedful.bulk.resumable import further_settings
    from heedful.decoding.glossary import Glossary
    from heedful.decoding.options import search_options
    from heedful.runs.loading import load_translator

    translator = load_translator(
        task.run, task.languages, task.runtime, shortlist=task.shortlist, ensemble=task.ensemble or ()
    )
    if task.runtime.precision == "auto":
        print_precision(translator.precision_in_use)
    options = search_options(task.search, translator.bundle.config.decode)
    if task.glossary is not None:
        options = replace(options, glossary=Glossary.load(task.glossary))
    layout = LineLayout(
        json=task.json,
        scores=task.scores,
        n_best=task.n_best,
        terms=task.glossary is not None,
        memory=bool(task.memory),
    )
    further = further_settings(prefix=task.prefix, shortlist=task.shortlist, memories=task.memory or ())
    return LineTranslation(translator=translator, options=options, layout=layout, further=further)


def _lookup(task: Translate, translator: "Translator") -> "AbstractContextManager[MemoryLookup]":
    from heedful.bulk.memories import open_lookup

    config, report = translator.bundle.config, task.memory_report
    return open_lookup(task.memory or (), config, report=report, written=task.to_tmx, notify=_notify)
