"""The launcher `ray`: `musebench matrix --on ray` runs each run as a task of a Ray cluster."""

from musebench.plugin import hookimpl


@hookimpl
def register_launchers(register):
    register(
        "ray",
        "musebench_ray.launcher:RayLauncher",
        options="musebench_ray.options:Options",
        summary="on a Ray cluster, each run a task with its GPU",
    )
