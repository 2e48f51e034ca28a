"""The annotated paper shows the code of this version, and what it prints."""

import re

import pytest
from tolerances import FLOAT32, assert_close

from annotated_paper import PAGE, with_code, with_outputs

NUMBER = re.compile(r"-?\b\d+(?:\.\d*)?(?:e[-+]?\d+)?")


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_page_shows_the_code_of_this_version(page: str) -> None:
    assert with_code(page) == page, "run `python tools/annotated_paper.py`"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_runs_and_shows_what_it_prints(page: str) -> None:
    now, pictures = with_outputs(page)
    assert {*pictures} == {*re.findall(r"(?<=\()images/[\w-]+\.png", page)}
    assert all((PAGE.parent / name).is_file() for name in pictures)
    words, numbers = NUMBER.split(page), NUMBER.findall(page)
    assert ["".join(each.split()) for each in NUMBER.split(now)] == ["".join(each.split()) for each in words]
    for found, wanted in zip(NUMBER.findall(now), numbers, strict=True):
        digits = len(wanted.partition(".")[2])
        assert_close(float(found), float(wanted), FLOAT32.MODEL.printed(digits))
