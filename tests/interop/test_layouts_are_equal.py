"""Every layout: a random model of that system and what is imported from it compute the same logits.

The other side of each comparison is written in tests/support from the system's description alone.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from command_line import heedful
from imported_models import SYSTEMS, System, batch, imported, random_model, real_logits
from swapped_tensors import swaps
from ten_pairs import as_options, write_pairs
from tolerances import FLOAT32, FLOAT64, assert_apart, assert_close
from torch import Tensor, nn

from heedful.errors import InteropError
from heedful.interop.conversion import Conversion, Positions, move_positions
from heedful.interop.layouts import LAYOUTS
from heedful.ops.attention import record_attention
from heedful.settings.presets import PUBLISHED

EACH = pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
# A bias of the keys adds the same to all scores of a query, which softmax does not see.
NO_EFFECT = re.compile(r"(\.key|w_ks|k_proj|linears\.1)\.bias$")


def test_every_layout_has_a_system_to_be_compared_with() -> None:
    assert {system.layout for system in SYSTEMS.values()} == set(LAYOUTS)


@EACH
def test_logits_are_equal_in_float32(system: System) -> None:
    theirs = random_model(system)
    ours = imported(system, theirs.state_dict())
    wanted = real_logits(theirs)
    assert wanted.abs().mean() > 0.1
    assert_close(real_logits(ours), wanted, FLOAT32.MODEL)


@EACH
def test_logits_are_equal_in_float64_to_the_epsilon_of_the_norms(system: System) -> None:
    theirs = random_model(system, torch.float64)
    ours = imported(system, theirs.state_dict(), torch.float64)
    # A norm's epsilon beside the deviation, not in the root; a table of sinusoids in float32.
    differs = system.layout in ("annotated", "adeveloperdiary", "torch", "fairseq")
    assert_close(real_logits(ours), real_logits(theirs), (FLOAT32 if differs else FLOAT64).MODEL)


@EACH
def test_a_sentence_alone_equals_the_same_among_others(system: System) -> None:
    theirs = random_model(system)
    ours = imported(system, theirs.state_dict())
    src, tgt_in = batch()
    alone = theirs(src[1:2, :2], tgt_in[1:2])
    assert_close(ours(src, tgt_in)[1:2], alone, FLOAT32.MODEL)


def variants(tensors: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Two neighbours of one shape swapped; one tensor with its rows moved on by one."""
    for name, tensor in tensors.items():
        longer_than_1 = [dim for dim, size in enumerate(tensor.shape) if size > 1]
        if longer_than_1 and not NO_EFFECT.search(name):
            yield f"{name} rolled", tensors | {name: tensor.roll(1, longer_than_1[0])}
    yield from swaps(tensors, but=NO_EFFECT.pattern)


@pytest.mark.slow
@EACH
def test_a_swapped_or_permuted_tensor_is_noticed(system: System) -> None:
    theirs = random_model(system)
    wanted = real_logits(theirs)
    tensors = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    changed = list(variants(tensors))
    assert len(changed) > 60
    for what, others in changed:
        assert_apart(real_logits(imported(system, others)), wanted, FLOAT32.MODEL, note=what)


def test_recorded_maps_are_the_attention_weights_that_jadores_layers_return() -> None:
    system = SYSTEMS["jadore, emb"]
    theirs = random_model(system)
    ours = imported(system, theirs.state_dict())
    src, tgt_in = batch()
    theirs(src, tgt_in)
    with record_attention(ours) as recorder:
        ours(src, tgt_in)
    assert len(recorder.maps) == len(theirs.weights) == 6
    real = tgt_in != 0
    for found, wanted in zip(recorder.maps, theirs.weights, strict=True):
        rows = real if found.name.startswith("decoder") else src != 0
        one, other = found.weights.transpose(1, 2)[rows], wanted.detach().transpose(1, 2)[rows]
        assert_close(one, other, FLOAT32.MODEL)


def test_ties_are_found_in_the_weights() -> None:
    ties = {name: imported(s, random_model(s).state_dict()).config.tied for name, s in SYSTEMS.items()}
    assert {name: tie for name, tie in ties.items() if tie != "none"} == {
        "jadore, emb": "target", "jadore, neither": "all", "jadore, prj": "all", "fairseq": "target",
    }  # fmt: skip


def test_tables_that_are_the_papers_sinusoids_are_computed_and_others_come_along() -> None:
    def positions(name: str) -> tuple[str, int]:
        model = imported(SYSTEMS[name], random_model(SYSTEMS[name]).state_dict())
        return model.config.positions, model.config.max_positions

    assert positions("jadore, emb")[0] == "sinusoidal"
    assert positions("torch, pre-norm")[0] == "sinusoidal"
    assert positions("adeveloperdiary, as listed") == ("learned", 40)
    assert positions("annotated") == ("learned", 5000)
    assert positions("abhishek-thread") == ("learned", 11)


def test_the_papers_sinusoids_may_be_asked_for_in_place_of_a_computed_table() -> None:
    system = SYSTEMS["annotated"]
    theirs = random_model(system)
    asked = System(system.layout, system.build, {**system.settings, "positions": "sinusoidal"})
    ours = imported(asked, theirs.state_dict())
    assert ours.config.positions == "sinusoidal"
    assert_close(real_logits(ours), real_logits(theirs), FLOAT32.MODEL)


