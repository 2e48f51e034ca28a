"""`heedful import`: import models of other implementations as bundles."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from heedful.settings.options import OUTPUT, Option, Settings, settings_like
from heedful.tasks.options import LAYOUTS


@dataclass(frozen=True, kw_only=True)
class Import:
    """Import a model of another implementation.

    No code in the files is executed. The bundle gives the same logits; docs/interop.md and docs/systems.md
    describe the layouts.

    Examples:
        heedful import Helsinki-NLP/opus-mt-en-de -o opus
    """

    source: Annotated[
        Path,
        Option(
            "A file from torch.save, or .safetensors. A directory of transformers, CTranslate2 or Eole. An "
            "Argos package. Marian's model.npz or .bin, or a directory or .zip with one. OpenNMT-py's .pt. "
            "A LoRA adapter of PEFT, which is merged. Or the id of a model on the hub.",
            metavar="SOURCE",
            is_argument=True,
        ),
    ]
    output: Annotated[Path, Option("The bundle to write.", flags=OUTPUT)]
    layout: Annotated[
        str | None,
        Option(
            f"The system that wrote the weights. Needed if several fit: {', '.join(LAYOUTS)}, or a layout "
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
        Path | None, Option("For a file: source tokens by id, one per line, or .json. Without it, ids only.")
    ] = None
    tgt_vocab: Annotated[Path | None, Option("The same for target tokens.")] = None
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
        Path | None,
        Option(
            "For a LoRA adapter of PEFT: the directory or hub id of its base model.",
            metavar="DIR",
            default="as adapter_config.json says",
        ),
    ] = None
    lang_dict: Annotated[
        Path | None,
        Option(
            "For a multilingual model of fairseq: its languages in their order, one per line. Without it, "
            "the checkpoint's arguments say them.",
            metavar="FILE",
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        Option(
            "A key of config.json that is unknown here and only describes text; repeatable.", metavar="KEY"
        ),
    ] = None


def command(task: Import) -> None:
    """Import, and print the path of the bundle."""
    from heedful.tasks.exchange import import_model

    options = vars(task) | {"settings": dict(task.settings), "ignore": task.ignore or ()}
    print(import_model(**options, notify=partial(print, "note:", file=sys.stderr)))
