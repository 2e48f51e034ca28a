"""A format of documents: the .properties files of Java programs, with lines such as app.title=Welcome.

    heedful translate MODEL --plugin properties.py --document app.properties -o app_de.properties

In Python, call `heedful.load_plugin("properties.py")` or `import properties` before `heedful.translate_file`.
"""

import re

from heedful.documents.formats import Reading, document_format
from heedful.documents.template import Template

LINE = re.compile(r"(?P<key>[ \t]*[^#!\s=:][^=:\n]*[=:][ \t]*)(?P<value>.*)")


@document_format("Java properties", ".properties")
def read_properties(text: str, reading: Reading) -> Template:
    """Return the text with a reference in place of each value; keys, comments and blank lines stay."""
    template = Template()
    parts: list[str] = []
    for line in text.splitlines(keepends=True):
        content = line.rstrip("\r\n")
        if entry := LINE.fullmatch(content):
            value = entry["value"]
            parts += [entry["key"], template.plain(value, value, str), line[len(content) :]]
        else:
            parts.append(line)
    return template.filled(parts)
