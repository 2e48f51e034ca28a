"""`heedful train --init`: it learns the new text, keeps what is to stay, and can be killed like any run."""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from command_line import Outcome, assert_one_clear_line, heedful
from safetensors.torch import load_file
from ten_pairs import as_options
from tiny_bundle import memorised, save_memorised

from heedful import InputError, Translator
from heedful.settings.loading import load_config
from heedful.storage.bundle import load_bundle, save_model
from heedful.storage.description import file_sha256

pytestmark = pytest.mark.by_class

# Of the words that the tiny bundle knows, in sentences that it does not.
PAIRS = (
    ("the cat sees the cat .", "die Katze sieht die Katze ."),
    ("the dog sees the dog .", "der Hund sieht den Hund ."),
    ("does the cat see the dog ?", "sieht die Katze den Hund ?"),
    ("does the dog see the cat ?", "sieht der Hund die Katze ?"),
    ("does the dog see the dog ?", "sieht der Hund den Hund ?"),
    ("does the cat see the cat ?", "sieht die Katze die Katze ?"),
    ("the cat sees . the dog sleeps .", "die Katze sieht . der Hund schläft ."),
    ("the dog sees . the cat sleeps .", "der Hund sieht . die Katze schläft ."),
    ("the dog sleeps . the dog sees .", "der Hund schläft . der Hund sieht ."),
    ("the cat sleeps . the cat sees .", "die Katze schläft . die Katze sieht ."),
)
SETTINGS = {
    "schedule.name": "constant",
    "schedule.peak": 3e-3,
    "schedule.warmup_steps": 5,
    "train.max_steps": 20,
    "train.average_checkpoints": 1,
    "train.threads": 1,
    "valid.every_steps": 10,
    "valid.decode_sentences": 0,
}
# Everything with a state is on: dropout, subword sampling, accumulation, a moving average or a mean.
STATEFUL = {"model.dropout": 0.1, "tokenizer.sampling": 0.1, "batch.tokens": 96, "batch.accumulation": 2}
LORA = {"lora.rank": 4, "lora.dropout": 0.1, "lora.targets": "query,value,output,inner"}
MEAN = {"train.average_checkpoints": 3, "train.checkpoint_every_steps": 6}


@dataclass(frozen=True)
class Desk:
    """A bundle and ten new pairs in a folder."""

    folder: Path

    @property
    def base(self) -> Path:
        return self.folder / "tiny"

    def train(self, name: str, settings: dict[str, object], *options: object) -> Outcome:
        return self.train_as_set(name, SETTINGS | settings, *options)

    def train_as_set(self, name: str, settings: dict[str, object], *options: object) -> Outcome:
        files = ["--src", self.folder / "new.en", "--tgt", self.folder / "new.de"]
        settings = {"data.cache_dir": self.folder / "cache"} | settings
        return heedful("train", *files, *as_options(settings), "--output", self.folder / name, *options)

    def adapt(self, name: str, settings: dict[str, object], base: str = "tiny") -> dict[str, torch.Tensor]:
        """The weights of the last bundle."""
        outcome = self.train(name, settings, "--init", self.folder / base)
        assert outcome.code == 0, outcome.err
        return self.weights(f"{name}/last")

    def weights(self, bundle: str) -> dict[str, torch.Tensor]:
        return load_file(self.folder / bundle / "model.safetensors")

    def nlls(self, name: str) -> dict[int, float]:
        lines = (self.folder / name / "log.jsonl").read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        return {event["step"]: event["nll"] for event in events if event["event"] == "validation"}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("desk")
    save_memorised(folder / "tiny")
    for side, name in enumerate(("new.en", "new.de")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    return Desk(folder)


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, weight in expected.items() if not torch.equal(found[name], weight)] == []


def test_ten_new_pairs_are_learned_and_the_unadapted_score_is_shown_first(desk: Desk) -> None:
    outcome = desk.train("full", {"train.max_steps": 100, "valid.every_steps": 50}, "--init", desk.base)
    assert outcome.code == 0, outcome.err
    assert f"continuing from {desk.base}" in outcome.err
    assert "unknown to its tokenizers: 0.00% of the source tokens, 0.00% of the target's" in outcome.err
    assert "validation at step 0:" in outcome.err
    nlls = desk.nlls("full")
    assert list(nlls) == [0, 50, 100]
    assert nlls[100] < 0.2 < 0.6 < nlls[0]
    sources = "".join(f"{src}\n" for src, _ in PAIRS).encode()
    translated = heedful("translate", desk.folder / "full", stdin=sources).out.splitlines()
    assert translated == [tgt for _, tgt in PAIRS]


