"""Simulate and benchmark batched LLM inference: executors, KV pool policies and schedulers as plugins."""

__version__ = "0.1.0"
