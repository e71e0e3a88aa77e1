"""The registry of one invocation, shared by the command group and the command it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar

import click

from musebench.plugin.registry import Problem, Registry

Result = TypeVar("Result")

_KEY = "musebench.registry"


def registry_of(context: click.Context) -> Registry:
    """The registry of this invocation, made at first use; each problem is one line on standard error."""
    if _KEY not in context.meta:
        context.meta[_KEY] = Registry.installed(on_problem=_warn)
    registry: Registry = context.meta[_KEY]
    return registry


def pass_registry(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate a command's function to get the `Registry` as its first argument."""

    def wrapper(*arguments: Any, **options: Any) -> Result:
        return function(registry_of(click.get_current_context()), *arguments, **options)

    return update_wrapper(wrapper, function)


def _warn(problem: Problem) -> None:
    click.echo(f"musebench: warning: {problem.line}", err=True)
