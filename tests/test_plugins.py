"""Plugin packages through their entry points, the registry's isolation of each, and components' options."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from plugins_for_tests.install import install_folder, install_source

from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.options import NoOptions, option
from musebench.plugin import HOOK_VERSION, hookimpl
from musebench.plugin.component import Component
from musebench.plugin.hookspecs import KINDS
from musebench.plugin.registry import PluginFailed, Problem, Registry, parse_settings
from musebench.workload.traces import READERS

PACKAGES = Path(__file__).parent / "plugins_for_tests"

WORKING = """
@hookimpl
def register_pools(register):
    register("{name}", dict)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An empty folder on the import path, where packages are installed for one test."""
    monkeypatch.delenv("MUSEBENCH_STRICT_PLUGINS", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def names(registry: Registry, kind: str) -> list[str]:
    return [component.name for component in registry.components(kind)]


def built_in(registry: Registry, kind: str) -> list[str]:
    return [component.name for component in registry.components(kind) if component.package == "musebench"]


def only_problem(registry: Registry) -> Problem:
    (problem,) = registry.problems
    assert "\n" not in problem.line
    return problem


def plugin(**hooks) -> ModuleType:
    module = ModuleType("plugin_of_the_tests")
    for name, function in hooks.items():
        setattr(module, name, hookimpl(function))
    return module


def with_pool(factory, **registration) -> Component:
    """The pool 'mine', registered by a plugin package of one hook."""
    registry = Registry()
    registry.add(
        plugin(register_pools=lambda register: register("mine", factory, **registration)), "alpha", "1.0"
    )
    return registry.get("pool", "mine")


# -- packages, through their entry points ---------------------------------------------------------------


def test_installed_package_is_found_through_its_entry_point_alone(site):
    install_folder(PACKAGES / "sample", site)
    component = Registry.installed().get("pool", "sample")
    assert (component.package, component.version) == ("musebench-sample", "1.10")
    assert component.summary == "a pool for the tests"
    assert [(one.name, one.default) for one in component.describe()] == [("rows", 8), ("strict", False)]


def test_installed_package_is_unknown_where_it_is_not_installed():
    assert "sample" not in names(Registry.installed(), "pool")


def test_component_gets_parsed_options_and_the_other_arguments(site):
    install_folder(PACKAGES / "sample", site)
    component = Registry.installed().get("pool", "sample")
    pool = component.make({"rows": "12", "strict": "yes"}, "bounds", "storage")
    assert (pool.options.rows, pool.options.strict) == (12, True)
    assert (pool.bounds, pool.storage) == ("bounds", "storage")


BUILT_IN = [
    component
    for kind in KINDS
    for component in Registry.installed().components(kind)
    if component.package == "musebench"
]


def test_built_in_components_register_through_the_same_hooks():
    registry = Registry.installed()
    assert built_in(registry, "pool") == ["fixed", "geometric"]
    assert built_in(registry, "scheduler") == ["chunked", "continuous", "solo", "static"]
    assert built_in(registry, "trace") == sorted(READERS)
    assert not registry.problems


@pytest.mark.parametrize("component", BUILT_IN, ids=lambda component: f"{component.kind}-{component.name}")
def test_every_built_in_component_is_named_right_and_told_about(component):
    assert callable(component.load())
    assert component.summary
    for entry in component.describe():
        assert entry.help
        assert component.parse({entry.name: entry.default}) == component.parse({})


BROKEN = {
    "import": ("import no_such_module_at_all", "No module named 'no_such_module_at_all'"),
    "exception": ("raise RuntimeError('broken\\nin two lines')", "RuntimeError: broken in two lines"),
    "exit": ("raise SystemExit('I quit')", "SystemExit: I quit"),
    "syntax": ("def", "SyntaxError"),
    "signature": ("@hookimpl\ndef register_pools(registry): pass", "registry"),
    "no-argument": ("@hookimpl\ndef register_pools(): pass", "takes no argument named 'register'"),
    "unknown-hook": (
        "@hookimpl\ndef register_pool(register): pass",
        "there is no hook 'register_pool'; did you mean 'register_pools'?",
    ),
    "no-hook": ("def register_pools(register): pass", "implements no hook"),
    "newer": (
        f"musebench_hook_version = {HOOK_VERSION + 1}" + WORKING.format(name="unwanted"),
        f"wants hook version {HOOK_VERSION + 1}",
    ),
    "odd-version": ("musebench_hook_version = 'one'" + WORKING.format(name="unwanted"), "'one'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_package_that_cannot_load_is_left_out_by_name_and_others_work(site, case):
    source, error = BROKEN[case]
    install_source(site, "broken-package", source, version="2.5")
    install_source(site, "working-package", WORKING.format(name="works"))
    told: list[Problem] = []
    registry = Registry.installed(on_problem=told.append)
    assert "works" in names(registry, "pool")
    assert "geometric" in names(registry, "pool")
    problem = only_problem(registry)
    assert problem.line.startswith("plugin broken-package 2.5 is left out: ")
    assert error in problem.line
    assert told == [problem]


@pytest.mark.parametrize("case", BROKEN)
def test_strict_mode_raises_for_a_package_that_cannot_load(site, monkeypatch, case):
    install_source(site, "broken-package", BROKEN[case][0])
    monkeypatch.setenv("MUSEBENCH_STRICT_PLUGINS", "1")
    with pytest.raises(PluginFailed, match="broken-package") as caught:
        Registry.installed()
    assert caught.value.__cause__ is not None


def test_strict_mode_is_off_at_zero(site, monkeypatch):
    install_source(site, "broken-package", "import no_such_module_at_all")
    monkeypatch.setenv("MUSEBENCH_STRICT_PLUGINS", "0")
    assert only_problem(Registry.installed()).package == "broken-package"


@pytest.mark.parametrize("group", ["musebench", "another"])
def test_package_with_a_malformed_list_of_entry_points_stops_nobody_else(site, group):
    install_source(site, "broken-package", "")
    install_source(site, "working-package", WORKING.format(name="works"))
    (site / "broken_package-1.0.dist-info" / "entry_points.txt").write_text(f"[{group}]\nno equals sign\n")
    registry = Registry.installed()
    assert {"works", "geometric"} <= set(names(registry, "pool"))
    assert [problem.package for problem in registry.problems] == ["broken-package"] * (group == "musebench")


def test_package_without_a_name_and_version_is_loaded_all_the_same(site):
    install_source(site, "bare-package", WORKING.format(name="works"))
    (site / "bare_package-1.0.dist-info" / "METADATA").unlink()
    registry = Registry.installed()
    assert registry.get("pool", "works").origin
    assert not registry.problems


FAILING_HOOKS = {
    "raises": ("raise ValueError('too late')", "ValueError: too late"),
    "bad-name": ("register('Not A Name', dict)", "pool 'Not A Name' is no name"),
    "bad-factory": ("register('fine', 3)", "factory is 3"),
    "bad-options": ("register('fine', dict, options=int)", "options is <class 'int'>; a dataclass"),
    "bad-call": ("register('fine')", "TypeError"),
    "twice": ("register('early', dict)", "pool 'early' is registered twice by hooked-package"),
}


@pytest.mark.parametrize("case", FAILING_HOOKS)
def test_hook_that_fails_loses_all_of_that_kind_and_nothing_else(site, case):
    body, error = FAILING_HOOKS[case]
    source = f"""
