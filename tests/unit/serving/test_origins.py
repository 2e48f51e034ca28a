"""Origins in the form that browsers send (RFC 6454, section 6.2), and what is refused."""

import re

import pytest

from heedful.errors import InputError
from heedful.serving.access import check_origin


@pytest.mark.parametrize(
    "origin",
    ["*", "https://example.org", "http://localhost:8000", "http://[::1]:8000", "moz-extension://8c7c4444"],
)
def test_origins_are_taken(origin: str) -> None:
    check_origin(origin)


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("https://Example.org", "https://example.org"),
        ("https://example.org/", "https://example.org"),
        ("https://example.org/page?a#b", "https://example.org"),
        ("https://ann@example.org:443", "https://example.org"),
        ("HTTP://[::1]:80", "http://[::1]"),
        ("http://example.org:", "http://example.org"),
    ],
)
def test_other_forms_are_refused_with_the_usual_one(text: str, usual: str) -> None:
    with pytest.raises(InputError) as error:
        check_origin(text)
    assert f"write {usual} (--cors)" in str(error.value)
    check_origin(usual)


@pytest.mark.parametrize(
    "text",
    ["", "null", "example.org", "https://", "file:///a", "https://a b", "https://a:99999", "http://[::1", "https://ä.org"],
)  # fmt: skip
def test_what_has_no_origin_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(text))):
        check_origin(text)
