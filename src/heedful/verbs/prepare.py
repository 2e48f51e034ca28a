"""`heedful prepare`: turn shards of parallel text into ids for a training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.settings.options import OUTPUT, PRESET, SRC_KEY, TEXT, TGT_KEY, Option, Settings, settings_like


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Turn shards of parallel text into ids for a training.

    `heedful train` takes them as --pairs OUTPUT.

    Each shard becomes a file with the same bytes wherever it was made. Without tokenizer.bundle, a vocabulary
    is trained on the first pairs of each shard. Settings are as for the training. A shard that is done
    stays done: --resume goes on with the others, also in several processes at the same time.

    Examples:
        heedful prepare --pairs 'shards/*.tsv.gz' -o prepared
    """

    config: Annotated[
        Path | None, Option("A recipe.", metavar="CONFIG.toml", is_argument=True, is_file=True)
    ] = None
    pairs: Annotated[
        str | None,
        Option(
            "Shards with source and target (.tsv, .tmx, .xlf, .po, .jsonl, .parquet): a directory, "
            "a pattern such as 'news/*.gz', or a URL.",
            TEXT,
            metavar="PATH",
            is_common=True,
        ),
    ] = None
    src: Annotated[
        str | None,
        Option("Shards of source lines, instead of --pairs.", TEXT, metavar="PATH", is_common=True),
    ] = None
    tgt: Annotated[
        str | None,
        Option(
            "Shards of target lines, in the same order of their names.", TEXT, metavar="PATH", is_common=True
        ),
    ] = None
    src_key: Annotated[str | None, Option(SRC_KEY, TEXT, default="src")] = None
    tgt_key: Annotated[str | None, Option(TGT_KEY, TEXT, default="tgt")] = None
    preset: Annotated[str | None, PRESET] = None
    settings: Annotated[
        Settings, settings_like("A setting, for example tokenizer.bundle=runs/en-de; repeatable.")
    ] = ()
    output: Annotated[str, Option("The directory of the ids.", metavar="PATH", flags=OUTPUT)]
    resume: Annotated[
        bool, Option("Go on where an earlier command with the same --output was interrupted.")
    ] = False
    on: Annotated[
        str,
        Option(
            "Where shards are prepared. here: in this process; ray: on a Ray cluster, or on all cores of "
            "this machine if there is none.",
            metavar="here|ray",
        ),
    ] = "here"


def command(task: Prepare) -> None:
    """Prepare shards, and print how many."""
    if task.on not in ("here", "ray"):
        raise typer.BadParameter(f"--on {task.on}: must be here or ray")
    from heedful.cli.streams import notify, translation_display, warnings_on_stderr
    from heedful.settings.loading import load_config
    from heedful.tasks.prepare import prepare_shards

    keys = ("pairs", "src", "tgt", "src_key", "tgt_key")
    values = {f"data.{key}": getattr(task, key) for key in keys}
    overrides = {key: value for key, value in values.items() if value is not None} | dict(task.settings)
    config = load_config(task.config, preset=task.preset, overrides=overrides)
    with warnings_on_stderr():
        done = prepare_shards(
            config,
            task.output,
            resume=task.resume,
            on_ray=task.on == "ray",
            notify=notify,
            display=translation_display,
        )
    notify(done)
