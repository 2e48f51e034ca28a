"""The replicas of `heedful serve --on ray`, in Ray Serve's local mode: one process, and no cluster."""

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tiny_bundle import SOURCES, TARGETS, save_memorised

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.serving.on_ray import RemoteTranslator, application_names, model_application
from heedful.serving.options import ServiceOptions
from heedful.storage.bundle import load_bundle

serve = pytest.importorskip("ray.serve")
OPTIONS = ServiceOptions()


@pytest.fixture
def model(tmp_path: Path) -> RemoteTranslator:
    bundle = save_memorised(tmp_path / "tiny")
    loaders = pickle.loads(pickle.dumps({"en-de": partial(Translator.load, bundle)}))
    name = application_names(["en-de"], OPTIONS.ray)["en-de"]
    handle = serve.run(
        model_application(loaders, OPTIONS), name=name, route_prefix=None, _local_testing_mode=True
    )
    return RemoteTranslator(load_bundle(bundle), "en-de", handle.options(method_name="call"))


def test_a_replica_translates_as_a_translator_does(model: RemoteTranslator) -> None:
    assert [each.text for each in model.translations(SOURCES)] == list(TARGETS)
    options = SearchOptions(strategy=BeamSearch(beam_size=1), cancelled=lambda: False)
    [translation] = model.translations(SOURCES[:1], options=options)
    assert translation.text == TARGETS[0]


def test_a_mistake_of_the_user_is_raised_by_the_caller(model: RemoteTranslator) -> None:
    with pytest.raises(InputError, match="src_lang"):
        replace(model, tags=("en", None)).translations(SOURCES[:1])
