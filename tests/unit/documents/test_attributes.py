"""Attributes are found by the grammar of a tag, never in the value of another attribute."""

import pytest

from heedful.documents.xml_text import with_value, without_attribute


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("""<a title="The dog" descr="A house"/>""", """<a title="The dog" descr="NEW"/>"""),
        ("""<a title="a descr='b'" descr="A house"/>""", """<a title="a descr='b'" descr="NEW"/>"""),
        ("""<a title='a descr="b"' descr='A house'/>""", """<a title='a descr="b"' descr='NEW'/>"""),
        ("""<a b.c="x descr='y'" descr="A house">""", """<a b.c="x descr='y'" descr="NEW">"""),
        ("""<a \u00e9="x descr='y'"\tdescr = 'A house' >""", """<a \u00e9="x descr='y'"\tdescr = 'NEW' >"""),
        ("""<a b="c > d descr='e'" x:descr="A house">""", """<a b="c > d descr='e'" x:descr="NEW">"""),
        ("""<a xmlns:descr="urn:x" descr="A house">""", """<a xmlns:descr="urn:x" descr="NEW">"""),
        ("""<a descr="A house" xmlns:descr="urn:x">""", """<a descr="NEW" xmlns:descr="urn:x">"""),
        ("""<a descr2="b" my-descr="c" descr="">""", """<a descr2="b" my-descr="c" descr="NEW">"""),
        ("""<a title="a descr='b'"/>""", """<a title="a descr='b'"/>"""),
        ("""<descr/>""", """<descr/>"""),
    ],
)
def test_the_value_of_an_attribute_is_replaced_and_nothing_else(tag: str, expected: str) -> None:
    assert with_value(tag, "descr", lambda _: "NEW") == expected


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("""<a b="x c='y'" o:c="z" d="">""", """<a b="x c='y'" d="">"""),
        ("""<a b="x c='y'">""", """<a b="x c='y'">"""),
        ("""<a\n  c='z'\n  b="">""", """<a\n \n  b="">"""),
    ],
)
def test_an_attribute_is_removed_and_nothing_else(tag: str, expected: str) -> None:
    assert without_attribute(tag, "c") == expected
