"""A plugin package as small as it can be."""

from dataclasses import dataclass

import click

from musebench.core.options import option
from musebench.plugin import hookimpl


class SamplePool:
    @dataclass(frozen=True)
    class Options:
        rows: int = option(8, "how many rows there are", minimum=1)
        strict: bool = option(False, "refuse what others allow")

    def __init__(self, options, bounds, storage):
        self.options = options
        self.bounds = bounds
        self.storage = storage


@click.command()
def greet():
    """Say hello."""
    click.echo("hello from a plugin")


@hookimpl
def register_pools(register):
    register("sample", SamplePool, options=SamplePool.Options, summary="a pool for the tests")


@hookimpl
def register_commands(register):
    register("greet", greet)
