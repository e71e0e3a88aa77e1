"""Things to test musebench with, in the package so that a plugin's author can use them too.

They are no components of a normal run: `MUSEBENCH_TESTING=1` in the environment registers them.
"""
