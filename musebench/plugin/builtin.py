"""The built-in components, registered through the same hooks as any plugin's.

Everything is named by text, so that nothing is imported before it is used. Options stand in modules that
import neither torch nor transformers: `musebench list` shows them.
"""

from __future__ import annotations

from musebench.core.options import NoOptions
from musebench.plugin.hookspecs import Register, hookimpl


def _with_own_options(register: Register, name: str, target: str, summary: str) -> None:
    """Register a class whose options are its own `Options`."""
    register(name, target, options=f"{target}.Options", summary=summary)


@hookimpl
def register_executors(register: Register) -> None:
    for name, summary in (
        ("eager", "launches every operation of every forward"),
        ("graph", "replays decodes as CUDA graphs, captured again when the pool moves"),
        ("compiled", "the model through torch.compile, its decodes captured or not"),
        ("exported", "a program compiled ahead of time, within its bounds"),
    ):
        target = f"musebench.executors.{name}:{name.capitalize()}Executor"
        _with_own_options(register, name, target, summary)


@hookimpl
def register_pools(register: Register) -> None:
    _with_own_options(
        register,
        "geometric",
        "musebench.pools.geometric:GeometricPool",
        "starts small and grows by a factor; a token claims the lowest free cell",
    )
    _with_own_options(
        register, "fixed", "musebench.pools.fixed:FixedPool",
        "reserves every session's whole context in one run when it is admitted",
    )  # fmt: skip


@hookimpl
def register_schedulers(register: Register) -> None:
    for name, summary in (
        ("solo", "one sequence at a time, from its first token to its last"),
        ("static", "fills a batch, runs it until its last sequence ends, then fills the next"),
        ("continuous", "admits a waiting sequence as soon as there is room, whole prompts first"),
        ("chunked", "decodes first, then prompts in slices within the step's token budget"),
    ):
        target = f"musebench.schedulers.{name}:{name.capitalize()}Scheduler"
        _with_own_options(register, name, target, summary)


@hookimpl
def register_backends(register: Register) -> None:
    for name, summary in (
        ("cpu", "the processor, through torch"),
        ("cuda", "an NVIDIA GPU, through torch: cuda, or cuda:1 for the second"),
    ):
        register(
            name,
            "musebench.backends.torch_backend:TorchBackend",
            options="musebench.backends.torch_options:TorchOptions",
            summary=summary,
        )
    register(
        "sim",
        "musebench.backends.simulated.backend:SimulatedBackend",
        options="musebench.backends.simulated.options:SimulatedOptions",
        summary="a virtual clock and a cost model: sim:h200, or sim:FILE of a profile of your own",
    )


@hookimpl
def register_engines(register: Register) -> None:
    register(
        "musebench", "musebench.core.engine:Engine",
        summary="musebench's own, of an executor, a pool and a scheduler",
    )  # fmt: skip


@hookimpl
def register_models(register: Register) -> None:
    for name, module, source, summary in (
        (
            "bundled",
            "bundled_source",
            "BundledSource",
            "a tiny Llama that knows capitals; nothing is downloaded",
        ),
        ("directory", "directory", "DirectorySource", "a folder in Hugging Face form, or a hub id"),
        ("gguf", "gguf_source", "GGUFSource", "a .gguf file, dequantized"),
        ("program", "program_source", "ProgramSource", "a .pt2 package that musebench export made"),
        ("random", "random_source", "RandomSource", "random:SHAPE, seeded weights made on the device"),
        (
            "shape",
            "shape_source",
            "ShapeSource",
            "the name of a shape, without weights, for simulated devices",
        ),
    ):
        _with_own_options(register, name, f"musebench.models.{module}:{source}", summary)


