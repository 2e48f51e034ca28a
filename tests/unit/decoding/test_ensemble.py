import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from searches import searched
from step_tables import BOS, Table, TableStep, random_table, task_of
from tagged_bundle import nllb_like
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT32, FLOAT64, assert_close, close

from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import EnsembleStep
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.storage.bundle import Bundle

pytestmark = pytest.mark.by_class

LINES = [source for source, _ in PAIRS]


def another(seed: int, noise: float = 0.3) -> Bundle:
    """A bundle with the same tokenizers and other weights."""
    bundle = memorised()
    model = copy.deepcopy(bundle.model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += noise * weight.std() * torch.randn(weight.shape, generator=generator)
    return replace(bundle, network=model)


def test_a_search_over_tables_is_one_over_the_table_of_their_mean_probabilities() -> None:
    tables = [random_table(seed, 7) for seed in (1, 2, 3)]

    def mean(sentence: int, written: tuple[int, ...]) -> list[float]:
        rows = zip(*(table(sentence, written) for table in tables), strict=True)
        return [math.log(sum(map(math.exp, row)) / 3) for row in rows]

    def found(step: TableStep | EnsembleStep) -> list[tuple[tuple[int, ...], float]]:
        hypotheses = searched(
            step, task_of([8, 5], SearchOptions(strategy=BeamSearch(beam_size=4), n_best=4))
        )
        return [(each.ids, each.log_prob) for one in hypotheses for each in one]

    ensemble = EnsembleStep([TableStep(table, 2) for table in tables])
    assert_close(found(ensemble), found(TableStep(mean, 2)), FLOAT64.ROW)


def test_what_one_model_rules_out_another_may_write() -> None:
    sure: Table = lambda _b, _ids: [-math.inf, -math.inf, 0.0, -math.inf, -math.inf]  # noqa: E731
    other: Table = lambda _b, _ids: [-math.inf, -math.inf, -math.inf, 0.0, -math.inf]  # noqa: E731
    tokens = EnsembleStep([TableStep(sure, 1), TableStep(other, 1)])(np.array([BOS]))
    assert np.exp(tokens.log_probs()).tolist() == [close([0, 0, 0.5, 0.5, 0], FLOAT64.ROW)]


@pytest.mark.parametrize("options", [SearchOptions(n_best=2), SearchOptions(strategy=Sampling(), n_best=2)])
def test_log_probabilities_are_those_of_the_mean_of_whole_models(options: SearchOptions) -> None:
    bundles = [memorised(), another(1), another(2)]
    src, tgt = bundles[0].tokenizers.src, bundles[0].tokenizers.tgt
    found = Translator(bundles[0], ensemble=bundles[1:]).translations(LINES, options=options)
    for line, translation in zip(LINES, found, strict=True):
        for hypothesis in translation.hypotheses:
            written = [*hypothesis.ids, *[tgt.eos_id] * hypothesis.finished]
            source = torch.tensor([[*src.encode(line), src.eos_id]])
            fed = torch.tensor([[tgt.bos_id, *written[:-1]]])
            with torch.inference_mode():
                mean = sum(bundle.model(source, fed)[0].softmax(-1) for bundle in bundles) / 3
            expected = mean[range(len(written)), written].log().tolist()
            assert list(hypothesis.token_log_probs) == close(expected, FLOAT32.MODEL)


def test_every_model_is_left_in_training_as_it_was() -> None:
    bundles = [another(1), another(2)]
    bundles[1].model.train()
    Translator(bundles[0], ensemble=bundles[1:]).translate(LINES[:1])
    assert [bundle.model.training for bundle in bundles] == [False, True]


def test_languages_are_those_of_every_model() -> None:
    bundle = nllb_like()
    one = Translator(bundle).for_languages(src_lang="deu_Latn", tgt_lang="fra_Latn")
    two = Translator(bundle, ensemble=[bundle]).for_languages(src_lang="deu_Latn", tgt_lang="fra_Latn")
    assert two.translate(["the house"]) == one.translate(["the house"])
    french = one.bundle
    with pytest.raises(InputError, match="special tokens"):
        Translator(bundle, ensemble=[french])


def test_models_of_other_vocabularies_are_refused() -> None:
    with pytest.raises(InputError, match=r"^ensemble: model 3"):
        Translator(memorised(), ensemble=[memorised(), nllb_like()])
