import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_bundle import memorised
from tolerances import FLOAT32, assert_close

from heedful.analysis.attention_maps import (
    MEAN,
    AttentionMaps,
    MapChoice,
    attention_maps,
    write_attention_json,
)
from heedful.analysis.attention_pictures import attention_figure, draw_attention, write_attention_page
from heedful.analysis.plotting import readable_tokens
from heedful.errors import InputError
from heedful.model.attention import MultiHeadAttention

SOURCE, TARGET = "the cat sees the dog .", "die Katze sieht ."


@pytest.fixture(scope="module")
def maps() -> AttentionMaps:
    bundle = memorised()
    return attention_maps(bundle, SOURCE, bundle.tokenizers.tgt.encode(TARGET))


def test_every_layer_and_kind_has_a_map_of_the_right_shape(maps: AttentionMaps) -> None:
    assert [(m.kind, m.layer) for m in maps.layers] == [
        (kind, layer) for kind in ("encoder", "decoder", "cross") for layer in (1, 2)
    ]
    for layer in maps.layers:
        rows, columns = maps.labels(layer.kind)
        assert layer.weights.shape == (4, len(rows), len(columns))
        assert_close(layer.weights.sum(-1), 1.0, FLOAT32.ROW)


def test_rows_are_named_after_the_pieces_that_are_produced(maps: AttentionMaps) -> None:
    assert maps.source_tokens[-1] == maps.target_tokens[-1] == "</s>"
    assert maps.target_in_tokens[0] == "<s>"
    assert maps.target_in_tokens[1:] == maps.target_tokens[:-1]
    assert maps.target == "die Katze sieht ."


def test_json_holds_the_maps_to_four_digits(maps: AttentionMaps, tmp_path: Path) -> None:
    write_attention_json(maps, tmp_path / "new" / "a.json")
    read = json.loads((tmp_path / "new" / "a.json").read_text(encoding="utf-8"))
    assert read["source_pieces"] == list(maps.source_tokens)
    assert_close(read["maps"][-1]["weights"], maps.of("cross")[-1].weights, FLOAT32.ROW.printed(4))


def test_the_page_needs_nothing_else_and_cannot_be_broken_by_its_text(tmp_path: Path) -> None:
    bundle = memorised()
    hostile = "</script><script>alert(1)</script> & the cat"
    maps = attention_maps(bundle, hostile, bundle.tokenizers.tgt.encode("die Katze"))
    write_attention_page(maps, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.count("<script") == 2
    assert "http" not in page
    assert "src=" not in page
    data = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)["source"] == hostile


def test_a_page_has_the_labels_of_a_picture(maps: AttentionMaps, tmp_path: Path) -> None:
    tokens = ("▁the", "▁green", "house", "</s>")
    write_attention_page(replace(maps, source_tokens=tokens), tmp_path / "a.html")
    data = (tmp_path / "a.html").read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)["source_pieces"] == ["the", "green", "·house", "</s>"]


