"""Plugins: the hooks, and the registry that finds what implements them."""

from musebench.plugin.hookspecs import HOOK_VERSION, hookimpl

__all__ = ["HOOK_VERSION", "hookimpl"]
