import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_bundle import memorised

from heedful.analysis.attention_maps import AttentionMaps, MapChoice, attention_maps, write_attention_json
from heedful.analysis.attention_pictures import draw_attention, write_attention_page
from heedful.analysis.plotting import readable_tokens
from heedful.errors import InputError, MissingExtraError, install_hint


@pytest.fixture(scope="module")
def maps() -> AttentionMaps:
    bundle = memorised()
    return attention_maps(bundle, "the cat sees the dog .", bundle.tokenizers.tgt.encode("die Katze sieht ."))


def test_every_layer_and_kind_has_a_map_of_the_right_shape(maps: AttentionMaps) -> None:
    assert [(m.kind, m.layer) for m in maps.layers] == [
        (kind, layer) for kind in ("encoder", "decoder", "cross") for layer in (1, 2)
    ]
    for layer in maps.layers:
        rows, columns = maps.labels(layer.kind)
        assert layer.weights.shape == (4, len(rows), len(columns))
        np.testing.assert_allclose(layer.weights.sum(-1), 1.0, atol=1e-5)


def test_the_decoder_looks_at_no_later_piece(maps: AttentionMaps) -> None:
    for layer in maps.of("decoder"):
        assert not np.triu(layer.weights, k=1).any()


def test_rows_are_named_after_the_pieces_that_are_produced(maps: AttentionMaps) -> None:
    assert maps.source_tokens[-1] == maps.target_tokens[-1] == "</s>"
    assert maps.target_in_tokens[0] == "<s>"
    assert maps.target_in_tokens[1:] == maps.target_tokens[:-1]
    assert maps.target == "die Katze sieht ."


def test_json_holds_the_maps_to_four_digits(maps: AttentionMaps, tmp_path: Path) -> None:
    write_attention_json(maps, tmp_path / "new" / "a.json")
    read = json.loads((tmp_path / "new" / "a.json").read_text(encoding="utf-8"))
    assert read["source_pieces"] == list(maps.source_tokens)
    np.testing.assert_allclose(read["maps"][-1]["weights"], maps.of("cross")[-1].weights, atol=6e-5)


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


def test_a_sentence_without_text_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        attention_maps(memorised(), " ", [])


def test_the_picture_is_a_png_of_the_chosen_layer(maps: AttentionMaps, tmp_path: Path) -> None:
    for layer in ((), (1,)):
        draw_attention(maps, tmp_path / "a.png", choice=MapChoice(layers=layer))
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    with pytest.raises(InputError, match="layer 3 does not exist; the decoder has layers 1 to 2"):
        draw_attention(maps, tmp_path / "a.png", choice=MapChoice(layers=(3,)))


def test_characters_that_no_font_has_do_no_harm(maps: AttentionMaps, tmp_path: Path) -> None:
    pieces = ("▁\U000f0000", "▁$x_{", *maps.source_tokens[2:])
    draw_attention(replace(maps, source_tokens=pieces), tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_dollar_signs_are_no_formula(maps: AttentionMaps, tmp_path: Path) -> None:
    pieces = ["$$", "$\\frac$", "$x_$", *maps.source_tokens[3:]]
    draw_attention(replace(maps, source_tokens=pieces, target_tokens=maps.target_tokens), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_one_line_says_what_to_install(
    maps: AttentionMaps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = f"plotting needs matplotlib: {install_hint('plot')}"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        draw_attention(maps, tmp_path / "a.png")


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
