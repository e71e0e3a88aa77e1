"""Programs compiled ahead of time: what is inside such a package, without torch."""