def test_a_stack_may_have_any_name_below_its_side() -> None:
    system = SYSTEMS["abhishek-thread"]
    theirs = random_model(system)
    tensors = theirs.state_dict()
    for encoder, decoder in (("encoder.", "decoder."), ("net.encoder.stack.", "net.decoder.inner.list.")):
        renamed = {
            name.replace("encoder.blocks.", encoder).replace("decoder.blocks.", decoder): tensor
            for name, tensor in tensors.items()
        }
        assert_close(real_logits(imported(system, renamed)), real_logits(theirs), FLOAT32.MODEL)


@pytest.mark.parametrize(
    ("src", "tgt", "src_positions", "tgt_positions", "output"),
    [
        ("encoder.word_embedding", "decoder.word_embedding", "encoder.pos", "decoder.pos", "decoder.fc_out"),
        ("source.tokens", "target.tokens", "source.position_embedding", "target.position_embedding", "head"),
        ("inputEmbedding", "outputEmbedding", "inputPositions", "outputPositions", "output"),
        ("enc_emb", "decoder.input_emb", "enc_pe", "decoder.input_pe", "generator.proj"),
    ],
)
def test_what_surrounds_the_stacks_is_known_by_the_words_in_its_name(
    src: str, tgt: str, src_positions: str, tgt_positions: str, output: str
) -> None:
    system = SYSTEMS["abhishek-thread"]
    theirs = random_model(system)
    names = {
        "src_embedding": src, "tgt_embedding": tgt, "src_positions": src_positions,
        "tgt_positions": tgt_positions, "linear": output,
    }  # fmt: skip
    tensors = {}
    for name, tensor in theirs.state_dict().items():
        module, _, kind = name.rpartition(".")
        tensors[f"{names.get(module, module)}.{kind}"] = tensor
    assert_close(real_logits(imported(system, tensors)), real_logits(theirs), FLOAT32.MODEL)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("src_embedding", "the encoder has no token embedding"),
        ("tgt_positions", "the decoder has no position table"),
        ("linear", "one Linear for the logits is expected"),
    ],
)
def test_what_is_missing_around_the_stacks_is_named(gone: str, message: str) -> None:
    system = SYSTEMS["abhishek-thread"]
    tensors = random_model(system).state_dict()
    with pytest.raises(InteropError, match=message):
        imported(system, {name: t for name, t in tensors.items() if not name.startswith(gone)})


def test_what_cannot_be_told_apart_is_not_guessed() -> None:
    system = SYSTEMS["abhishek-thread"]
    tensors = random_model(system).state_dict()
    unclear = {
        name.replace("src_embedding", "one").replace("tgt_embedding", "two"): t for name, t in tensors.items()
    }
    with pytest.raises(InteropError, match=r"'one\.weight'"):
        imported(system, unclear)
    without = {name: t for name, t in tensors.items() if "positions" not in name}
    with pytest.raises(InteropError, match="positions"):
        imported(system, without)


def test_one_embedding_and_one_table_may_serve_both_sides() -> None:
    system = SYSTEMS["abhishek-thread"]
    theirs = random_model(system)
    with torch.no_grad():
        theirs.src_embedding.weight = nn.Parameter(theirs.tgt_embedding.weight.clone())
        theirs.src_positions.weight = nn.Parameter(theirs.tgt_positions.weight.clone())
    tensors = theirs.state_dict()
    shared = {n: t for n, t in tensors.items() if not n.startswith(("src_", "tgt_"))} | {
        "embedding.weight": tensors["tgt_embedding.weight"],
        "position.weight": tensors["tgt_positions.weight"],
    }
    assert_close(real_logits(imported(system, shared)), real_logits(theirs), FLOAT32.MODEL)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_stack_without_a_table_has_the_others(monkeypatch: pytest.MonkeyPatch, stack: str) -> None:
    table = torch.arange(35.0).reshape(7, 5)
    conversion = Conversion({"table": table}, layout="x", origin=Path("x"), settings={}, beside=None)
    moved: dict[str, Tensor] = {}
    monkeypatch.setattr(conversion, "put", lambda ours, tensor, **_: moved.update({ours: tensor}))
    move_positions(conversion, {stack: "table"}, Positions(fixed=True))
    assert sorted(moved) == [f"{each}.embedding.positions.weight" for each in ("decoder", "encoder")]
    assert all(torch.equal(each, table) for each in moved.values())


SMALL: dict[str, object] = {
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "tokenizer.vocab_size": 80,
    "train.threads": 1,
    "train.max_steps": 6,
    "schedule.warmup_steps": 3,
    "train.average_checkpoints": 1,
}


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_preset_trains_and_translates(name: str, tmp_path: Path) -> None:
    settings = SMALL | {"data.cache_dir": tmp_path / "cache"}
    files = write_pairs(tmp_path)[:4]
    outcome = heedful("train", *files, "--preset", name, *as_options(settings), "--output", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    outcome = heedful("translate", tmp_path / "run", "--max-length-offset", 5, stdin=b"The dog sleeps.\n")
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("\n") == 1
