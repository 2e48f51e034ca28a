"""Any layers and heads of any attention: what is chosen, and that a picture shows just that."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_bundle import memorised

from heedful.analysis.attention_maps import MEAN, AttentionMaps, MapChoice, attention_maps
from heedful.analysis.attention_pictures import draw_attention
from heedful.errors import InputError
from heedful.model.attention import MultiHeadAttention

SVG = "{http://www.w3.org/2000/svg}"
SOURCE, TARGET = "the cat sees the dog .", "die Katze sieht ."


@pytest.fixture(scope="module")
def maps() -> AttentionMaps:
    bundle = memorised()
    return attention_maps(bundle, SOURCE, bundle.tokenizers.tgt.encode(TARGET))


def texts(path: Path) -> list[str]:
    return ["".join(each.itertext()).strip() for each in ET.parse(path).iter(f"{SVG}text")]


def test_every_map_is_that_of_torchs_multi_head_attention(maps: AttentionMaps) -> None:
    model, tokenizers = memorised().model, memorised().tokenizers
    called: dict[str, tuple[Any, ...]] = {}
    hooks = [
        part.register_forward_pre_hook(lambda _, inputs, name=name: called.update({name: inputs}))
        for name, part in model.named_modules()
        if isinstance(part, MultiHeadAttention)
    ]
    src = [*tokenizers.src.encode(SOURCE), tokenizers.src.eos_id]
    tgt_in = [tokenizers.tgt.bos_id, *tokenizers.tgt.encode(TARGET)]
    with torch.inference_mode():
        model(torch.tensor([src]), torch.tensor([tgt_in]))
    for hook in hooks:
        hook.remove()
    names = {"encoder": "encoder.layers.{}.self", "decoder": "decoder.layers.{}.self"}
    for layer in maps.layers:
        name = names.get(layer.kind, "decoder.layers.{}.cross").format(layer.layer - 1) + "_attention"
        ours = model.get_submodule(name)
        assert isinstance(ours, MultiHeadAttention)
        theirs = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        projections = [ours.query, ours.key, ours.value]
        theirs.in_proj_weight.data = torch.cat([each.weight for each in projections])
        theirs.in_proj_bias.data = torch.cat([each.bias for each in projections])
        x, context = called[name][:2]
        later = torch.ones(x.shape[1], context.shape[1], dtype=torch.bool).triu(1)
        mask = later if layer.kind == "decoder" else None
        with torch.inference_mode():
            _, expected = theirs(x, context, context, attn_mask=mask, average_attn_weights=False)
        np.testing.assert_allclose(layer.weights, expected[0].numpy(), atol=1e-6)


def test_a_choice_is_read_as_it_is_written() -> None:
    assert MapChoice.parse() == MapChoice(kinds=("cross",), layers=(), heads=None)
    assert MapChoice.parse("all", layers="all", heads="all") == MapChoice(
        kinds=("encoder", "decoder", "cross"), layers=None, heads=None
    )
    assert MapChoice.parse("decoder", layers="2, 1,2", heads="mean,4") == MapChoice(
        kinds=("decoder",), layers=(2, 1), heads=("mean", 4)
    )


@pytest.mark.parametrize("wrong", ["", "0", "-1", "1.5", "²", "last", "1,,2"])
def test_what_is_no_number_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="not a number from 1 on"):
        MapChoice.parse(layers=wrong)
    with pytest.raises(InputError, match="not a number from 1 on"):
        MapChoice.parse(heads=wrong)


def test_the_chosen_maps_are_selected_in_order(maps: AttentionMaps) -> None:
    selected = maps.select(MapChoice.parse("decoder,cross", layers="2,1", heads="3,mean"))
    assert [(layer.kind, layer.layer, heads) for layer, heads in selected] == [
        (kind, layer, (3, MEAN)) for kind in ("decoder", "cross") for layer in (2, 1)
    ]
    last, heads = maps.select(MapChoice())[0]
    assert (last.kind, last.layer, heads) == ("cross", 2, (MEAN, 1, 2, 3, 4))
    np.testing.assert_array_equal(last.of_head(4), last.weights[3])
    np.testing.assert_allclose(last.of_head(MEAN), sum(last.weights) / 4, atol=1e-7)
    with pytest.raises(InputError, match="layer 3 does not exist; the encoder has layers 1 to 2"):
        maps.select(MapChoice.parse("encoder", layers="1,3"))
    with pytest.raises(InputError, match="head 5 does not exist; a layer has heads 1 to 4"):
        maps.select(MapChoice.parse(heads="5"))


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (("cross", None, "all"), ["mean of the heads", *(f"head {i}" for i in range(1, 5))]),
        (("encoder", "1", "2"), ["head 2"]),
        (("decoder", "all", "1,4"), [f"decoder {i}, head {head}" for i in (1, 2) for head in (1, 4)]),
        (
            ("all", "all", "mean"),
            [f"{kind} {i}, mean of the heads" for kind in ("encoder", "decoder", "cross") for i in (1, 2)],
        ),
    ],
)
def test_a_picture_shows_the_chosen_maps_and_no_others(
    maps: AttentionMaps, tmp_path: Path, choice: tuple[str, str | None, str], names: list[str]
) -> None:
    kinds, layers, heads = choice
    draw_attention(maps, tmp_path / "a.svg", choice=MapChoice.parse(kinds, layers=layers, heads=heads))
    shown = [text.split("  (")[0] for text in texts(tmp_path / "a.svg") if "head" in text]
    assert sorted(shown) == sorted(names)
    # matplotlib draws the scale of a single layer as an image too
    images = list(ET.parse(tmp_path / "a.svg").iter(f"{SVG}image"))
    assert len(images) == len(names) + (choice[1] in (None, "1"))


def test_labels_in_an_svg_are_text_that_xml_can_hold(tmp_path: Path) -> None:
    bundle = memorised()
    hostile = "<b>&amp;\"' \x07 $x$ ]]>"
    maps = attention_maps(bundle, hostile, bundle.tokenizers.tgt.encode(TARGET))
    tokens = ("▁<b>&amp;\"'", "▁\x07", "▁$x$", "▁]]>", *maps.source_tokens[4:])
    drawn = AttentionMaps(**(vars(maps) | {"source_tokens": tokens}))
    draw_attention(drawn, tmp_path / "a.svg")
    assert {"<b>&amp;\"'", "\ufffd", "$x$", "]]>"} <= set(texts(tmp_path / "a.svg"))


def test_the_same_maps_give_the_same_svg(maps: AttentionMaps, tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw_attention(maps, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_picture_has_the_name_of_one(maps: AttentionMaps, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"end the name in \.png or \.svg"):
        draw_attention(maps, tmp_path / "a.pdf")