@hookimpl
def register_trace_formats(register: Register) -> None:
    for name, reader, summary in (
        ("azure", "azure:AzureReader", "Azure's LLM inference traces, 2023 and 2024"),
        ("burstgpt", "burstgpt:BurstGptReader", "BurstGPT's traces"),
        (
            "llmservingsim",
            "llmservingsim:LlmServingSimReader",
            "LLMServingSim's JSON lines, token ids included",
        ),
        ("mooncake", "mooncake:MooncakeReader", "Mooncake's JSON lines, with the blocks that prompts share"),
        ("plain-csv", "plain:PlainCsvReader", "any CSV with a column of prompt and one of output tokens"),
        ("plain-jsonl", "plain:PlainJsonReader", "any JSON lines with keys of prompt and output tokens"),
        ("splitwise", "splitwise:SplitwiseReader", "splitwise-sim's request traces"),
        ("vidur", "vidur:VidurReader", "Vidur's request traces"),
    ):
        _with_own_options(register, name, f"musebench.workload.traces.{reader}", summary)


@hookimpl
def register_checks(register: Register) -> None:
    for name, options, summary in (
        ("answers", None, "every request ended normally and contains its expected answer"),
        ("tokens", "Tokens", "the same tokens whatever the executor, pool and scheduler"),
        ("reference", "Reference", "the tokens of plain transformers on the same weights"),
        ("weights", "Weights", "weights load once, whatever a run reserves"),
        ("pool", "Pool", "rows and bytes are what the policy says, and nothing is left"),
        ("accounting", None, "tokens and times add up across requests, steps and metrics"),
        ("determinism", "Tokens", "the same choices give the same tokens again"),
        ("bound", "Bound", "each phase's peak is within the memory stated before the run"),
        ("honest", "Honest", "no floor beaten, no sample missing, the device waited for, tokens made"),
    ):
        register(
            name,
            f"musebench.checks.{name}:{name.capitalize()}Check",
            options=f"musebench.checks.options:{options}Options" if options else NoOptions,
            summary=summary,
        )


@hookimpl
def register_commands(register: Register) -> None:
    for name, summary in (
        ("run", "Run a workload and report what it cost and whether its tokens are right."),
        ("capacity", "Find the highest rate at which a simulated device keeps its objectives."),
        ("recover", "Make a report of the journal of a run that was cut off."),
        ("list", "Show the components there are, their options and packages."),
        ("doctor", "Show what this machine has, and what is missing."),
        ("compare", "Compare reports with a baseline."),
        ("explain", "Show where the time of one step goes on a simulated device."),
        ("profile", "Measure a device for simulation, or show the profiles there are."),
        ("export", "Compile a model ahead of time into a program with bounds."),
        ("plot", "Draw pictures of reports."),
        ("report", "Show the tables of reports, or put all of them on one page."),
        ("trace", "Turn a report into trace events for Perfetto."),
        ("convert", "Convert reports to and from pytest-benchmark's JSON."),
        ("gate", "Hold exact numbers against committed baselines."),
        ("history", "Follow a metric over commits, and mark where it changed."),
        ("matrix", "Run every combination of choices, a process each, into one table."),
        ("check", "Hold reports to every check, with the sums shown."),
        ("conformance", "Hold a component to every law of its kind, over random histories."),
        ("accept", "Three runs of a model and the checks that they must pass."),
        ("new-plugin", "Make a plugin package to start from, with tests and a README."),
    ):
        register(name, f"musebench.cli.{name.replace('-', '_')}:command", summary=summary)


@hookimpl
def register_launchers(register: Register) -> None:
    _with_own_options(
        register, "local", "musebench.matrix.launch:LocalLauncher", "on this machine, one run at a time"
    )


@hookimpl
def register_routers(register: Register) -> None:
    for name, target, summary in (
        ("round-robin", "round_robin:RoundRobinRouter", "one replica after the other"),
        (
            "least-tokens",
            "least_tokens:LeastTokensRouter",
            "the replica with the fewest queued and running tokens",
        ),
        (
            "prefix-affinity",
            "prefix_affinity:PrefixAffinityRouter",
            "where the prompt's beginning went before",
        ),
    ):
        _with_own_options(register, name, f"musebench.routers.{target}", summary)
