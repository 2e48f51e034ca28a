"""The replicas of `heedful serve --on ray`, in Ray Serve's local mode: one process, and no cluster."""

import pickle
from functools import partial
from pathlib import Path

import pytest
from tiny_bundle import SOURCES, TARGETS, save_memorised

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.serving.on_ray import RemoteModel, application_names, model_application
from heedful.serving.options import ServiceOptions

serve = pytest.importorskip("ray.serve")
OPTIONS = ServiceOptions()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteModel:
    bundle = save_memorised(tmp_path / "tiny")
    loaders = pickle.loads(pickle.dumps({"en-de": partial(Translator.load, bundle)}))
    name = application_names(["en-de"], OPTIONS.ray)["en-de"]
    handle = serve.run(
        model_application(loaders, OPTIONS), name=name, route_prefix=None, _local_testing_mode=True
    )
    monkeypatch.setattr(serve, "get_app_handle", {name: handle}.__getitem__)
    return RemoteModel(name, "en-de")


def test_a_replica_translates_as_a_translator_does(model: RemoteModel) -> None:
    remote = model.translator(None, None)
    assert [each.text for each in remote.translations(SOURCES)] == list(TARGETS)
    options = SearchOptions(strategy=BeamSearch(beam_size=1), cancelled=lambda: False)
    [translation] = remote.translations(SOURCES[:1], options=options)
    assert translation.text == TARGETS[0]


def test_a_mistake_of_the_user_is_raised_by_the_caller(model: RemoteModel) -> None:
    with pytest.raises(InputError, match="src_lang"):
        model.translator("en", None).translations(SOURCES[:1])
