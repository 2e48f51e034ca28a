"""heedful's translator below its text: batches go through it as `heedful translate` sends them."""

from dataclasses import replace
from typing import cast

import torch
from measuring import LONGER_BY, Ids, Task, Translate, measure, parse_task

from heedful import Translator
from heedful.decoding.backends.choice import EngineChoice
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.settings.options import Precision
from heedful.storage.bundle import load_bundle


def prepare(task: Task) -> Translate:
    """The translator; the layout says what computes."""
    torch.set_num_threads(task.threads)
    bundle = load_bundle(task.material / "bundle")
    translator = Translator(
        bundle,
        precision=cast(Precision, task.precision),
        batch_size=task.batch_size,
        batch_tokens=1 << 30,
        engine=cast(EngineChoice, task.layout),
    )
    options = replace(
        SearchOptions.from_config(bundle.config.decode),
        strategy=BeamSearch(beam_size=task.beam, early_stopping="first"),
        n_best=1,
        length_normalization="power",
        length_penalty=1.0,
        max_length_offset=LONGER_BY,
        min_length=task.exact_length,
        max_length=task.exact_length or None,
    )

    def translate(sources: list[Ids]) -> list[Ids]:
        found = translator.search_ids(sources, options=options)
        return [[*each[0].ids, *([task.eos_id] if each[0].finished else [])] for each in found]

    return translate


if __name__ == "__main__":
    asked = parse_task(__doc__)
    measure(asked, prepare(asked))
