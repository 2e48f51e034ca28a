"""Parts of plugins: found in files that the user names and in installed packages, and nowhere else."""

import hashlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from heedful import Config, Transformer, load_model, save_model, train
from heedful.data.batches import plan_epoch, sampler_of
from heedful.data.cleaning import Pair
from heedful.data.cleaning.pair import pair_filter
from heedful.errors import BundleError, ConfigError, InteropError
from heedful.interop.exporting import refuse_changed
from heedful.ops.changes import only_in_this_process
from heedful.settings import plugins
from heedful.settings.plugins import (
    check_arguments,
    load_plugin,
    loaded_plugins,
    plugin_options,
    plugin_part,
    plugin_versions,
    reference_to,
)

ENTRY_POINTS = "[heedful.plugins]\nfancy = pkg_of_a_user.fancy\n"
CODE = "import json\nfrom .more import Base\n\n\nclass Norm(Base):\n    pass\n"


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield
    for name in sys.modules.keys() - before:
        if name.startswith(("pkg_of_a_user", "own_part")):
            del sys.modules[name]


@pytest.fixture
def _installed(tmp_path: Path, _fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with a plugin."""
    package, metadata = tmp_path / "pkg_of_a_user", tmp_path / "users-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    for file, content in {
        package / "__init__.py": "",
        package / "more.py": "class Base:\n    pass\n",
        package / "fancy.py": CODE,
        metadata / "METADATA": "Metadata-Version: 2.1\nName: users\nVersion: 1.0\n",
        metadata / "entry_points.txt": ENTRY_POINTS,
    }.items():
        file.write_text(content, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("_installed")
def test_a_plugin_of_an_installed_package_is_found_by_its_entry_point() -> None:
    norm = plugin_part("fancy:Norm", "model.norm_kind")
    assert norm.__module__ == "pkg_of_a_user.fancy"
    assert reference_to(norm, "model.norm_kind") == "fancy:Norm"
    assert loaded_plugins() == ()  # other processes find it by its entry point
    assert plugin_options(["fancy:Norm"]) == []
    assert plugin_versions(["fancy:Norm", "absent:Norm"]) == ("fancy users 1.0",)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("name", ["fancy:json.loads", "fancy:json", "fancy:Nrm", "json:loads", "os:system"])
def test_no_part_is_found_beyond_a_plugin(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        plugin_part(name, "train.loss")


@pytest.mark.usefixtures("_fresh")
def test_a_file_is_loaded_once_and_again_in_other_processes(tmp_path: Path) -> None:
    file = tmp_path / "own_part.py"
    file.write_text("def rate(step, done):\n    return 0.5\n", "utf-8")
    module = load_plugin(file)
    assert load_plugin(str(file)) is load_plugin(module) is module
    assert plugin_part("own_part:rate", "schedule.name")(1, 0.0) == 0.5
    assert plugin_options(["own_part:rate", "own_part:other"]) == ["--plugin", "own_part.py"]
    program = (
        "import sys; from heedful.settings.plugins import load_again, plugin_part; "
        "load_again(tuple(sys.argv[1:])); "
        "print(plugin_part('own_part:rate', 'schedule.name')(1, 0.0))"
    )
    command = [sys.executable, "-c", program, *loaded_plugins()]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0.5\n"


@pytest.mark.usefixtures("_fresh")
def test_a_class_is_named_by_its_module_and_found_again() -> None:
    fractions = importlib.import_module("fractions")
    assert reference_to(fractions.Fraction, "x") == "fractions:Fraction"
    assert plugin_part("fractions:Fraction", "x") is fractions.Fraction
    for nameless in (lambda: None, 3):
        with pytest.raises(ConfigError, match="x="):
            reference_to(nameless, "x")


@pytest.mark.usefixtures("_fresh")
def test_a_class_of_heedfuls_own_is_a_part_too(tmp_path: Path) -> None:
    file = tmp_path / "own_part.py"
    file.write_text("from heedful.model.variants import GatedFeedForward\ncube = lambda x: x**3\n", "utf-8")
    load_plugin(file)
    sizes = {"src_vocab_size": 60, "tgt_vocab_size": 60, "d_model": 16, "num_heads": 2, "d_ff": 32}
    for parts in ({"feed_forward": "own_part:GatedFeedForward"}, {"activation": "own_part:cube"}):
        model = Transformer(**sizes, **parts)
        save_model(model, tmp_path / "bundle")
        read = load_model(tmp_path / "bundle")
        assert all(
            torch.equal(read.state_dict()[name], weight) for name, weight in model.state_dict().items()
        )
        with pytest.raises(InteropError, match=r"own_part"):
            refuse_changed(read, "ctranslate2")


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("name", ["number", "number.x", "Kind"])
def test_an_activation_is_a_function(tmp_path: Path, name: str) -> None:
    (tmp_path / "own_part.py").write_text("number = 3\n\n\nclass Kind:\n    pass\n", "utf-8")
    load_plugin(tmp_path / "own_part.py")
    with pytest.raises(ConfigError, match=r"model\.activation"):
        Transformer(src_vocab_size=9, tgt_vocab_size=9, activation=f"own_part:{name}")


@pytest.mark.usefixtures("_fresh")
def test_a_function_of_a_module_is_known_to_other_processes(tmp_path: Path) -> None:
    (tmp_path / "own_part.py").write_text("def cube(x):\n    return x**3\n", "utf-8")
    model = Transformer(
        src_vocab_size=9, tgt_vocab_size=9, activation=load_plugin(tmp_path / "own_part.py").cube
    )
    assert only_in_this_process(model) is None


FUNCTIONS = """import numpy as np


def text(pair):
    return "yes"


def numpys(pair):
    return np.bool_(True)


def nothing():
    return True


def dropping(src, tgt, *, tokens, seed, epoch, bucket_width):
    return [np.arange(len(src) - 1)]


def floats(src, tgt, *, tokens, seed, epoch, bucket_width):
    return [np.arange(len(src), dtype=float)]


def twice(src, tgt, **settings):
    return [np.arange(len(src)), np.arange(1)]


def single(src, tgt, **settings):
    return [np.array([i]) for i in range(len(src))]
"""


@pytest.mark.usefixtures("_fresh")
def test_what_a_function_of_a_plugin_returns_is_checked(tmp_path: Path) -> None:
    (tmp_path / "own_part.py").write_text(FUNCTIONS, "utf-8")
    load_plugin(tmp_path / "own_part.py")
    pair = Pair("a", "b")
    assert pair_filter("own_part:numpys", "data.filters")(pair)
    with pytest.raises(ConfigError, match=r"data\.filters=own_part:text"):
        pair_filter("own_part:text", "data.filters")(pair)
    with pytest.raises(ConfigError, match=r"data\.filters=own_part:nothing"):
        pair_filter("own_part:nothing", "data.filters")
    lengths = np.arange(2, 9)
    settings = {"tokens": 20, "seed": 1, "epoch": 0, "bucket_width": 4}
    assert len(sampler_of("own_part:single")(lengths, lengths, **settings)) == len(lengths)
    for name in ("dropping", "floats", "twice"):
        with pytest.raises(ConfigError, match=rf"batch\.sampler=own_part:{name}"):
            sampler_of(f"own_part:{name}")(lengths, lengths, **settings)


def test_arguments_are_those_of_a_definition() -> None:
    check_arguments(plan_epoch, "x", "src_lengths, tgt_lengths, *, tokens, seed, epoch, bucket_width")
    check_arguments(lambda *each: None, "x", "model, batch")
    check_arguments(dict, "x", "")
    for value, arguments in ((plan_epoch, "src, tgt"), (lambda: None, "model"), (3, "model")):
        with pytest.raises(ConfigError, match="x: "):
            check_arguments(value, "x", arguments)


class Shortened(nn.Module):
    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor, *arguments: object, **settings: object) -> torch.Tensor:
        return x[..., :1]


class Argumentless(nn.Module):
    pass


class Unused(nn.Module):
    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__()


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("key", ["attention", "feed_forward", "norm_kind", "positions"])
@pytest.mark.parametrize("kind", [Shortened, Argumentless, Unused])
def test_a_layer_of_a_plugin_is_tried(key: str, kind: type[nn.Module]) -> None:
    state = torch.get_rng_state()
    with pytest.raises(ConfigError, match=rf"model\.{key}=[\w.]+:{kind.__name__}"):
        Transformer(src_vocab_size=9, tgt_vocab_size=9, d_model=12, num_heads=2, d_ff=5, **{key: kind})
    torch.set_rng_state(state)


@pytest.mark.parametrize(
    "name",
    ["os:system", "builtins:eval", "own_part:Name", "../own_part:Name", "own_part.py:Name", "/tmp/x:Name",
     "a:__import__('os')", "torch.nn:Linear", "a:b" + "c" * 1000],
)  # fmt: skip
@pytest.mark.usefixtures("_fresh")
def test_a_forged_bundle_runs_no_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(src_vocab_size=9, tgt_vocab_size=9, d_model=12, num_heads=2, d_ff=5)
    save_model(model, tmp_path / "bundle")
    file = tmp_path / "bundle" / "config.json"
    description = json.loads(file.read_text("utf-8"))
    description["config"]["model"]["attention"] = name
    description["changed_parts"] = {"model.attention": name}
    settings = {key: description[key] for key in ("config", "scores", "changed_parts")}
    text = json.dumps(settings, sort_keys=True).encode()
    description["sha256"]["settings"] = hashlib.sha256(text).hexdigest()
    file.write_text(json.dumps(description), "utf-8")
    for folder in (tmp_path, tmp_path / "bundle"):
        (folder / "own_part.py").write_text("raise SystemExit('run')", "utf-8")
    monkeypatch.chdir(tmp_path / "bundle")
    with pytest.raises(BundleError, match=r"model\.attention"):
        load_model(tmp_path / "bundle")


@pytest.mark.parametrize("part", [lambda x: x**3, nn.GELU(), nn.PReLU()])
def test_a_model_takes_an_activation_without_a_name_and_a_run_does_not(part: object, tmp_path: Path) -> None:
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(9, activation=part, **sizes).eval()  # type: ignore[arg-type]
    again = Transformer(9, activation=part, **sizes)  # type: ignore[arg-type]
    assert again.config == model.config
    layer, x = model.encoder.layers[0].feed_forward, torch.randn(3, 8)
    wanted = layer.outer(part(layer.inner(x)))  # type: ignore[operator, union-attr]
    torch.testing.assert_close(layer(x), wanted)  # type: ignore[operator]
    save_model(model, tmp_path / "own")
    with pytest.raises(BundleError, match="not heedful's own"):
        load_model(tmp_path / "own")
    ids = torch.randint(4, 9, (2, 5))
    torch.testing.assert_close(load_model(tmp_path / "own", into=again)(ids, ids), model(ids, ids))
    with pytest.raises(ConfigError, match=r"model\.activation"):
        train(Config(model=model.config), tmp_path / "run")
