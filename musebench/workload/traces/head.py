"""What the first bytes of a file say about its columns, for recognising formats."""

from __future__ import annotations

import csv
import re

from musebench.workload.traces.lines import parse_object

_KEY = re.compile(r'"([^"\\]{1,64})"\s*:')


def first_line(head: bytes) -> str:
    """The first line that is not blank, or as much of it as is there."""
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").lstrip()
    return text.partition("\n")[0].rstrip("\r")


def csv_header(head: bytes) -> list[str]:
    """The fields of the first line, without blanks around them; empty for what is no CSV."""
    line = first_line(head)
    if line.startswith("{"):
        return []
    try:
        return [name.strip() for name in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def json_keys(head: bytes) -> set[str]:
    """The keys of the first line's object; of one that is cut off or broken, all that look like keys."""
    line = first_line(head)
    if not line.startswith("{"):
        return set()
    value = parse_object(line)
    return set(value) if isinstance(value, dict) else set(_KEY.findall(line))