@pytest.mark.parametrize("more", [{}, LORA], ids=["all weights", "adapters"])
def test_the_rate_is_found_where_none_is_set(desk: Desk, more: dict[str, object]) -> None:
    settings = more | {key: value for key, value in SETTINGS.items() if not key.startswith("schedule.")}
    name = f"found{len(more)}"
    outcome = desk.train_as_set(name, settings, "--init", desk.base)
    assert outcome.code == 0, outcome.err
    nlls = desk.nlls(name)
    assert nlls[20] < nlls[10] < nlls[0]
    schedule = load_config(desk.folder / name / "config.toml").schedule
    assert schedule.name == "linear"
    assert 1e-5 < (schedule.peak or 0.0) < 1.0
    again = desk.train(name, more | {"schedule.peak": "auto", "train.max_steps": 21}, "--resume")
    assert again.code == 0, again.err
    assert load_config(desk.folder / name / "config.toml").schedule.peak == schedule.peak
    card = (desk.folder / name / "last" / "README.md").read_text(encoding="utf-8")
    first, second = card.partition("## Command\n\n```sh\n")[2].partition("\n```")[0].split("\n")
    assert first.startswith("heedful train --src new.en ")
    assert ("--resume" in first, "--resume" in second) == (False, True)


def test_a_run_below_the_base_model_says_so_and_ends_with_the_base_model(desk: Desk) -> None:
    outcome = desk.train("ruined", {"schedule.peak": 0.3}, "--init", desk.base)
    assert outcome.code == 0, outcome.err
    nlls = desk.nlls("ruined")
    assert min(nlls, key=lambda step: nlls[step]) == 0
    for step in (10, 20):
        assert f"warning: nll is {nlls[step]:.2f}, and was {nlls[0]:.2f} before fine-tuning" in outcome.err
    assert "best/ is the model as it came" in outcome.err.splitlines()[-1]
    assert outcome.out == f"{desk.folder / 'ruined' / 'best'}\n"
    assert_same(desk.weights("ruined/best"), desk.weights("tiny"))


def test_tokenizers_and_architecture_stay_and_the_config_says_where_the_model_is_from(desk: Desk) -> None:
    desk.adapt("kept", {"train.max_steps": 1})
    found = load_bundle(desk.folder / "kept")
    assert found.tokenizers.fingerprint() == memorised().tokenizers.fingerprint()
    assert found.config.model == memorised().config.model
    config = load_config(desk.folder / "kept" / "config.toml")
    assert config.train.init == str(desk.base)
    again = heedful(
        "train", desk.folder / "kept" / "config.toml", "--output", desk.folder / "again"
    )  # without --init
    assert again.code == 0, again.err
    assert_same(desk.weights("again/last"), desk.weights("kept/last"))


@pytest.mark.parametrize("average", [{"train.ema_decay": 0.9}, MEAN])
def test_frozen_weights_stay_to_the_last_bit(desk: Desk, average: dict[str, object]) -> None:
    frozen = ("encoder.", "decoder.layers.0.cross_attention")
    outcome = desk.train(
        "frozen",
        average | {"train.freeze": ",".join(frozen), "valid.every_steps": 50},
        "--init",
        desk.base,
        "--overwrite",
    )
    assert outcome.code == 0, outcome.err
    assert "of them trained" in outcome.err
    before, after = desk.weights("tiny"), desk.weights("frozen/last")
    same = {name for name, weight in before.items() if torch.equal(after[name], weight)}
    assert same == {name for name in before if name.startswith(frozen)}


@pytest.mark.slow
def test_a_lora_run_leaves_plain_bundles(desk: Desk) -> None:
    after = desk.adapt("lora", LORA | MEAN | {"schedule.peak": 1e-2, "train.max_steps": 40})
    before = desk.weights("tiny")
    assert after.keys() == before.keys()
    changed = {name for name, weight in before.items() if not torch.equal(after[name], weight)}
    assert {name.split(".")[-2] for name in changed} == {"query", "value", "output", "inner"}
    assert "encoder.embedding.tokens.weight" not in changed
    assert desk.nlls("lora")[40] < 0.7 * desk.nlls("lora")[0]
    assert load_bundle(desk.folder / "lora").model.num_parameters == memorised().model.num_parameters
    checkpoint = load_file(desk.folder / "lora" / "checkpoints" / "step-36" / "model.safetensors")
    assert "encoder.layers.0.self_attention.query.lora_a" in checkpoint


