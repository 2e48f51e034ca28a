"""Parts of plugins: found in files that the user names and in installed packages, and nowhere else."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from heedful import Config, Transformer, load_model, save_model
from heedful.errors import ConfigError, InteropError
from heedful.interop.exporting import refuse_changed
from heedful.ops.changes import only_in_this_process
from heedful.settings import plugins
from heedful.settings.plugins import load_plugin, loaded_plugins, part, plugin_options, reference_to

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
    norm = part("fancy:Norm", "model.norm_kind")
    assert norm.__module__ == "pkg_of_a_user.fancy"
    assert reference_to(norm, "model.norm_kind") == "fancy:Norm"
    assert loaded_plugins() == ()  # other processes find it by its entry point
    assert plugin_options(["fancy:Norm"]) == []


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("name", ["fancy:json.loads", "fancy:json", "fancy:Nrm", "json:loads", "os:system"])
def test_no_part_is_found_beyond_a_plugin(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        part(name, "train.loss")


@pytest.mark.usefixtures("_fresh")
def test_a_file_is_loaded_once_and_again_in_other_processes(tmp_path: Path) -> None:
    file = tmp_path / "own_part.py"
    file.write_text("def rate(step, done):\n    return 0.5\n", "utf-8")
    module = load_plugin(file)
    assert load_plugin(str(file)) is load_plugin(module) is module
    assert part("own_part:rate", "schedule.name")(1, 0.0) == 0.5
    assert plugin_options(["own_part:rate", "own_part:other"]) == ["--plugin", "own_part.py"]
    program = (
        "import sys; from heedful.settings.plugins import load_again, part; load_again(tuple(sys.argv[1:])); "
        "print(part('own_part:rate', 'schedule.name')(1, 0.0))"
    )
    command = [sys.executable, "-c", program, *loaded_plugins()]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0.5\n"


@pytest.mark.usefixtures("_fresh")
def test_a_class_is_named_by_its_module_and_found_again() -> None:
    fractions = importlib.import_module("fractions")
    assert reference_to(fractions.Fraction, "x") == "fractions:Fraction"
    assert part("fractions:Fraction", "x") is fractions.Fraction
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
        save_model(model, Config(model=model.config), tmp_path / "bundle")
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
