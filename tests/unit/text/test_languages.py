import pytest

from heedful.text.languages import closest_code, language_code, language_name


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("EN", "en"), ("deu_Latn", "de"), ("zho_Hans", "zh-Hans"), ("__fr__", "fr"), ("fr_XX", "fr"),
        (">>fra<<", "fr"), ("<2fr>", "fr"), ("pt-br", "pt-BR"), ("zz", None), ("", None), ("xx", None),
        ("</s>", None), ("en\n", None), ("e" * 5000, None),
    ],
)  # fmt: skip
def test_codes_are_brought_to_their_usual_form(name: str, code: str | None) -> None:
    assert language_code(name) == code


def test_a_code_stands_for_the_closest_that_there_is() -> None:
    assert closest_code("en-US", ["de", "en"]) == "en"
    assert closest_code("zh", ["zh-Hans"]) == "zh-Hans"
    assert closest_code("fr", ["de", "en"]) is None
    assert language_name("de") == "German"
