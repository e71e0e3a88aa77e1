"""Measuring helpers: what cannot be measured is None with its reason once, and nothing stops a run."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from musebench.cli.doctor import plugin_rows
from musebench.measure import doctor, host, memory
from musebench.measure.energy import Energy, EnergyMeter
from musebench.measure.nvml import Nvml
from musebench.plugin.registry import Registry


class NVMLError(Exception):
    pass


class FakeNvml:
    """pynvml with one device: `answers` by function name are values, or exceptions to raise."""

    NVMLError = NVMLError

    def __init__(self, **answers):
        self.answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=600, total=1000),
            "nvmlDeviceGetComputeRunningProcesses": [
                SimpleNamespace(pid=1, usedGpuMemory=7),
                SimpleNamespace(pid=os.getpid(), usedGpuMemory=500),
            ],
            "nvmlDeviceGetTotalEnergyConsumption": 5000,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetName": b"Example GPU",
            "nvmlSystemGetDriverVersion": "580.1",
        } | answers
        self.calls = []

    def __getattr__(self, name):
        if name not in self.answers:
            raise AttributeError(f"pynvml has no {name}")

        def call(*arguments):
            self.calls.append((name, *arguments))
            answer = self.answers[name]
            answer = answer.pop(0) if isinstance(answer, list) and name.endswith("Consumption") else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def everything(nvml):
    return (
        nvml.used_bytes(), nvml.total_bytes(), nvml.process_bytes(), nvml.energy_joules(),
        nvml.power_limit_watts(), nvml.name(), nvml.driver(),
    )  # fmt: skip


def test_every_question_is_answered_where_nvml_answers():
    nvml = Nvml(0, FakeNvml())
    assert everything(nvml) == (600, 1000, 500, 5.0, 700.0, "Example GPU", "580.1")
    assert nvml.reasons == {}


@pytest.mark.parametrize("uuid", ["GPU-aa-bb", "aa-bb"])
def test_a_device_is_found_by_its_uuid_with_and_without_prefix(uuid):
    fake = FakeNvml()
    Nvml(uuid, fake).used_bytes()
    assert ("nvmlDeviceGetHandleByUUID", "GPU-aa-bb") in fake.calls


def test_a_mig_slice_is_found_by_its_own_uuid():
    fake = FakeNvml()
    Nvml("MIG-cc", fake).used_bytes()
    assert ("nvmlDeviceGetHandleByUUID", "MIG-cc") in fake.calls


def test_without_the_package_everything_is_none_with_one_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml = Nvml()
    assert everything(nvml) == (None,) * 7
    assert list(nvml.reasons) == ["NVML"]
    assert nvml.reasons["NVML"].startswith("the package nvidia-ml-py is not there")


def test_without_the_driver_everything_is_none_with_one_reason_and_one_attempt():
    fake = FakeNvml(nvmlInit=NVMLError("NVML Shared Library Not Found"))
    nvml = Nvml(0, fake)
    assert everything(nvml) == (None,) * 7
    assert nvml.reasons == {"NVML": "NVML Shared Library Not Found"}
    assert fake.calls == [("nvmlInit",)]


def test_a_device_that_nvml_does_not_know_is_named_and_nvml_is_let_go():
    fake = FakeNvml(nvmlDeviceGetHandleByIndex=NVMLError("Invalid Argument"))
    nvml = Nvml(5, fake)
    assert nvml.used_bytes() is None
    assert nvml.reasons == {"NVML": "device 5: Invalid Argument"}
    assert fake.calls[-1] == ("nvmlShutdown",)


def test_a_question_without_permission_is_none_and_the_others_are_answered():
    nvml = Nvml(0, FakeNvml(nvmlDeviceGetMemoryInfo=NVMLError("Insufficient Permissions")))
    assert nvml.used_bytes() is None
    assert nvml.total_bytes() is None
    assert nvml.driver() == "580.1"
    assert nvml.reasons == {"device memory": "Insufficient Permissions"}


def test_a_mig_slice_has_no_energy_counter_and_says_so():
    nvml = Nvml("MIG-cc", FakeNvml(nvmlDeviceGetTotalEnergyConsumption=NVMLError("Not Supported")))
    meter = EnergyMeter(nvml)
    meter.start()
    assert meter.stop() == Energy(None, "Not Supported")
    assert nvml.used_bytes() == 600


def test_the_memory_of_a_process_is_none_in_a_container_that_hides_it():
    hidden = [SimpleNamespace(pid=os.getpid(), usedGpuMemory=None)]
    nvml = Nvml(0, FakeNvml(nvmlDeviceGetComputeRunningProcesses=hidden))
    assert nvml.process_bytes() is None
    assert nvml.reasons == {
        "process memory": "NVML names the process but not its memory, as in some containers"
    }


def test_the_memory_of_a_process_is_none_where_its_id_is_another():
    others = [SimpleNamespace(pid=os.getpid() + 1, usedGpuMemory=3)]
    nvml = Nvml(0, FakeNvml(nvmlDeviceGetComputeRunningProcesses=others))
    assert nvml.process_bytes() is None
    assert f"process {os.getpid()} is not among the 1 that NVML names" in nvml.reasons["process memory"]


def test_a_reason_goes_when_the_question_is_answered_later():
    fake = FakeNvml(nvmlDeviceGetComputeRunningProcesses=[])
    nvml = Nvml(0, fake)
    assert nvml.process_bytes() is None
    fake.answers["nvmlDeviceGetComputeRunningProcesses"] = [SimpleNamespace(pid=os.getpid(), usedGpuMemory=9)]
    assert nvml.process_bytes() == 9
    assert nvml.reasons == {}


def test_an_old_pynvml_without_a_function_is_a_missing_answer():
    fake = FakeNvml()
    del fake.answers["nvmlDeviceGetTotalEnergyConsumption"]
    nvml = Nvml(0, fake)
    assert nvml.energy_joules() is None
    assert nvml.reasons == {"energy": "pynvml has no nvmlDeviceGetTotalEnergyConsumption"}


def test_closing_twice_is_safe_and_later_questions_are_none():
    fake = FakeNvml()
    nvml = Nvml(0, fake)
    nvml.used_bytes()
    nvml.close()
    nvml.close()
    assert fake.calls.count(("nvmlShutdown",)) == 1
    assert nvml.used_bytes() is None
    assert nvml.reasons == {"NVML": "NVML was closed"}


def test_closing_what_was_never_asked_starts_nothing():
    fake = FakeNvml()
    Nvml(0, fake).close()
    assert fake.calls == []


@pytest.mark.parametrize(
    ("readings", "energy"),
    [
        ([5000, 7500], Energy(2.5)),
        ([5000, 5000], Energy(None, "the counter did not move: the window is too short")),
        ([5000, 10], Energy(None, "the counter fell: the driver was loaded anew")),
        ([NVMLError("Not Supported"), NVMLError("Not Supported")], Energy(None, "Not Supported")),
        ([NVMLError("Unknown Error"), 5000], Energy(None, "the counter was not read at the start")),
    ],
)
def test_energy_is_the_difference_of_two_readings_or_none_with_a_reason(readings, energy):
    meter = EnergyMeter(Nvml(0, FakeNvml(nvmlDeviceGetTotalEnergyConsumption=list(readings))))
    meter.start()
    assert meter.stop() == energy


def test_a_meter_measures_one_window_after_another():
    meter = EnergyMeter(Nvml(0, FakeNvml(nvmlDeviceGetTotalEnergyConsumption=[0, 1000, 5000, 8000])))
    made = []
    for _ in range(2):
        meter.start()
        made.append(meter.stop().joules)
    assert made == [1.0, 3.0]


def test_energy_without_a_device_or_a_start_is_none_with_a_reason():
    assert EnergyMeter(None).stop() == Energy(None, "this device has no energy counter")
    assert EnergyMeter(Nvml(0, FakeNvml())).stop() == Energy(None, "the counter was not read at the start")


def proc_of(folder, status="", meminfo=""):
    (folder / "self").mkdir()
    (folder / "self" / "status").write_text(status)
    (folder / "meminfo").write_text(meminfo)
    return folder


def test_host_memory_is_read_from_the_kernels_files(tmp_path):
    proc = proc_of(
        tmp_path, "Name:\tx\nVmHWM:\t  20 kB\nVmRSS:\t  10 kB\n", "MemTotal: 100 kB\nMemAvailable: 60 kB\n"
    )
    assert memory.host_resident(proc) == 10 * 1024
    assert memory.host_peak(proc) == 20 * 1024
    assert memory.host_total(proc) == 100 * 1024
    assert memory.host_available(proc, tmp_path / "none") == 60 * 1024


def test_available_memory_is_no_more_than_the_cgroup_leaves(tmp_path):
    proc = proc_of(tmp_path, meminfo="MemAvailable: 60 kB\n")
    (tmp_path / "memory.max").write_text("50000\n")
    (tmp_path / "memory.current").write_text("30000\n")
    assert memory.host_available(proc, tmp_path) == 20_000
    (tmp_path / "memory.current").write_text("60000\n")
    assert memory.host_available(proc, tmp_path) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.host_available(proc, tmp_path) == 60 * 1024


def test_without_the_kernels_files_the_peak_comes_from_getrusage_and_the_rest_is_none(tmp_path):
    assert memory.host_resident(tmp_path) is None
    assert memory.host_total(tmp_path) is None
    assert memory.host_available(tmp_path, tmp_path) is None
    assert memory.host_peak(tmp_path) > 1_000_000


def test_this_process_has_a_resident_set_below_its_peak():
    assert 1_000_000 < memory.host_resident() <= memory.host_peak()


def test_a_snapshot_keeps_the_three_sources_apart():
    made = memory.snapshot(Nvml(0, FakeNvml()), allocated=1, reserved=2, peak=3)
    assert (made.allocated, made.reserved, made.peak) == (1, 2, 3)
    assert (made.device_used, made.process_used) == (600, 500)
    assert made.host_peak is not None
    bare = memory.snapshot()
    assert (bare.allocated, bare.device_used, bare.process_used) == (None, None, None)


def test_the_processor_is_named_by_the_kernel_or_else_by_python(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: Example  CPU @ 2GHz\n")
    assert host.cpu_name(info) == "Example CPU @ 2GHz"
    assert host.cpu_name(tmp_path / "none") != ""
    assert host.cores() >= 1


def test_versions_come_from_metadata_with_none_for_what_is_not_installed():
    made = host.versions(["numpy", "no-such-package"])
    import numpy

    assert made["numpy"] == numpy.__version__
    assert made["no-such-package"] is None
    assert made["python"].startswith("3.")
    assert made["musebench"]


def git(folder, *arguments):
    subprocess.run(
        ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture
def checkout(tmp_path):
    try:
        git(tmp_path, "init")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_the_commit_is_that_of_the_checkout_and_dirty_when_the_code_differs(checkout):
    package = checkout / "package"
    clean = host.commit(package)
    assert len(clean.commit) == 40
    assert clean.dirty is False
    (checkout / "notes.txt").write_text("beside the code")
    assert host.commit(package) == clean
    (package / "new.py").write_text("")
    assert host.commit(package) == (clean.commit, True)


def test_an_installed_package_inside_somebodys_checkout_has_no_commit(checkout):
    installed = checkout / "venv" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert host.commit(installed) == (None, None)


def test_there_is_no_commit_outside_a_checkout_or_without_git(tmp_path, checkout, monkeypatch):
    assert host.commit(tmp_path.parent) == (None, None)
    monkeypatch.setenv("PATH", "")
    assert host.commit(checkout / "package") == (None, None)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (["/home/me/bin/musebench", "run", "chat"], ["musebench", "run", "chat"]),
        (["m", "--hub-token", "abc", "x"], ["m", "--hub-token", "***", "x"]),
        (["m", "--api-key=abc", "x"], ["m", "--api-key=***", "x"]),
        (["m", "--set", "model.token=abc"], ["m", "--set", "model.token=***"]),
        (["m", "--password", "--odd", "x"], ["m", "--password", "***", "x"]),
        (["m", "hf_abcdefghijkl"], ["m", "***"]),
        (["m", "https://me:pw@host/x"], ["m", "https://***@host/x"]),
        (["m", "--max-tokens", "5", "--most-tokens=7"], ["m", "--max-tokens", "5", "--most-tokens=7"]),
        (["m", "token"], ["m", "token"]),
        ([], []),
    ],
)
def test_a_command_is_stored_without_secrets_and_without_the_programs_folder(given, stored):
    assert host.command_line(given) == stored


def test_the_doctor_looks_at_everything_and_says_what_is_missing_and_why():
    facts = doctor.diagnose()
    by_name = {fact.what: fact for fact in facts}
    assert by_name["python"].state == doctor.OK
    assert by_name["device cpu"].state == doctor.OK
    assert by_name["attention interface"].state == doctor.OK
    assert {fact.state for fact in facts} <= {doctor.OK, doctor.MISSING, doctor.BROKEN, doctor.INFO}
    assert all(fact.detail and "\n" not in fact.detail for fact in facts)
    if "device cuda" in by_name:  # on a machine with GPUs it is "device cuda:0"
        assert by_name["device cuda"].state == doctor.MISSING
        assert by_name["graph capture"].detail == "needs device cuda; use executor eager"


def test_a_probe_that_raises_becomes_a_line_and_keeps_what_it_said_before(monkeypatch):
    def broken():
        yield doctor.Fact("first", doctor.OK, "fine")
        raise RuntimeError("two\nlines")

    def absent():
        raise ModuleNotFoundError("No module named 'x'")
        yield

    monkeypatch.setattr(doctor, "PROBES", {"thing": broken, "other": absent})
    assert [fact.row for fact in doctor.diagnose()] == [
        ("first", "ok", "fine"),
        ("thing", "broken", "RuntimeError: two lines"),
        ("other", "missing", "ModuleNotFoundError: No module named 'x'"),
    ]


def test_the_doctor_names_nvmls_reasons(monkeypatch):
    fake = FakeNvml(nvmlDeviceGetTotalEnergyConsumption=NVMLError("Not Supported"))
    monkeypatch.setattr(doctor, "Nvml", lambda: Nvml(0, fake))
    rows = {fact.what: fact.row[1:] for fact in doctor.probe_nvml()}
    assert rows["driver"] == ("ok", "580.1")
    assert rows["NVML energy"] == ("missing", "Not Supported")
    assert rows["NVML power limit"] == ("ok", "700 W")
    monkeypatch.setattr(doctor, "Nvml", lambda: Nvml(0, FakeNvml(nvmlInit=NVMLError("no library"))))
    (fact,) = doctor.probe_nvml()
    assert (fact.what, fact.state) == ("NVML", "missing")
    assert fact.detail.startswith("no library; ")


def test_the_doctor_names_plugins_and_their_problems():
    registry = Registry()
    registry.add(object(), "hollow", "1.0")
    ((_, state, detail),) = plugin_rows(registry)
    assert state == doctor.BROKEN
    assert detail.startswith("plugin hollow 1.0 is left out")


def test_the_hosts_peak_starts_again_from_what_is_resident(tmp_path):
    status = tmp_path / "self"
    status.mkdir()
    assert memory.reset_host_peak(tmp_path)
    assert (status / "clear_refs").read_text() == "5"
    assert not memory.reset_host_peak(tmp_path / "nowhere")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's files are Linux's")
def test_a_peak_that_has_passed_is_forgotten_and_freed_memory_handed_back():
    block = bytearray(64 << 20)
    block[:: 1 << 12] = b"x" * len(block[:: 1 << 12])
    high = memory.host_peak()
    del block
    memory.trim_host()
    if not memory.reset_host_peak():
        pytest.skip("this kernel does not let the peak be reset")
    assert memory.host_peak() <= high - (48 << 20)