def test_what_cannot_be_drawn_is_refused(maps: AttentionMaps, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        attention_maps(memorised(), " ", [])
    with pytest.raises(InputError, match="layer 3"):
        draw_attention(maps, tmp_path / "a.png", choice=MapChoice(layers=(3,)))
    with pytest.raises(InputError, match=r"\.svg"):
        draw_attention(maps, tmp_path / "a.pdf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pieces", [("▁\U000f0000", "▁$x_{"), ("$$", "$\\frac$", "$x_$")])
def test_characters_without_a_glyph_and_dollar_signs_do_no_harm(
    maps: AttentionMaps, pieces: tuple[str, ...], tmp_path: Path
) -> None:
    tokens = (*pieces, *maps.source_tokens[len(pieces) :])
    draw_attention(replace(maps, source_tokens=tokens), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("pieces", "labels"),
    [
        (["▁the", "▁green", "house", "s", "</s>"], ["the", "green", "·house", "·s", "</s>"]),
        (["K", "AE", "T"], ["K", "AE", "T"]),
        (["▁", "x"], ["␣", "·x"]),
        ([], []),
    ],
)
def test_labels_are_readable(pieces: list[str], labels: list[str]) -> None:
    assert readable_tokens(pieces) == labels


SVG = "{http://www.w3.org/2000/svg}"


def svg_texts(path: Path) -> list[str]:
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
        assert_close(layer.weights, expected[0].numpy(), FLOAT32.ROW)


def test_a_choice_is_read_as_it_is_written() -> None:
    assert MapChoice.parse() == MapChoice(kinds=("cross",), layers=(), heads=None)
    assert MapChoice.parse("all", layers="all", heads="all") == MapChoice(
        kinds=("encoder", "decoder", "cross"), layers=None, heads=None
    )
    assert MapChoice.parse("decoder", layers="2, 1,2", heads="mean,4") == MapChoice(
        kinds=("decoder",), layers=(2, 1), heads=("mean", 4)
    )


@pytest.mark.parametrize("wrong", ["", "0", "-1", "1.5", "²", "last", "1,,2"])
def test_layers_and_heads_are_numbers_from_1(wrong: str) -> None:
    with pytest.raises(InputError, match="layer"):
        MapChoice.parse(layers=wrong)
    with pytest.raises(InputError, match="head"):
        MapChoice.parse(heads=wrong)


def test_the_chosen_maps_are_selected_in_order(maps: AttentionMaps) -> None:
    selected = maps.select(MapChoice.parse("decoder,cross", layers="2,1", heads="3,mean"))
    assert [(layer.kind, layer.layer, heads) for layer, heads in selected] == [
        (kind, layer, (3, MEAN)) for kind in ("decoder", "cross") for layer in (2, 1)
    ]
    last, heads = maps.select(MapChoice())[0]
    assert (last.kind, last.layer, heads) == ("cross", 2, (MEAN, 1, 2, 3, 4))
    np.testing.assert_array_equal(last.of_head(4), last.weights[3])
    assert_close(last.of_head(MEAN), sum(last.weights) / 4, FLOAT32.ELEMENT)
    with pytest.raises(InputError, match="layer 3"):
        maps.select(MapChoice.parse("encoder", layers="1,3"))
    with pytest.raises(InputError, match="head 5"):
        maps.select(MapChoice.parse(heads="5"))


@pytest.mark.representatives(1)
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
    shown = [text for text in svg_texts(tmp_path / "a.svg") if "head" in text]
    assert sorted(shown) == sorted(names)
    # matplotlib draws the scale of a single layer as an image too
    images = list(ET.parse(tmp_path / "a.svg").iter(f"{SVG}image"))
    assert len(images) == len(names) + (choice[1] in (None, "1"))


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_no_title_reaches_into_the_next_map(kind: str) -> None:
    bundle = memorised()
    short = attention_maps(bundle, "the cat", bundle.tokenizers.tgt.encode("die Katze"))
    figure = attention_figure(short, choice=MapChoice.parse(kind))
    figure.draw_without_rendering()
    titles = [axes._left_title for axes in figure.axes if axes.get_title(loc="left")]  # type: ignore[attr-defined]
    assert len(titles) == 5  # the mean, and four heads
    boxes = [title.get_window_extent() for title in titles]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.slow
def test_the_title_says_once_that_a_dot_continues_a_word(maps: AttentionMaps, tmp_path: Path) -> None:
    hint = "(·: continues a word)"
    draw_attention(maps, tmp_path / "a.svg")
    assert "".join(svg_texts(tmp_path / "a.svg")).count(hint) == 1
    whole = replace(maps, source_tokens=("▁a",) * 7, target_tokens=("▁b",) * 5)
    draw_attention(whole, tmp_path / "b.svg")
    assert hint not in "".join(svg_texts(tmp_path / "b.svg"))


def test_labels_in_an_svg_are_text_that_xml_can_hold(tmp_path: Path) -> None:
    bundle = memorised()
    hostile = "<b>&amp;\"' \x07 $x$ ]]>"
    maps = attention_maps(bundle, hostile, bundle.tokenizers.tgt.encode(TARGET))
    tokens = ("▁<b>&amp;\"'", "▁\x07", "▁$x$", "▁]]>", *maps.source_tokens[4:])
    draw_attention(replace(maps, source_tokens=tokens), tmp_path / "a.svg")
    assert {"<b>&amp;\"'", "\ufffd", "$x$", "]]>"} <= set(svg_texts(tmp_path / "a.svg"))


@pytest.mark.slow
def test_the_same_maps_give_the_same_svg(maps: AttentionMaps, tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw_attention(maps, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_maps_draw_and_write_themselves(maps: AttentionMaps, tmp_path: Path) -> None:
    choice = MapChoice(kinds=("encoder",), layers=(1,), heads=(2,))
    draw_attention(maps, tmp_path / "wanted.svg", choice=choice)
    maps.save(tmp_path / "found.svg", "encoder", layer=1, head=2)
    assert (tmp_path / "found.svg").read_bytes() == (tmp_path / "wanted.svg").read_bytes()
    assert len(maps.plot().axes) == len(attention_figure(maps).axes)
    for name in ("all.json", "all.html"):
        maps.save(str(tmp_path / name))
        assert maps.target in (tmp_path / name).read_text(encoding="utf-8")


def test_what_a_model_lacks_is_refused(maps: AttentionMaps, tmp_path: Path) -> None:
    for show in (maps.of, maps.plot, lambda kind: maps.save(tmp_path / "a.png", kind)):
        with pytest.raises(InputError, match="'cross', 'encoder', 'decoder'"):
            show("self")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="layers 1 to 2"):
        maps.plot(layer=3)
    with pytest.raises(InputError, match=r"\.svg"):
        maps.save(tmp_path / "a.pdf")
