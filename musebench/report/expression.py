"""Conditions on reports as text: `output_tokens_per_second < 0.97x`, `executor = graph and growths > 0`.

expression: part, joined by "and" and "or" ("and" binds first), with brackets
part:       NAME OPERATOR VALUE
NAME:       a metric (musebench.report.numbers), or a factor such as executor or pool.factor
OPERATOR:   < <= > >= = !=   (== is =)
VALUE:      a number with or without a unit, a word, or "quoted text"
unit:       x (times the baseline), % (more or less than the baseline),
            s ms us ns, B KiB MiB GiB
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from musebench.core.errors import UsageError

GRAMMAR = r"""
    ?either: both (_OR both)*
    ?both: part (_AND part)*
    ?part: NAME OPERATOR (QUANTITY | NAME | QUOTED) -> condition
         | "(" either ")"
    _OR.3: /or\b/i
    _AND.3: /and\b/i
    OPERATOR: "<=" | ">=" | "==" | "!=" | "<" | ">" | "="
    QUANTITY.2: /[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*(x|%|ns|us|µs|ms|s|KiB|MiB|GiB|B)?(?![\w.%])/
    NAME: /[A-Za-z_][\w.\/-]*/
    QUOTED: /"[^"]*"/ | /'[^']*'/
    %ignore /\s+/
"""

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}

UNITS = {
    "": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9,
    "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30,
}  # fmt: skip
MOST_LETTERS = 1000
TIMES, SIZES = ("s", "ms", "us", "µs", "ns"), ("B", "KiB", "MiB", "GiB")


@dataclass(frozen=True)
class Quantity:
    """A number as it stands, and its unit: "x" and "%" are relative to the baseline."""

    number: float
    unit: str = ""

    @property
    def relative(self) -> bool:
        return self.unit in ("x", "%")

    def limit(self, base: float = 0.0) -> float:
        """In SI units; a relative one of `base`."""
        if self.unit == "x":
            return self.number * base
        if self.unit == "%":
            return base * (1.0 + self.number / 100.0)
        return self.number * UNITS[self.unit]


@dataclass(frozen=True)
class Condition:
    """One part: `name` `operator` `value`; `text` is how the value was written."""

    name: str
    operator: str
    value: Quantity | None
    text: str

    def compare(self, one: Any, other: Any) -> bool:
        return OPERATORS[self.operator](one, other)


@dataclass(frozen=True)
class Joined:
    """Parts of which all ("and") or any ("or") must hold."""

    word: str
    parts: tuple[Expression, ...]


Expression = Condition | Joined


def parse(text: str, option: str) -> Expression:
    """The expression in `text`; `option` ("--fail-if") starts the error.

    Raises:
        UsageError: it is none; says where it stops making sense and what was wanted there.
    """
    if len(text) > MOST_LETTERS:
        raise UsageError(f"{option} has {len(text):,} letters; at most {MOST_LETTERS:,} are taken")
    from lark import Token, Tree
    from lark.exceptions import UnexpectedInput

    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        column = getattr(error, "column", 0)
        where = f"at column {column}" if isinstance(column, int) and column > 0 else "at its end"
        raise UsageError(
            f"{option} {text!r} is no expression {where}: NAME OPERATOR VALUE is wanted, as in "
            "'output_tokens_per_second < 0.97x and growths > 1'"
        ) from error

    def built(node: Any) -> Expression:
        if node.data == "condition":
            name, sign, value = (str(child) for child in node.children if isinstance(child, Token))
            kind = node.children[2].type
            quantity = _quantity(value) if kind == "QUANTITY" else None
            plain = value[1:-1] if kind == "QUOTED" else value
            return Condition(name, "=" if sign == "==" else sign, quantity, plain)
        parts = tuple(built(child) for child in node.children if isinstance(child, Tree))
        return Joined("or" if node.data == "either" else "and", parts)

    return built(tree)


def conditions(expression: Expression) -> Iterator[Condition]:
    """All its parts, in order."""
    if isinstance(expression, Condition):
        yield expression
    else:
        for part in expression.parts:
            yield from conditions(part)


def holds(expression: Expression, test: Callable[[Condition], bool]) -> bool:
    """Whether it holds when `test` says so of each part. Every part is tested, even where one decides."""
    if isinstance(expression, Condition):
        return test(expression)
    answers = [holds(part, test) for part in expression.parts]
    return all(answers) if expression.word == "and" else any(answers)


def require_unit(condition: Condition, unit: str, option: str) -> Quantity:
    """The condition's quantity, if a metric in `unit` (of `musebench.report.table.Row`) can be held to it.

    Raises:
        UsageError: it is a word, or of another unit.
    """
    quantity = condition.value
    if quantity is None:
        raise UsageError(f"{option}: {condition.name} is a number, and {condition.text!r} is none")
    wanted = TIMES if unit == "s" else SIZES if unit == "bytes" else ()
    if quantity.unit and not quantity.relative and quantity.unit not in wanted:
        fitting = ", ".join(wanted) if wanted else "no unit"
        raise UsageError(f"{option}: {condition.name} takes {fitting}, x or %; not {quantity.unit!r}")
    return quantity


def _quantity(text: str) -> Quantity:
    for unit in sorted(["x", "%", *UNITS], key=len, reverse=True):
        if unit and text.endswith(unit):
            return Quantity(float(text[: -len(unit)]), unit)
    return Quantity(float(text))


@functools.cache
def _parser() -> Any:
    from lark import Lark

    return Lark(GRAMMAR, start="either", parser="lalr")
