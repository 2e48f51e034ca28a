"""`heedful draw heads`: how much a model loses without each of its heads."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from heedful.cli.streams import bar, notify
from heedful.settings.options import DEVICE, OUTPUT, Device, Languages, Option, Run


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Draw the importance of each head: how much the loss rises without it (Michel et al., 2019).

    Masks each head in turn by setting its output to zero. The loss is the negative log-likelihood of the
    translations, in nats per target token. Prints a line for each head, with tabs between the kind of
    attention, the layer, the head and the increase.
    """

    output: Annotated[Path, Option("A .png or .svg file.", flags=OUTPUT, is_file=True)] = Path("heads.png")
    run: Run
    src: Annotated[Path, Option("Source lines to measure on; .gz too.")]
    tgt: Annotated[Path, Option("Their translations, line by line.")]
    pairs: Annotated[int, Option("Measure on this number of pairs, from the first on.", minimum=1)] = 200
    languages: Languages = field(default_factory=Languages)
    device: Annotated[Device, DEVICE] = "auto"


def draw_heads(task: Heads) -> None:
    """Measure the importance of each head on parallel text, draw and print it."""
    from heedful.tasks import pictures

    with bar() as show:
        importance = pictures.draw_heads(
            task.output,
            task.run,
            (task.src, task.tgt),
            pairs=task.pairs,
            languages=task.languages,
            device=task.device,
            on_progress=show,
        )
    for kind, increases in importance.increases.items():
        for layer, row in enumerate(increases, start=1):
            for head, increase in enumerate(row, start=1):
                print(f"{kind}\t{layer}\t{head}\t{increase:.6f}")
    notify(f"wrote {task.output}")