@hookimpl
def register_pools(register):
    register("early", dict)
    {body}

@hookimpl
def register_schedulers(register):
    register("kept", dict)
"""
    install_source(site, "hooked-package", source)
    registry = Registry.installed()
    assert "early" not in names(registry, "pool")
    assert "geometric" in names(registry, "pool")
    assert "kept" in names(registry, "scheduler")
    problem = only_problem(registry)
    assert problem.line.startswith("plugin hooked-package 1.0 adds no pool, its register_pools failed: ")
    assert error in problem.line


def test_hook_that_fails_raises_in_strict_mode(site, monkeypatch):
    install_source(site, "hooked-package", "@hookimpl\ndef register_pools(register): raise ValueError('no')")
    monkeypatch.setenv("MUSEBENCH_STRICT_PLUGINS", "1")
    registry = Registry.installed()
    assert "solo" in names(registry, "scheduler")
    with pytest.raises(PluginFailed, match="hooked-package"):
        registry.components("pool")


def test_hook_is_called_once_and_only_when_its_kind_is_needed():
    calls = []
    registry = Registry()
    registry.add(plugin(register_pools=lambda register: calls.append(register)), "alpha", "1.0")
    registry.components("scheduler")
    assert not calls
    registry.components("pool")
    registry.components("pool")
    assert len(calls) == 1


# -- names ----------------------------------------------------------------------------------------------


def test_name_of_two_packages_is_an_error_naming_both_for_that_name_only(site):
    for package in ("alpha", "beta"):
        source = WORKING.format(name="twin") + f"    register('only-{package}', dict)\n"
        install_source(site, package, source)
    registry = Registry.installed()
    with pytest.raises(UsageError, match=r"pool 'twin' is registered by alpha 1\.0 and beta 1\.0"):
        registry.get("pool", "twin")
    assert "twin" not in names(registry, "pool")
    assert registry.get("pool", "only-alpha").package == "alpha"
    assert registry.get("pool", "only-beta").package == "beta"
    assert len(registry.conflicts("pool")) == 1
    assert not registry.conflicts("scheduler")


def test_name_of_a_built_in_component_taken_by_a_package_names_both(site):
    install_source(site, "alpha", WORKING.format(name="geometric"), version="3.1")
    with pytest.raises(UsageError, match=r"musebench \S+ and alpha 3.1"):
        Registry.installed().get("pool", "geometric")


def test_unknown_name_gives_the_nearest():
    with pytest.raises(UsageError, match="there is no pool 'geometrical'; did you mean 'geometric'"):
        Registry.installed().get("pool", "geometrical")


def test_unknown_kind_gives_the_nearest():
    with pytest.raises(UsageError, match="'pools'; did you mean 'pool'"):
        Registry.installed().components("pools")


@pytest.mark.parametrize("name", ["a", "a1", "paged-v2", "2d"])
def test_good_names_are_taken(name):
    assert Component("pool", name, dict).where == f"pool '{name}'"


@pytest.mark.parametrize("name", ["", "A", "a_b", "a b", "-a", "a-", "a--b", "ä", "a.b", "a:b", "a\n", None])
def test_bad_names_are_refused(name):
    with pytest.raises(UsageError, match="is no name"):
        Component("pool", name, dict)


# -- factories and options ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    factor: float = option(2.0, "how much", above=1.0)


def test_text_factory_is_imported_at_first_use_only(site):
    (site / "late_module.py").write_text(
        "from musebench.core.options import NoOptions\n"
        "class Late:\n    Options = NoOptions\n    def __init__(self, options): self.options = options\n"
    )
    component = with_pool("late_module:Late", options="late_module:Late.Options")
    assert "late_module" not in sys.modules
    assert component.make({}).options == NoOptions()
    assert "late_module" in sys.modules


def test_unknown_option_names_component_and_nearest():
    component = with_pool(lambda options: options, options=Options)
    with pytest.raises(UsageError, match="pool 'mine' has no option 'fcator'; did you mean 'factor'"):
        component.make({"fcator": "3"})


def test_component_without_options_refuses_any():
    with pytest.raises(UsageError, match="pool 'mine' has no option 'rows'; there are none"):
        with_pool(dict).make({"rows": "3"})


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("no_such_module_at_all:Pool", "cannot be imported: No module named 'no_such_module_at_all'"),
        ("musebench.core.clock:Sundial", "names musebench.core.clock:Sundial: .*no attribute 'Sundial'"),
    ],
)
def test_text_factory_that_is_not_there_is_one_line(target, error):
    with pytest.raises(UnsupportedError, match=f"pool 'mine' of alpha 1.0 {error}"):
        with_pool(target).make({})


def test_missing_requirement_of_a_text_factory_is_one_line_naming_it(site):
    (site / "needy.py").write_text("import no_such_module_at_all\n")
    with pytest.raises(UnsupportedError, match="needs the module 'no_such_module_at_all', which is not inst"):
        with_pool("needy:Pool").make({})


def test_missing_requirement_met_inside_the_factory_is_one_line_too():
    def factory(options):
        importlib.import_module("no_such_module_at_all")

    with pytest.raises(UnsupportedError, match="needs the module 'no_such_module_at_all'"):
        with_pool(factory).make({})


def test_missing_requirement_of_an_extra_names_the_extra(site):
    install_source(site, "alpha", WORKING.format(name="unused"))
    with (site / "alpha-1.0.dist-info" / "METADATA").open("a") as file:
        file.write('Requires-Dist: other\nRequires-Dist: no-such-thing>=0.1; extra == "things"\n')
    (site / "needy.py").write_text("import no_such_thing\n")
    with pytest.raises(UnsupportedError, match=r"pip install 'alpha\[things\]'"):
        with_pool("needy:Pool").make({})


def test_options_text_that_names_no_dataclass_is_one_line():
    with pytest.raises(UnsupportedError, match="HostClock is no dataclass"):
        with_pool(dict, options="musebench.core.clock:HostClock").describe()


# -- --set ----------------------------------------------------------------------------------------------


def test_settings_are_grouped_by_kind():
    texts = ["pool.factor=1.5", "pool.first-rows=8", "executor.sizes=1,2,4", "model.path=a=b"]
    assert parse_settings(texts) == {
        "pool": {"factor": "1.5", "first_rows": "8"},
        "executor": {"sizes": "1,2,4"},
        "model": {"path": "a=b"},
    }
    assert parse_settings([]) == {}


@pytest.mark.parametrize("text", ["", "pool", "pool.factor", "factor=2", "pool.=2", "=2"])
def test_setting_of_another_form_is_refused(text):
    with pytest.raises(UsageError, match=f"--set '{text}' is not KIND.NAME=VALUE"):
        parse_settings([text])


def test_setting_of_an_unknown_kind_gives_the_nearest():
    with pytest.raises(UsageError, match="there is no kind 'pol' to set; did you mean 'pool'"):
        parse_settings(["pol.factor=2"])


def test_setting_of_a_command_is_refused():
    with pytest.raises(UsageError, match="no kind 'command' to set"):
        parse_settings(["command.list=2"])


@pytest.mark.parametrize("again", ["pool.first_rows=9", "pool.first-rows=9"])
def test_setting_given_twice_is_refused_however_it_is_spelled(again):
    with pytest.raises(UsageError, match=r"--set pool\.first_rows is given twice"):
        parse_settings(["pool.first-rows=8", again])
