"""The parser of XML for all formats: it expands no entity."""

from xml.parsers import expat

from heedful.errors import InputError


def parser_of_xml(encoding: str | None = None) -> expat.XMLParserType:
    """Return a parser that refuses entities and writes names as namespace, blank, local name.

    Args:
        encoding: the encoding of the document; None: the one that it names.
    """

    def refuse(name: str, *_: object) -> None:
        raise InputError(f"damaged XML: it declares the entity {name}; entities are not expanded")

    parser = expat.ParserCreate(encoding, " ")
    parser.EntityDeclHandler = refuse
    return parser
