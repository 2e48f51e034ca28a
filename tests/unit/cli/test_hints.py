"""An option that does not exist is answered with what does the same here."""

import pytest
from command_line import assert_one_clear_line, heedful

from heedful.errors import ConfigError, likely_names, suggestion
from heedful.settings.loading import load_config, parse_override
from heedful.settings.run import Config
from heedful.settings.section import whole_keys
from heedful.settings.words import WORDS


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("train --lr 0.1", "--set schedule.peak=0.1"),
        ("train --lr=0.1", "--set schedule.peak=0.1"),
        ("train --epochs 3", "--set train.max_epochs=3"),
        ("train --steps 3", "--set train.max_steps=3"),
        ("train --max-minutes 3", "--set train.max_minutes=3"),
        ("train --batch-size 64", "--set batch.tokens=64"),
        ("train --dropout 0.2", "--set model.dropout=0.2"),
        ("train --seed 7", "--set train.seed=7"),
        ("train --num-layers 3", "--set model.num_encoder_layers=3 or --set model.num_decoder_layers=3"),
        ("train --layers 3", "--set model.num_encoder_layers=3"),
        ("train --optimizer muon", "--set optimizer.name=muon"),
        ("train --gradient-accumulation-steps 2", "--set batch.accumulation=2"),
        ("train --fp16", "--set train.precision"),
        ("train --output-dir x", "--output"),
        ("train --outptu x", "--output"),
        ("translate --beam 3", "--beam-size"),
        ("serve --key keys.json", "--keys"),
        ("export x -o y --to ct2", "ctranslate2"),
        ("export x -o y --to huggingface", "marian"),
        ("train --set lr=0.1", "schedule.peak=0.1"),
        ("train --set train.lr=0.1", "schedule.peak"),
        ("train --set train.dropout=0.1", "model.dropout"),
        ("train --set model.hidden_size=64", "d_model"),
    ],
)
def test_what_other_toolkits_call_it_is_answered_with_what_to_write(typed: str, written: str) -> None:
    outcome = heedful(*typed.split())
    assert_one_clear_line(outcome, 1 if typed.startswith("export") else 2, written)


def test_an_option_of_a_hint_is_taken() -> None:
    said = heedful("train", "--lr", "0.1").err
    key, value = parse_override(said.partition("--set ")[2].partition(";")[0])
    assert load_config(preset="tiny", overrides=[(key, value)]).schedule.peak == value


def test_what_is_like_nothing_has_no_hint() -> None:
    keys = whole_keys(Config)
    for name in ("xyzzy", "", "q"):
        assert likely_names(name, keys, WORDS) == []
    assert "there are: one, two" in suggestion("xyzzy", ["one", "two"])


def test_other_words_stand_for_names_that_exist() -> None:
    names = {*whole_keys(Config), "--src", "--tgt", "--init", "--output", "--preset", "marian"}
    assert {*WORDS.values()} <= names
    assert {*WORDS}.isdisjoint(key.partition(".")[2] for key in whole_keys(Config))


def test_a_setting_in_python_has_the_same_hint() -> None:
    from heedful.tasks.train import train

    with pytest.raises(ConfigError, match=r"schedule\.peak"):
        train(src="a", tgt="b", lr=0.1)
