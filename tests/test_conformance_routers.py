"""Routers: built-in ones keep the laws, and planted faults are found by theirs, in words."""

from __future__ import annotations

import pytest
from conformance_laws import assert_broken, assert_held

from musebench.plugin.registry import Registry
from musebench.testing.laws.router import hold_router

REGISTRY = Registry.installed()


@pytest.mark.parametrize("name", [component.name for component in REGISTRY.components("router")])
def test_built_in_routers_keep_every_law(name):
    component = REGISTRY.get("router", name)
    assert_held(hold_router(lambda: component.make({}), examples=60))


class OneTooMany:
    name = "one-too-many"

    def route(self, request, replicas):
        return len(request.prompt) % (len(replicas) + 1)


class Remembers:
    name, asked = "remembers", 0

    def route(self, request, replicas):
        Remembers.asked += 1
        return Remembers.asked % len(replicas)


@pytest.mark.parametrize(
    ("kind", "law", "words"),
    [(OneTooMany, "place", "it answered 1 for 1 replicas"), (Remembers, "same", "the second time")],
)
def test_a_broken_router_is_found_by_its_law_in_words(kind, law, words):
    assert_broken(hold_router(kind, examples=60), {law}, words)
