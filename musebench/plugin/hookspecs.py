"""The hooks a plugin package can implement. This file is their documentation.

A package names its module under the entry-point group `musebench`:

    [project.entry-points.musebench]
    mine = "my_package"

and the module implements any of the functions below, decorated with `musebench.plugin.hookimpl`. Each is
called once, when musebench first needs components of that kind, with `register`, and returns nothing:

    from musebench.plugin import hookimpl

    @hookimpl
    def register_pools(register):
        register("mine", MyPool, options=MyPool.Options, summary="what it does, in one line")

`register(name, factory, options=NoOptions, summary="")`: `name` is what a person types; `factory` is the
class or function, or "package.module:name" to have it imported only when it is used (anything that imports
torch should be named so); `options` is a frozen dataclass whose fields are made with
`musebench.core.options.option`, whose values `--set KIND.NAME=VALUE` sets. It may be text too, as in
"package.module:MyPool.Options", of a module that imports neither torch nor transformers: `musebench list`
imports it to show the options. Names are lowercase letters, digits and single hyphens between them.

Two packages that register one name make that name an error that names both; all other names keep working. A
package that fails to load is left out with one warning that names it, and a hook that raises leaves out what
that package registers through it; with `MUSEBENCH_STRICT_PLUGINS=1` both raise.

What a component raises (SystemExit too), and an answer of another type, is one line with its package and exit
code 2 before the first step; from then on the report is written, incomplete, with that line as its message. A
check that fails makes the reports INVALID; one, or a model source, that cannot be made is left out as above.
In the strict mode what is raised before the first step keeps its traceback.

The built-in components register through the same hooks (musebench/plugin/builtin.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pluggy

HOOK_VERSION = 1
"""Rises when a hook changes incompatibly. A plugin module may set `musebench_hook_version`; one that wants a
newer version than this is left out by name."""

hookspec = pluggy.HookspecMarker("musebench")
hookimpl = pluggy.HookimplMarker("musebench")

Register = Callable[..., None]


@hookspec
def register_executors(register: Register) -> None:
    """Register launch policies: `factory(options, backend, limits)` -> `musebench.core.protocols.Executor`.

    `limits` are the run's; the executor's own `limits` may be narrower.
    """


@hookspec
def register_pools(register: Register) -> None:
    """Register pool policies: `factory(options, bounds, storage)` -> `musebench.core.protocols.Pool`.

    Simulated runs take many equal decodes at once where a pool says for how long (`lasting` and
    `reserve_steps`, musebench.core.stretch); any other is stepped. A class may name in its attribute
    `Counted` one of the same policy that only counts cells, which a simulated run uses instead: nobody reads
    its cells.

    A pool that keeps the cells of tokens it has seen, for sequences that begin with the same, says so with
    `forget`, `held` and `adopt` (musebench.core.sharing).
    """


@hookspec
def register_schedulers(register: Register) -> None:
    """Register schedulers: `factory(options)` -> `musebench.core.protocols.Scheduler`.

    One that knows when its plan would change says so with `steady` (musebench.core.stretch); simulated runs
    step any other.
    """


@hookspec
def register_backends(register: Register) -> None:
    """Register backends, named by the part of `--device` before a colon (`cpu`, `cuda`, `sim`).

    `factory(options, device, model)`: `device` is the whole text of `--device`, `model` what a model source
    made; -> `musebench.core.protocols.Backend`.
    """


@hookspec
def register_engines(register: Register) -> None:
    """Register whole engines for `--engine`: they bring their own scheduler, pool and executor, take requests
    and tell what became of them.

    `factory(options, setting: musebench.core.peer.PeerSetting)` -> `musebench.core.peer.Peer`, which also
    says which attributes the factory has. A report of one holds no steps and no pool; checks that need them
    are not judged.
    """


@hookspec
def register_models(register: Register) -> None:
    """Register model sources, asked in order of name for a `--model` text.

    `factory(options)` -> an object with `claims(text: str) -> bool` (cheap, no torch) and
    `open(text: str, dtype: str, device: str, seed: int)` -> `musebench.models.source.Model`.
    """


@hookspec
def register_workloads(register: Register) -> None:
    """Register generators of requests, named by `generator:` in a workload file.

    `factory(options)` -> an object with `requests(context: musebench.workload.spec.Context)` ->
    list of `musebench.core.request.Request`.
    """


@hookspec
def register_trace_formats(register: Register) -> None:
    """Register readers of trace files: `factory(options)` -> an object with `recognises(head: bytes,
    filename: str) -> bool` (the file's first 64 KiB) and `read(path)` -> iterator of
    `musebench.workload.traces.TraceRow`.
    """


@hookspec
def register_checks(register: Register) -> None:
    """Register checks of reports: `factory(options)` -> an object with `check(reports)` -> list of
    `musebench.report.verdict.Verdict`. It sees all reports that are shown together; a verdict that is not
    valid makes its report INVALID in every table (unless it says `strikes=False`). `covers`, where it has it,
    names functions of `musebench.report.verdict.CHECKS` that its verdicts restate.
    """


@hookspec
def register_commands(register: Register) -> None:
    """Register click commands: `register(name, command)` adds `musebench NAME`, where `command` is a click
    command or text that names one. A `summary` saves importing it for `musebench --help`.
    """


@hookspec
def register_launchers(register: Register) -> None:
    """Register where the runs of `musebench matrix --on NAME` happen: `factory(options)` ->
    `musebench.matrix.launch.Launcher`.
    """


@hookspec
def register_routers(register: Register) -> None:
    """Register routers of simulated replicas: `factory(options)` -> `musebench.core.protocols.Router`; one is
    made a run.
    """


KINDS: dict[str, str] = {
    "executor": "register_executors",
    "pool": "register_pools",
    "scheduler": "register_schedulers",
    "backend": "register_backends",
    "engine": "register_engines",
    "model": "register_models",
    "workload": "register_workloads",
    "trace": "register_trace_formats",
    "check": "register_checks",
    "command": "register_commands",
    "launcher": "register_launchers",
    "router": "register_routers",
}
"""What a person calls a component, and the hook it comes from."""


def all_hooks() -> list[Any]:
    """The specifications in this module, for the generated documentation."""
    return [globals()[name] for name in KINDS.values()]