def test_the_adapter_of_a_run_works_beside_its_base_alone(desk: Desk) -> None:
    learn = {"schedule.peak": 2e-2, "train.max_steps": 60, "valid.every_steps": 30}
    desk.adapt("client", LORA | learn)
    desk.adapt("other", {"train.max_steps": 1, "lora.rank": 2}, base="client")
    sources = "".join(f"{src}\n" for src, _ in PAIRS).encode()
    merged = heedful("translate", desk.folder / "client", stdin=sources)
    assert merged.out != heedful("translate", desk.base, stdin=sources).out
    file = desk.folder / "client" / "best" / "adapter.safetensors"
    for adapter in (desk.folder / "client", file):
        beside = heedful("translate", desk.base, "--adapter", adapter, stdin=sources)
        assert (beside.code, beside.out) == (0, merged.out)
    scores = ["--ref", desk.folder / "new.de", "--src", desk.folder / "new.en", "--metric", "chrf", "--json"]
    of_both = [
        json.loads(heedful("evaluate", *model, *scores).out)["chrf"]
        for model in ([desk.base, "--adapter", file], [desk.folder / "client"])
    ]
    assert of_both[0] == of_both[1]
    translator = Translator.load(desk.base, adapters={"client": file})
    both = translator.translate([PAIRS[0][0]] * 2, adapter=["client", None])
    assert both == [merged.out.splitlines()[0], translator.translate([PAIRS[0][0]])[0]]
    again = pickle.loads(pickle.dumps(translator.with_adapter("client")))
    assert again.translate([PAIRS[0][0]]) == both[:1]
    refused = {
        "another base": [desk.base, "--adapter", desk.folder / "other"],
        "not fine-tuned with": [desk.base, "--adapter", desk.base],
        "an ensemble": [desk.base, "--adapter", file, "--ensemble", desk.base],
    }
    for message, arguments in refused.items():
        outcome = heedful("translate", *arguments, stdin=sources)
        assert_one_clear_line(outcome, 1, message)
    with pytest.raises(InputError, match="did you mean 'client'"):
        translator.translate(["the cat sees ."], adapter="clint")


def test_the_card_names_the_base_model_and_its_data(desk: Desk) -> None:
    desk.adapt("origin", {"train.max_steps": 1})
    desk.adapt("child", {"train.max_steps": 1, "train.freeze": "encoder.", "lora.rank": 2}, base="origin")
    card = (desk.folder / "child" / "last" / "README.md").read_text(encoding="utf-8")
    section = card.partition("## Base model")[2].partition("## Data")[0]
    assert "bundle: `origin`, " in section
    assert file_sha256(desk.folder / "origin" / "best" / "model.safetensors") in section
    assert "its training text: new.en and new.de" in section
    for file in (desk.folder / "child" / "best").iterdir():
        assert str(desk.folder).encode() not in file.read_bytes(), file
    assert "adapters of rank 2 on query, value, merged into the weights, except `encoder.`" in section
    plain = (desk.folder / "origin" / "last" / "README.md").read_text(encoding="utf-8")
    assert "its training text: see its own card" in plain
    assert "trained here: all weights" in plain


@pytest.mark.slow
def test_checkpoints_of_a_lora_run_can_be_averaged(desk: Desk) -> None:
    desk.adapt("parts", LORA | MEAN)
    average = ("average", desk.folder / "parts", "--last", 3, "--output")
    assert heedful(*average, desk.folder / "mean").code == 0
    found = desk.weights("mean")
    assert found.keys() == desk.weights("tiny").keys()
    moved = "decoder.layers.0.cross_attention.query.weight"
    assert not torch.equal(found[moved], desk.weights("tiny")[moved])
    assert not torch.equal(found[moved], desk.weights("parts/last")[moved])  # of milestones only


