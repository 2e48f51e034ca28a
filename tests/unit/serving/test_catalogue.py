import pytest

from heedful.serving.languages import Catalogue
from heedful.serving.refusals import LanguageError
from heedful.text.languages import Pair


def catalogue(*pairs: str) -> Catalogue:
    return Catalogue(frozenset(Pair(*each.split(">")) for each in pairs))


def test_a_pair_is_translated_directly_where_a_model_has_it() -> None:
    served = catalogue("fr>en", "en>de", "fr>de")
    assert served.required_route("fr", "de").legs == (Pair("fr", "de"),)
    assert served.required_route("fr", "de").pivot is None


def test_the_way_leads_through_a_third_language_english_before_others() -> None:
    served = catalogue("fr>es", "es>de", "fr>en", "en>de")
    assert served.required_route("fr", "de").legs == (Pair("fr", "en"), Pair("en", "de"))
    assert served.required_route("fr", "de").pivot == "en"
    assert served.targets_of("fr") == ["de", "en", "es"]
    assert served.sources_of("de") == ["en", "es", "fr"]


def test_there_is_no_way_through_two_languages_and_none_back_to_the_source() -> None:
    served = catalogue("fr>en", "en>de", "de>nl", "en>fr")
    assert served.route("fr", "nl") is None
    assert served.route("fr", "fr") is None
    with pytest.raises(LanguageError, match=r"^nl .* fr.*de, en$"):
        served.required_route("fr", "nl")


def test_an_unknown_language_is_refused_by_name() -> None:
    served = catalogue("en>de")
    assert served.languages("EN-us", "deu_Latn") == ("en", "de")
    for source, target in (("zz", "de"), (None, "zz")):
        with pytest.raises(LanguageError, match="zz"):
            served.languages(source, target)


def test_a_language_that_is_served_in_the_other_direction_alone_is_refused_as_that() -> None:
    served = catalogue("en>de", "en>fr")
    with pytest.raises(LanguageError, match=r"^en .*de, fr$"):
        served.languages("de", "EN-us")
    with pytest.raises(LanguageError, match=r"^de .*en, fr$"):
        served.languages("de", "fr")
