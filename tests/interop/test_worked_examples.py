"""The worked example of each published system, run here: by its preset, and with its weights."""

import pytest
import torch
from imported_models import System, imported
from published_systems import AbhishekThread, Jadore, Lecture
from searches import searched, searched_greedily
from tolerances import FLOAT32, assert_close, close
from torch import Tensor
from torch.nn.functional import cross_entropy

from heedful.decoding.backends.torch import ModelStep
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import SearchTask
from heedful.model.positions import sinusoids
from heedful.model.transformer import Transformer
from heedful.ops.attention import record_attention
from heedful.settings.model import ModelConfig
from heedful.settings.presets import preset


def built(name: str, **changes: int) -> Transformer:
    torch.manual_seed(79)
    return Transformer.from_config(preset(name).model.replace(**changes)).eval()


def shape_of(config: ModelConfig) -> dict[str, object]:
    """What the weights of a trained model say of its architecture."""
    told = config.model_dump()
    training_alone = ("dropout", "attention_dropout", "activation_dropout")
    return {key: value for key, value in told.items() if key not in training_alone}


@pytest.mark.slow
def test_the_thread_gives_a_distribution_at_each_of_64_positions() -> None:
    """Source length 128, target length 64; one layer of the six, and three rows of the batch."""
    sizes = {"src_vocab_size": 40, "tgt_vocab_size": 50, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = built("abhishek-thread", **sizes, max_positions=128)
    src, tgt = torch.randint(1, 40, (3, 128)), torch.randint(1, 50, (3, 64))
    src[2, 100:], tgt[2, 40:] = 0, 0
    torch.manual_seed(83)
    theirs = AbhishekThread(40, 50, 512, 8, 2048, 1, src_length=128, tgt_length=64).eval()
    ours = imported(System("abhishek-thread", lambda: theirs, {}), theirs.state_dict())
    with torch.no_grad():
        probabilities = model(src, tgt).softmax(-1)
        found, wanted = ours(src, tgt), theirs(src, tgt)
    assert probabilities.shape == (3, 64, 50)
    assert_close(probabilities.sum(-1), torch.ones(3, 64), FLOAT32.ROW)
    assert_close(found[tgt != 0], wanted[tgt != 0], FLOAT32.MODEL)
    assert shape_of(ours.config) == shape_of(model.config)


@pytest.mark.slow
def test_the_lecture_gives_2_7_10() -> None:
    x = torch.tensor([[1, 5, 6, 4, 3, 9, 5, 2, 0], [1, 8, 7, 3, 4, 5, 6, 7, 2]])
    trg = torch.tensor([[1, 7, 4, 3, 5, 9, 2, 0], [1, 5, 6, 2, 4, 7, 6, 2]])
    model = built("nptel-lecture", src_vocab_size=10, tgt_vocab_size=10)
    theirs = Lecture(10, 10).eval()
    ours = imported(System("nptel-lecture", lambda: theirs, {"num_heads": 8}), theirs.state_dict())
    with torch.no_grad():
        assert model(x, trg[:, :-1]).shape == (2, 7, 10)
        assert_close(ours(x, trg[:, :-1]), theirs(x, trg[:, :-1]), FLOAT32.MODEL)
    assert shape_of(ours.config) == shape_of(model.config)


ENGLISH = ["hello how are you", "i am fine thank you"]
GERMAN = ["hallo wie geht es dir", "ich bin gut danke dir"]
PAD, SOS, EOS = 0, 1, 2


def by_first_appearance(lines: list[str]) -> dict[str, int]:
    words = dict.fromkeys(word for line in lines for word in line.split())
    return {word: 3 + i for i, word in enumerate(words)}


def padded(rows: list[list[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


@pytest.mark.slow
def test_the_notebooks_sentences_are_learned_and_decoded_greedily() -> None:
    english, german = by_first_appearance(ENGLISH), by_first_appearance(GERMAN)
    src = padded([[SOS, *(english[word] for word in line.split()), EOS] for line in ENGLISH])
    tgt = padded([[SOS, *(german[word] for word in line.split()), EOS] for line in GERMAN])
    sizes = {"src_vocab_size": 3 + len(english), "tgt_vocab_size": 3 + len(german)}
    model = built("kaggle-notebook", **sizes).train()
    assert model(src, tgt[:, :-1]).shape == (2, 6, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for _ in range(60):
        optimizer.zero_grad()
        logits = model(src, tgt[:, :-1])
        cross_entropy(logits.transpose(1, 2), tgt[:, 1:], ignore_index=PAD).backward()
        optimizer.step()
    words = {i: word for word, i in german.items()}
    with torch.no_grad():
        task = SearchTask(max_lengths=[20, 20], start_id=SOS, eos_id=EOS, pad_id=PAD, options=SearchOptions())
        found = searched_greedily(ModelStep(model.eval(), src), task)
    assert [" ".join(words[i] for i in best.ids) for (best,) in found] == GERMAN


def test_the_notebooks_own_attention_has_the_same_outputs_at_its_size() -> None:
    torch.manual_seed(89)
    theirs = Lecture(11, 12, embed=256, heads=8, num_layers=2, shared=True).eval()
    ours = imported(System("kaggle-notebook", lambda: theirs, {}), theirs.state_dict())
    src, tgt_in = torch.randint(1, 11, (2, 7)), torch.randint(1, 12, (2, 6))
    src[0, 5:] = PAD
    with torch.no_grad():
        assert_close(ours(src, tgt_in), theirs(src, tgt_in), FLOAT32.MODEL)
    wanted = preset("kaggle-notebook").model.replace(
        src_vocab_size=11, tgt_vocab_size=12, num_encoder_layers=2, num_decoder_layers=2
    )
    assert shape_of(ours.config) == shape_of(wanted)


def test_the_diarys_pictures_of_positions_have_their_sizes_and_the_papers_values() -> None:
    small, large = sinusoids(10, 10), sinusoids(1000, 512)
    assert (small.shape, large.shape) == ((10, 10), (1000, 512))
    assert small[0].tolist() == [0.0, 1.0] * 5
    assert large[1, :2].tolist() == close([0.841471, 0.540302], FLOAT32.ELEMENT.printed(6))


def test_the_diarys_model_encodes_decodes_and_projects() -> None:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "src_vocab_size": 13, "tgt_vocab_size": 17}
    model = built("adeveloperdiary", **sizes)
    memory = model.encode(torch.tensor([[3, 4, 5, 0]]))
    states = model.decoder(torch.tensor([[1, 6, 7]]), memory)
    log_probs = model.project(states).log_softmax(-1)
    assert (states.shape, log_probs.shape) == ((1, 3, 512), (1, 3, 17))
    assert_close(log_probs.exp().sum(-1), torch.ones(1, 3), FLOAT32.ROW)


def test_jadores_model_shows_its_attention_and_searches_with_a_beam_of_5() -> None:
    settings = preset("jadore")
    assert settings.decode.beam_size == 5
    assert (settings.optimizer.beta1, settings.optimizer.beta2, settings.optimizer.eps) == (0.9, 0.98, 1e-9)
    assert settings.train.label_smoothing == 0.1
    torch.manual_seed(97)
    theirs = Jadore(13, 17, 512, 2048, 1, 8, 64, 64, scaled="emb").eval()
    given = {"num_heads": 8, "scale_embeddings": True}
    ours = imported(System("jadore", lambda: theirs, given), theirs.state_dict())
    wanted = settings.model.replace(
        src_vocab_size=13, tgt_vocab_size=17, num_encoder_layers=1, num_decoder_layers=1
    )
    assert shape_of(ours.config) == shape_of(wanted)
    src, tgt_in = torch.randint(4, 13, (1, 6)), torch.randint(4, 17, (1, 4))
    with torch.no_grad(), record_attention(ours) as recorder:
        assert_close(ours(src, tgt_in), theirs(src, tgt_in), FLOAT32.MODEL)
        options = SearchOptions(strategy=BeamSearch(beam_size=5), n_best=5)
        task = SearchTask(max_lengths=[9], start_id=2, eos_id=3, pad_id=0, options=options)
        found = searched(ModelStep(ours, src), task)
    assert [tuple(each.weights.shape) for each in recorder.maps[:3]] == [
        (1, 8, 6, 6), (1, 8, 4, 4), (1, 8, 4, 6),
    ]  # fmt: skip
    assert len(found[0]) == 5
