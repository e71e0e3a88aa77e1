"""Compiles a transformers model ahead of time into a package of methods (see `musebench.programs`)."""
