"""`heedful verify`: does a model still say what it said?"""

import json
import sys
from dataclasses import asdict, dataclass

from heedful.cli.streams import bar, print_table
from heedful.settings.options import AsJson
from heedful.tasks.options import Verify as VerifyOptions


@dataclass(frozen=True, kw_only=True)
class Verify(VerifyOptions):  # noqa: D101
    __doc__ = VerifyOptions.__doc__
    as_json: AsJson = False


def command(task: Verify) -> None:
    """Compare, print the findings, and end with 1 if one differs."""
    from heedful.tasks.verify import verify

    with bar() as show:
        found = verify(task.run, write=task.write, src=task.src, on_progress=show)
    if task.as_json:
        print(json.dumps(asdict(found) | {"is_right": found.is_right}))
    else:
        print_table([("recorded by", found.written_by), ("compared by", found.compared_by)], align=str.ljust)
        rows = [(finding.part, finding.verdict, finding.detail) for finding in found.findings]
        print_table(rows, align=str.ljust)
    sys.exit(not found.is_right)