@pytest.mark.slow
def test_an_average_says_that_the_aligner_of_the_run_is_not_in_it(desk: Desk) -> None:
    desk.adapt("aligned", MEAN)
    average = ("average", desk.folder / "aligned", "--last", 3, "--output")
    before = heedful(*average, desk.folder / "mean-before")
    assert (before.code, before.err) == (0, "")
    text = ("--src", desk.folder / "new.en", "--tgt", desk.folder / "new.de")
    assert heedful("align", desk.folder / "aligned", *text, "--learn").code == 0
    after = heedful(*average, desk.folder / "mean-after")
    assert (after.code, after.out, after.err.count("\n")) == (0, before.out, 1)
    assert "heedful align --learn" in after.err
    assert not (desk.folder / "mean-after" / "aligner.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"train.freeze": "encoder.layers.", "train.ema_decay": 0.9}, LORA | MEAN]
)
def test_a_resumed_adaptation_is_the_uninterrupted_one(desk: Desk, settings: dict[str, object]) -> None:
    settings = STATEFUL | settings
    number = len(settings)
    wanted = desk.adapt(f"whole{number}", settings | {"train.max_steps": 22})
    desk.adapt(f"part{number}", settings | {"train.max_steps": 13})
    resumed = heedful(
        "train", "--resume", "--output", desk.folder / f"part{number}", "--set", "train.max_steps=22"
    )
    assert resumed.code == 0, resumed.err
    assert "resuming from step 13" in resumed.err
    assert_same(desk.weights(f"part{number}/last"), wanted)
    assert_same(desk.weights(f"part{number}/best"), desk.weights(f"whole{number}/best"))
    assert 0 in desk.nlls(f"part{number}")


@pytest.mark.slow
def test_a_run_can_be_continued_from_and_is_resumed_as_it_began_or_not_at_all(desk: Desk) -> None:
    desk.adapt("first", {"train.max_steps": 5})
    desk.adapt("second", {"train.max_steps": 5}, base="first")
    assert load_config(desk.folder / "second" / "config.toml").train.init == str(desk.folder / "first")
    for other, code, message in (
        ({"train.init": str(desk.base)}, 1, "belongs to other data or another model"),
        ({"lora.rank": 2}, 2, "lora.rank=2: the run has 0, which cannot change at --resume"),
        ({"train.freeze": "encoder."}, 2, "train.freeze=('encoder.',): the run has (), which cannot change"),
    ):
        outcome = desk.train("second", {"train.max_steps": 9} | other, "--resume")
        assert (outcome.code, message in outcome.err) == (code, True), outcome.err


def test_text_of_another_script_is_warned_of(desk: Desk) -> None:
    (desk.folder / "greek").write_text("ναι\nόχι\n", encoding="utf-8")
    files = ["--src", desk.folder / "greek", "--tgt", desk.folder / "greek", "--init", desk.base]
    settings = as_options(SETTINGS | {"train.max_steps": 1, "data.cache_dir": desk.folder / "cache"})
    outcome = heedful("train", *files, *settings, "--output", desk.folder / "greek-run")
    assert outcome.code == 0, outcome.err
    # ▁, one unknown run of letters, eos
    assert "warning: unknown to its tokenizers: 33.33% of the source tokens" in outcome.err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--init", "{base}", "--preset", "tiny"], 2, "model.d_model=128"),
        (["--init", "{base}", "--set", "tokenizer.vocab_size=70"], 2, "tokenizer.vocab_size=70"),
        (["--init", "{base}", "--set", "train.freeze=encodr."], 2, "'encoder.'"),
        (["--init", "{base}", "--set", "lora.rank=2", "--set", "lora.targets=gate"], 2, "lora.targets"),
        (["--set", "lora.rank=2"], 2, "lora.rank=2"),
        (["--set", "schedule.peak=auto"], 2, "--init"),
        (["--init", "{base}/nowhere"], 1, "{base}/nowhere"),
        (["--init", "{ids}"], 1, "{ids}"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_the_base_are_refused(
    desk: Desk, options: list[str], code: int, message: str
) -> None:
    ids = desk.folder / "ids"
    save_model(memorised().model, ids, config=memorised().config, card="")
    outcome = desk.train("refused", {}, *[option.format(base=desk.base, ids=ids) for option in options])
    assert outcome.code == code
    assert message.format(base=desk.base, ids=ids) in outcome.err.splitlines()[-1]
    assert not (desk.folder / "refused").exists()
