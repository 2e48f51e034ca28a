"""What a search found has, scored as a given output in one pass, the numbers that the search gave it."""

from dataclasses import replace

import pytest
import torch
from searches import searched
from tolerances import FLOAT64, close
from torch import Tensor

from heedful.decoding.backends.torch import ForcedStep, ModelStep
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import score_outputs
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.task import Hypothesis, SearchTask
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig

PAD, BOS, EOS, TAG = 0, 2, 3, 9
VOCAB_SIZE = 17
LIMITS = [20, 6, 11, 1, 30]
MODES: dict[str, dict[str, object]] = {
    "the paper's": {},
    "no penalty": {"length_penalty": 0.0},
    "average": {"length_penalty": 1.0, "length_normalization": "power"},
    "average, strong": {"length_penalty": 1.7, "length_normalization": "power"},
    "forced first": {"forced_first_id": TAG},
    "forced first, suppressed": {"forced_first_id": TAG, "suppressed_ids": (PAD, BOS, TAG)},
    "forced last": {"forced_last_id": EOS},
    "forced last, another": {"forced_last_id": TAG},
    "both forced": {"forced_first_id": TAG, "forced_last_id": EOS},
    "nothing suppressed": {"suppressed_ids": ()},
    "more suppressed": {"suppressed_ids": (PAD, 4, 5, 6, 7)},
    "renormalised": {"renormalize": True},
    "renormalised, more suppressed": {"renormalize": True, "suppressed_ids": (PAD, 4, 5, 6, 7)},
    "renormalised, nothing suppressed": {"renormalize": True, "suppressed_ids": ()},
    "not too short": {"min_length": 4},
    "no repetition": {"no_repeat_ngram_size": 2},
    "no repetition, renormalised": {"no_repeat_ngram_size": 2, "renormalize": True},
    "repetition held back": {"repetition_penalty": 1.3},
    "prefixes": {"prefix": True},
    "prefixes, renormalised": {"prefix": True, "renormalize": True, "forced_first_id": TAG},
    "everything": {
        "min_length": 4, "renormalize": True, "suppressed_ids": (PAD, 4, 5), "forced_first_id": TAG,
        "forced_last_id": EOS, "length_penalty": 1.0, "length_normalization": "power",
        "no_repeat_ngram_size": 2, "repetition_penalty": 0.8, "prefix": True,
    },
}  # fmt: skip
PREFIXES = [[5, 6], [], [PAD, 7, 5], [4], [12]]
SEARCHES: dict[str, dict[str, object]] = {
    "greedy": {"strategy": BeamSearch(beam_size=1)},
    "beam": {"n_best": 4},
    "groups": {"n_best": 4, "strategy": DiverseBeamSearch(diversity_penalty=0.7)},
    "sampled": {"n_best": 3, "strategy": Sampling(temperature=0.8, top_p=0.95, seed=1)},
}


def tiny_model(**changes: object) -> Transformer:
    settings = {
        "d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "src_vocab_size": VOCAB_SIZE, "tgt_vocab_size": VOCAB_SIZE, "output_bias": True,
    }  # fmt: skip
    torch.manual_seed(6)
    model = Transformer.from_config(ModelConfig(**{**settings, **changes}))  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():  # larger than at the start, so that outputs differ
            parameter.mul_(30.0 if parameter.ndim > 1 else 1.0)
        model.output.bias[EOS] = 4.0  # and so that some end, and others are cut
    return model.double().eval()


def padded_sources() -> Tensor:
    torch.manual_seed(6)
    src = torch.randint(4, VOCAB_SIZE, (5, 7))
    for row, length in enumerate((7, 2, 5, 1, 7)):
        src[row, length - 1] = EOS
        src[row, length:] = PAD
    return src


def written(found: Hypothesis) -> list[int]:
    return [*found.ids, EOS] if found.finished else [*found.ids]


def assert_scored_as_found(
    model: Transformer, wishes: dict[str, object]
) -> tuple[SearchOptions, list[Hypothesis]]:
    """Search; score what was found, in one pass and step by step; compare; return what was found."""
    src, prefixes = padded_sources(), PREFIXES if wishes.get("prefix") else None
    options = SearchOptions(**{name: wish for name, wish in wishes.items() if name != "prefix"})  # type: ignore[arg-type]
    task = SearchTask(
        max_lengths=LIMITS, start_id=BOS, eos_id=EOS, pad_id=PAD, options=options, sources=src.tolist(),
        prefixes=prefixes,
    )  # fmt: skip
    with torch.inference_mode():
        lists = searched(ModelStep(model, src), task)
        rows = [row for row, hypotheses in enumerate(lists) for _ in hypotheses]
        found = [hypothesis for hypotheses in lists for hypothesis in hypotheses]
        outputs = [written(each) for each in found]
        for step in (ForcedStep(model, src[rows], outputs, start_id=BOS), ModelStep(model, src[rows])):
            of_rows = replace(
                task, max_lengths=[LIMITS[row] for row in rows],
                prefixes=prefixes and [prefixes[row] for row in rows],
            )  # fmt: skip
            scored = score_outputs(step, outputs, of_rows)
            for one, other in zip(scored, found, strict=True):
                assert (one.ids, one.finished) == (other.ids, other.finished)
                assert one.token_log_probs == close(other.token_log_probs, FLOAT64.MODEL)
                assert one.log_prob == close(other.log_prob, FLOAT64.SENTENCE)
                assert one.score == close(other.score, FLOAT64.SENTENCE)
    return options, found


@pytest.mark.parametrize("search_name", SEARCHES)
@pytest.mark.parametrize("mode", MODES)
def test_every_hypothesis_has_the_score_it_was_found_with(mode: str, search_name: str) -> None:
    options, found = assert_scored_as_found(tiny_model(), MODES[mode] | SEARCHES[search_name])
    if options.forced_last_id != EOS and search_name != "greedy":
        assert {each.finished for each in found} == {True, False}
    assert len({each.ids for each in found}) > 2
    assert (options.forced_first_id is None) or all(each.token_log_probs[0] == 0.0 for each in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre", "activation": "gelu"},
        {"positions": "learned", "max_positions": 40, "tied": "none"},
        {"positions": "rotary", "num_kv_heads": 1},
        {"positions": "fairseq", "d_k": 5, "d_v": 7, "attention_bias": False},
    ],
)
def test_so_has_it_in_other_models(changes: dict[str, object]) -> None:
    assert_scored_as_found(tiny_model(**changes), MODES["everything"] | SEARCHES["beam"])
