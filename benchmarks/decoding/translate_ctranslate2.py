"""CTranslate2 on the exported directory; its own batches, of the same size."""

import json

import ctranslate2
from measuring import Ids, Task, Translate, measure, parse_task


def prepare(task: Task) -> Translate:
    """The translator; the layout says whether threads are workers."""
    directory = task.material / "ctranslate2"
    pieces = json.loads((directory / "shared_vocabulary.json").read_text(encoding="utf-8"))
    numbers = {piece: number for number, piece in enumerate(pieces)}
    settings = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    end = -1 if settings["add_source_eos"] else None  # it adds one more, even where there is one
    workers = task.threads if task.layout == "workers" else 1
    engine = ctranslate2.Translator(
        str(directory),
        compute_type=task.precision,
        inter_threads=workers,
        intra_threads=task.threads // workers,
    )
    never = [[pieces[task.pad_id]], [pieces[task.start_id]]]  # as all others; by itself it may write them

    def translate(sources: list[Ids]) -> list[Ids]:
        found = engine.translate_batch(
            [[pieces[i] for i in source[:end]] for source in sources],
            beam_size=task.beam,
            length_penalty=1.0,
            max_batch_size=task.batch_size,
            max_decoding_length=task.max_length(sources),
            min_decoding_length=task.exact_length,
            suppress_sequences=never,
            return_end_token=True,
        )
        return [[numbers[piece] for piece in each.hypotheses[0]] for each in found]

    return translate


if __name__ == "__main__":
    asked = parse_task(__doc__)
    measure(asked, prepare(asked))
