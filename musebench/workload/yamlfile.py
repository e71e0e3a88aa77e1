"""YAML text to plain values: safe, bounded, and strict where YAML is lenient.

Plain scalars follow the YAML 1.2 core schema: `no` is text, `1e3` a number, `010` ten. Refused, each with its
line: more than one document, a key given twice, a key that is not text, aliases (`*name`, which let a short
file stand for a huge one), tags (`!name`), and nesting deeper than `MOST_DEPTH`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from musebench.core.errors import InputError

MOST_BYTES = 1 << 20
MOST_DEPTH = 24

_STR, _NULL, _BOOL, _INT, _FLOAT, _SEQ, _MAP = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "null", "bool", "int", "float", "seq", "map")
)


class _Loader(yaml.SafeLoader):
    """Composes nodes; the values are made from them by `_plain`."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the base class's own attribute
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None,
                None,
                f"an alias (*{event.anchor}) is not taken here; write the value out",
                event.start_mark,
            )
        self.depth += 1
        if self.depth > MOST_DEPTH:
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {MOST_DEPTH} levels", mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _tag, _pattern, _first in (
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (_INT, r"[-+]?[0-9][0-9_]*", list("-+0123456789")),
    (
        _FLOAT,
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)


class _Refused(Exception):
    def __init__(self, node: yaml.Node, problem: str) -> None:
        super().__init__(f"line {node.start_mark.line + 1}: {problem}")


def read_yaml(path: Path) -> Any:
    """The one document of a YAML file, as dict, list, str, int, float, bool and None.

    Raises:
        InputError: not there, too large, not UTF-8, not YAML, or something that this module refuses.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot read it: {reason}") from error
    if len(data) > MOST_BYTES:
        raise InputError(
            f"{path} is larger than {MOST_BYTES:,} bytes; long lists of token ids belong in a JSONL trace"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line} is not UTF-8 text, which a YAML file has to be") from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> Any:
    """The one document in a text; `where` starts each error. Raises InputError as `read_yaml`."""
    if len(text) > MOST_BYTES:
        raise InputError(f"{where} is longer than {MOST_BYTES:,} characters")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        return None if node is None else _plain(node)
    except _Refused as error:
        raise InputError(f"{where} {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = " ".join(f"{error.problem or error.context}".split())
        raise InputError(f"{where}{place}: {problem}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{where} is not YAML: {' '.join(str(error).split())}") from error


def _plain(node: yaml.Node) -> Any:
    tag = node.tag
    if isinstance(node, yaml.MappingNode) and tag == _MAP:
        return _mapping(node)
    if isinstance(node, yaml.SequenceNode) and tag == _SEQ:
        return [_plain(item) for item in node.value]
    if isinstance(node, yaml.ScalarNode):
        if tag == _STR:
            return node.value
        if tag == _NULL:
            return None
        if tag == _BOOL:
            return node.value.lower() == "true"
        if tag in (_INT, _FLOAT):
            return _number(node)
    raise _Refused(node, f"the tag {tag} is not taken here; write plain text, numbers, lists and mappings")


def _number(node: yaml.ScalarNode) -> int | float:
    text = node.value.replace("_", "")
    try:
        if node.tag == _INT:
            return int(text)
        return float(text.replace(".inf", "inf").replace(".nan", "nan") if text[-1].isalpha() else text)
    except ValueError:  # an explicit tag on something else, or more digits than Python converts
        raise _Refused(node, f"{node.value[:40]!r} is not a number that can be used") from None


def _mapping(node: yaml.MappingNode) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _STR:
            raise _Refused(key_node, "a key that is not text")
        key = key_node.value
        if key in made:
            raise _Refused(key_node, f"the key {key!r} is there twice")
        made[key] = _plain(value_node)
    return made
