"""A strategy that is written here alone runs over every backend."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from bigram_backend import bigrams
from machine_class import need_native
from searches import searched
from step_tables import EOS, TableStep, random_table, task_of
from tiny_bundle import PAIRS, SOURCES, memorised

from heedful.decoding.constraints import Candidates, Constraints
from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import Start
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.task import Hypothesis, PartialOutputs, SearchTask
from heedful.decoding.translator import Translator
from heedful.interop.onnx.export import export_onnx
from heedful.interop.onnx.runtime import OnnxBackend

FREE = SearchOptions(max_length_offset=4)


@dataclass(frozen=True, kw_only=True)
class Lookahead(Strategy):
    """Of the `width` best next tokens, take the one that is the most probable with its best successor."""

    width: int = 2

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        outputs = PartialOutputs(task.max_lengths, eos_id=task.eos_id)
        constraints, limits = Constraints(task), np.asarray(task.max_lengths)
        with start() as step:
            best = constraints.candidates(
                step(task.start_ids()), self.width, written=outputs.written, sentences=outputs.live
            )
            while num_live := len(outputs.live):
                width, ids = best.ids.shape[1], best.ids.ravel()
                rows = np.repeat(np.arange(num_live), width)
                sentences = outputs.live[rows]
                written = np.concatenate((outputs.written[rows], ids[:, None]), axis=1)
                step.reorder(rows)
                after = constraints.candidates(step(ids), self.width, written=written, sentences=sentences)
                ends = (ids == task.eos_id) | (limits[sentences] == written.shape[1])
                values = best.scores.ravel() + np.where(ends, 0.0, after.scores[:, 0])
                taken = values.reshape(num_live, width).argmax(axis=1) + width * np.arange(num_live)
                rows = taken[outputs.append(ids[taken], best.log_probs.ravel()[taken])]
                step.reorder(rows)
                best = Candidates(after.scores[rows], after.log_probs[rows], after.ids[rows])
        return [[hypothesis] for hypothesis in outputs.hypotheses(task.options.penalty)]


@pytest.mark.parametrize("width", [1, 2, 4])
def test_it_takes_what_it_says_token_by_token(width: int) -> None:
    table, limits = random_table(3, 7, sharpness=2.0), [8, 1, 5]
    found = searched(TableStep(table, 3), task_of(limits, SearchOptions(strategy=Lookahead(width=width))))
    for sentence, ([hypothesis], limit) in enumerate(zip(found, limits, strict=True)):
        written: tuple[int, ...] = ()
        while len(written) < limit and EOS not in written:
            row = table(sentence, written)

            def value(token: int, row=row, written=written, sentence=sentence, limit=limit) -> float:  # noqa: ANN001
                if token == EOS or len(written) == limit - 1:
                    return row[token]
                return row[token] + max(table(sentence, (*written, token))[EOS:])

            best = sorted(range(EOS, 7), key=lambda token, row=row: -row[token])[:width]
            written = (*written, max(best, key=value))
        assert hypothesis.ids == tuple(token for token in written if token != EOS)


@pytest.mark.parametrize("name", ["torch", "native", pytest.param("onnx", marks=pytest.mark.slow), "bigrams"])
def test_it_runs_over_every_backend(name: str, tmp_path: Path) -> None:
    bundle = memorised()
    if name == "onnx":
        export_onnx(bundle, tmp_path / "exported")
        src_pad_id = bundle.config.model.src_pad_id
        engine: object = OnnxBackend.load(tmp_path / "exported", src_pad_id=src_pad_id, threads=1)
    else:
        engine = bigrams(bundle) if name == "bigrams" else name
    if name == "native":
        need_native()
    translator = Translator(bundle, engine=engine)  # type: ignore[arg-type]

    def ids(strategy: Strategy) -> list[tuple[int, ...]]:
        options = SearchOptions(strategy=strategy, max_length_offset=4)
        found = translator.translations(SOURCES, options=options)
        return [each.hypotheses[0].ids for each in found]

    assert ids(Lookahead(width=1)) == ids(Greedy())
    if name == "bigrams":
        assert ids(Lookahead(width=5)) != ids(Greedy())
    else:
        texts = translator.translate(SOURCES, options=SearchOptions(strategy=Lookahead(width=3)))
        assert texts == [target for _, target in PAIRS]
