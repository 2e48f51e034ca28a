"""Bundles to the hub and back: huggingface_hub's own client against a server that stands in for the hub."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful
from hub_client import use_hub
from hub_server import Hub, hub_server
from huggingface_hub import ModelCard, close_session, constants
from pretrained_models import FAMILIES
from tiny_bundle import SOURCES, TARGETS, save_memorised

import heedful as package
from heedful.errors import HubError, MissingExtraError, install_hint
from heedful.tasks.loading import local_bundle, local_source

# How huggingface_hub itself calls its HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

TEXT = "".join(line + "\n" for line in SOURCES).encode()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("runs") / "demo" / "best")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server() as server:
        use_hub(monkeypatch, server, tmp_path / "home")
        monkeypatch.chdir(tmp_path)
        yield server


@pytest.fixture
def shared(hub: Hub, bundle: Path) -> Hub:
    """A hub that has the bundle as ann/model, and a file that belongs to no bundle."""
    files = {file.name: file.read_bytes() for file in bundle.iterdir()}
    hub.add("ann/model", {**files, "notes.txt": b"for Ann alone"})
    return hub


def test_a_pushed_bundle_translates_by_its_id_as_it_does_here(hub: Hub, bundle: Path) -> None:
    pushed = heedful("push", bundle.parent, "ann/model", "--message", "The first")
    assert pushed.code == 0, pushed.err
    assert hub.files("ann/model") == {
        ".gitattributes": b"",
        **{file.name: file.read_bytes() for file in bundle.iterdir()},
    }
    repository = hub.repos["ann/model"]
    assert pushed.out == f"{hub.endpoint}/ann/model/commit/{repository.head}\n"
    assert repository.messages == ["initial commit", "The first"]
    assert not repository.private
    for name in ("ann/model", "hf:ann/model"):
        assert heedful("translate", name, stdin=TEXT).out.splitlines() == TARGETS


@pytest.mark.slow
def test_a_push_of_the_same_again_is_no_new_commit(hub: Hub, bundle: Path) -> None:
    first, second = (json.loads(heedful("push", bundle, "model", "--json").out) for _ in range(2))
    assert first == second
    assert first["repo"] == "ann/model"
    assert first["commit"] == hub.repos["ann/model"].head
    assert first["url"].endswith(first["commit"])


def test_what_was_downloaded_once_is_used_when_the_hub_is_gone(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub_server() as server:
        server.add("ann/model", {file.name: file.read_bytes() for file in bundle.iterdir()})
        use_hub(monkeypatch, server, tmp_path)
        heedful("translate", "ann/model", stdin=TEXT)
    use_hub(monkeypatch, server, tmp_path)
    assert heedful("translate", "ann/model", stdin=TEXT).out.splitlines() == TARGETS
    use_hub(monkeypatch, server, tmp_path / "another cache")
    unreachable = f"the hub at {server.endpoint} cannot be reached"
    assert_one_clear_line(heedful("translate", "ann/model"), 1, "there is no ann/model here", unreachable)
    assert_one_clear_line(heedful("translate", "hf:ann/model"), 1, "error: ann/model: ", unreachable)
    assert_one_clear_line(heedful("push", bundle, "ann/model"), 1, unreachable)


def test_offline_a_model_is_used_if_it_was_downloaded(
    shared: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = local_bundle(Path("ann/model"))
    close_session()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(shared.requests)
    assert local_bundle(Path("ann/model")) == folder
    use_hub(monkeypatch, shared, tmp_path / "another cache")
    assert_one_clear_line(
        heedful("translate", "ann/model"), 1, "never downloaded completely", "HF_HUB_OFFLINE"
    )
    assert len(shared.requests) == asked


@pytest.mark.slow
def test_every_verb_that_takes_a_bundle_takes_an_id(shared: Hub, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(TEXT)
    assert heedful("inspect", "ann/model").code == 0
    args = ["--src", tmp_path / "s", "--ref", tmp_path / "s", "--metric", "exact", "--json"]
    assert json.loads(heedful("evaluate", "ann/model", *args).out)["sentences"] == len(SOURCES)
    assert heedful("score", "ann/model", "--src", tmp_path / "s", "--tgt", tmp_path / "s").code == 0
    assert heedful("attention", "ann/model", SOURCES[0], "-o", tmp_path / "a.json").out == TARGETS[0] + "\n"


def test_the_python_way_is_to_download_and_load(shared: Hub) -> None:
    translator = package.Translator.load(package.download_bundle("ann/model"))
    assert translator.translate(SOURCES[:2]) == TARGETS[:2]


def test_only_the_files_of_the_bundle_come_down(shared: Hub, bundle: Path) -> None:
    folder = package.download_bundle("ann/model")
    assert {file.name for file in folder.iterdir()} == {file.name for file in bundle.iterdir()}
    assert not any("notes.txt" in request for request in shared.requests)


@pytest.mark.slow
def test_a_revision_is_another_model(shared: Hub, bundle: Path) -> None:
    shared.add("ann/model", {"config.json": b"{}"})
    main = shared.repos["ann/model"].head
    pushed = heedful("push", bundle, "ann/model", "--revision", "try-out")
    assert pushed.code == 0, pushed.err
    assert shared.repos["ann/model"].head == main
    assert heedful("translate", "ann/model@try-out", stdin=TEXT).out.splitlines() == TARGETS
    commit = shared.repos["ann/model"].branches["try-out"]
    assert local_bundle(Path(f"hf:ann/model@{commit}")).name == commit
    assert_one_clear_line(heedful("translate", "ann/model@never"), 1, "ann/model: has no revision 'never'")


def test_a_path_that_exists_is_never_asked_of_the_hub(shared: Hub, tmp_path: Path) -> None:
    save_memorised(tmp_path / "ann" / "model")
    assert local_bundle(Path("ann/model")) == Path("ann/model")
    assert heedful("translate", "ann/model", stdin=TEXT).out.splitlines() == TARGETS
    assert shared.requests == []


def test_a_path_with_a_mistake_in_it_is_not_asked_of_the_hub(shared: Hub, tmp_path: Path) -> None:
    save_memorised(tmp_path / "runs" / "en-de")
    for name, advice in (
        ("runs/en-df", "did you mean runs/en-de?"),
        ("runs/other", "check the path, or write hf:runs/other for a model of the hub"),
        ("weights/model.pt", "check the path, or write hf:weights/model.pt for a model of the hub"),
    ):
        assert_one_clear_line(heedful("translate", name), 1, f"{name}: no such file or directory; {advice}")
        assert_one_clear_line(
            heedful("import", name, "--layout", "marian", "--output", "new"), 1, f"{name}: no such file"
        )
    assert shared.requests == []
    assert_one_clear_line(heedful("translate", "hf:runs/other"), 1, "runs/other: no such model on the hub")


@pytest.mark.parametrize("name", ["model", "a/b/c", "../model", "./model.pt", "/ann/model", "ann/-m"])
def test_what_has_no_form_of_an_id_stays_a_path(shared: Hub, name: str) -> None:
    assert local_bundle(Path(name)) == Path(name)
    assert shared.requests == []


def test_a_damaged_bundle_is_refused_before_anything_is_sent(hub: Hub, tmp_path: Path) -> None:
    weights = save_memorised(tmp_path / "bundle") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert_one_clear_line(
        heedful("push", tmp_path / "bundle", "ann/model"), 1, "model.safetensors", "checksum"
    )
    assert_one_clear_line(heedful("push", tmp_path / "nothing", "ann/model"), 1, "no such directory")
    assert hub.requests == []


@pytest.mark.slow
def test_private_is_private(hub: Hub, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heedful("push", bundle, "ann/model", "--private")
    assert hub.repos["ann/model"].private
    use_hub(monkeypatch, hub, tmp_path / "bob", token="token-of-bob")
    assert_one_clear_line(heedful("translate", "ann/model"), 1, "no such model on the hub, or a private one")
    use_hub(monkeypatch, hub, tmp_path / "nobody", token=None)
    assert_one_clear_line(heedful("translate", "ann/model"), 1, "or a private one", "hf auth login")


def test_a_public_repository_takes_no_private_push(shared: Hub, bundle: Path) -> None:
    before = shared.files("ann/model")
    assert_one_clear_line(heedful("push", bundle, "ann/model", "--private"), 1, "ann/model: is public")
    assert shared.files("ann/model") == before


@pytest.mark.parametrize(
    ("token", "repo", "parts"),
    [
        (None, "ann/model", ["not logged in", "hf auth login", "HF_TOKEN"]),
        (
            "token-of-nobody",
            "ann/model",
            ["does not accept your token", "Invalid credentials", "hf auth login"],
        ),
        ("token-of-bob", "ann/model", ["your token may not do that", "rights to create a model under ann"]),
        ("token-of-ann", "ann/a--b", ["ann/a--b: the hub refuses it", "Cannot have --"]),
    ],
)
def test_who_may_not_push_is_told_why(
    hub: Hub,
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    repo: str,
    parts: list[str],
) -> None:
    use_hub(monkeypatch, hub, tmp_path, token=token)
    assert_one_clear_line(heedful("push", bundle, repo), 1, *parts)
    assert hub.repos == {}


def test_a_token_that_is_not_valid_is_named_when_a_model_is_asked_for(
    shared: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_hub(monkeypatch, shared, tmp_path, token="token-of-nobody")
    assert_one_clear_line(heedful("translate", "ann/model"), 1, "does not accept your token", "HF_TOKEN")


def test_a_card_that_the_hub_does_not_take_is_refused_before_the_weights(hub: Hub, tmp_path: Path) -> None:
    save_memorised(tmp_path / "bundle")
    (tmp_path / "bundle" / "README.md").write_text("---\nmodel-index: wrong\n---\n")
    assert_one_clear_line(
        heedful("push", tmp_path / "bundle", "ann/model"), 1, '"model-index" must be an array'
    )
    assert not any("/lfs" in request for request in hub.requests)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["PUT /lfs", "POST .*/commit/"])
def test_a_push_that_fails_on_its_way_changes_nothing(shared: Hub, bundle: Path, moment: str) -> None:
    shared.add("ann/model", {"config.json": b"older"})
    before = shared.files("ann/model")
    shared.failures[moment] = 403
    assert_one_clear_line(heedful("push", bundle, "ann/model"), 1, "ann/model: your token may not do that")
    assert shared.files("ann/model") == before
    shared.failures.clear()
    assert heedful("push", bundle, "ann/model").code == 0
    assert heedful("translate", "ann/model", stdin=TEXT).out.splitlines() == TARGETS


def test_a_download_that_fails_on_its_way_is_taken_up_again(shared: Hub) -> None:
    shared.failures["GET /lfs"] = 403
    assert_one_clear_line(heedful("translate", "ann/model"), 1, "ann/model: your token may not do that")
    shared.failures.clear()
    assert heedful("translate", "ann/model", stdin=TEXT).out.splitlines() == TARGETS


def test_a_bundle_that_was_altered_on_the_hub_is_refused(shared: Hub, bundle: Path) -> None:
    weights = (bundle / "model.safetensors").read_bytes()
    files = {file.name: file.read_bytes() for file in bundle.iterdir()}
    shared.add("ann/model", {**files, "model.safetensors": weights[:-1] + b"\0"})
    assert_one_clear_line(heedful("translate", "ann/model"), 1, "model.safetensors", "altered")


@pytest.mark.parametrize("config", [b'{"model_type": "marian"}', b"[]", b"no JSON", None])
def test_a_model_of_another_library_is_named_before_its_weights_come(hub: Hub, config: bytes | None) -> None:
    hub.add(
        "bob/marian",
        {"README.md": b"", "model.safetensors": b"x", **({"config.json": config} if config else {})},
    )
    assert_one_clear_line(
        heedful("translate", "bob/marian"), 1, "not a heedful bundle", "heedful import bob/marian"
    )
    assert not any("safetensors" in request for request in hub.requests)


def test_a_bundle_of_a_newer_format_is_refused_as_one(shared: Hub) -> None:
    shared.add("ann/model", {"config.json": b'{"format_version": 99}'})
    assert_one_clear_line(heedful("translate", "ann/model"), 1, "format_version 99 is newer", "upgrade")


def test_what_follows_the_prefix_must_be_an_id(hub: Hub) -> None:
    assert_one_clear_line(
        heedful("translate", "hf:model"), 1, "hf:model: not an id of the hub", "hf:user/model"
    )


def test_an_importer_gets_what_it_reads_and_nothing_else(hub: Hub) -> None:
    wanted = {
        "config.json",
        "vocab.json",
        "source.spm",
        "sentencepiece.bpe.model",
        "dict.en.txt",
        "README.md",
    }
    others = {"tf_model.h5", "rust_model.ot", "onnx/model.json", ".gitattributes"}
    hub.add("bob/new", dict.fromkeys(wanted | others | {"model.safetensors", "pytorch_model.bin"}, b"1"))
    hub.add("bob/old", dict.fromkeys(wanted | others | {"pytorch_model.bin"}, b"2"))
    for repo, weights in (("bob/new", "model.safetensors"), ("bob/old", "pytorch_model.bin")):
        folder = local_source(Path(repo))
        assert {file.name for file in folder.iterdir()} == wanted | {weights}


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning")
def test_a_model_of_another_library_is_imported_by_its_id(hub: Hub, tmp_path: Path) -> None:
    FAMILIES["marian"].save(tmp_path / "saved")
    hub.add("bob/marian", {file.name: file.read_bytes() for file in (tmp_path / "saved").iterdir()})
    outcome = heedful("import", "bob/marian", "--layout", "marian", "--output", "bundle")
    assert (outcome.code, outcome.out) == (0, "bundle\n")
    heedful("import", tmp_path / "saved", "--layout", "marian", "--output", "same")
    one, other = (Path(name, "model.safetensors").read_bytes() for name in ("bundle", "same"))
    assert one == other
    cards = [ModelCard.load(f"{name}/README.md").data for name in ("bundle", "same")]
    assert [card.base_model for card in cards] == ["bob/marian", None]


def test_without_huggingface_hub_only_ids_need_it(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
    install = re.escape(install_hint("hub"))
    with pytest.raises(MissingExtraError, match=f"ann/demoo.*{install}"):
        local_bundle(Path("ann/demoo"))
    assert heedful("translate", bundle, stdin=TEXT).out.splitlines() == TARGETS
    assert_one_clear_line(heedful("push", bundle, "ann/model"), 1, install_hint("hub"))


def test_a_full_disk_is_no_fault_of_the_hub(shared: Hub, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the cache is to be")
    outcome = heedful("translate", "ann/model")
    assert_one_clear_line(outcome, 1, str(tmp_path / "home"))
    with pytest.raises(OSError) as error:
        package.download_bundle("ann/model")
    assert not isinstance(error.value, HubError)
