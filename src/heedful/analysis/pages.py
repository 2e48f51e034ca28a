"""Self-contained HTML pages: a template of this folder with data in it."""

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from heedful.runtime.durable import write_atomically


def write_page(template: str, path: Path, data: Mapping[str, Any], **texts: str) -> None:
    """Write a page atomically; missing directories are made.

    Args:
        template: the name of the template.
        path: the page.
        data: what its script reads, as JSON, in place of @DATA@.
        texts: what replaces other marks, such as TITLE for @TITLE@, as HTML.
    """
    page = resources.files(__package__).joinpath(template).read_text(encoding="utf-8")
    # "</" would end the script element, so "<" is escaped.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    for mark, replacement in (*texts.items(), ("DATA", text)):
        page = page.replace(f"@{mark}@", replacement)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page)
