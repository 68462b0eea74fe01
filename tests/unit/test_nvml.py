"""What the driver says of GPUs, as recorded: whole ones, slices, lost and hidden ones, failures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_nvml import (
    DIVIDED,
    EMPTY,
    GB10,
    H100,
    H200,
    HIDDEN,
    LOST,
    RTX,
    SLICE_1,
    SLICE_2,
    TEXTS,
    Device,
    NVMLError,
    RecordedNvml,
)

from kimi_serve.launcher.machine.hardware import probe
from kimi_serve.launcher.machine.nvml import ask_driver, import_nvml
from kimi_serve.launcher.machine.visible_gpus import visible_gpus
from kimi_serve.schemas.hardware import Gpu, Hardware


def ask(*devices: Device) -> tuple[Gpu, ...]:
    gpus = ask_driver(RecordedNvml(*devices)).gpus
    assert gpus is not None
    return gpus


def look(nvml: RecordedNvml, root: Path, visible: str | None = None) -> Hardware:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return probe(env, root=root, load_nvml=lambda: nvml)


def test_whole_gpus() -> None:
    nvml = RecordedNvml(H200, RTX)
    answer = ask_driver(nvml)
    assert answer.note == "NVML lists 2 GPUs"
    assert answer.gpus == (
        Gpu(0, H200.uuid, "NVIDIA H200", 143771, 143186),
        Gpu(1, RTX.uuid, "NVIDIA RTX PRO 6000 Blackwell", 97887, 97275),
    )
    assert nvml.num_open == 0


def test_an_old_driver_knows_no_slices_and_an_old_module_gives_bytes() -> None:
    answer = ask_driver(RecordedNvml(H100, is_old=True))
    assert answer.gpus == (Gpu(0, H100.uuid, "NVIDIA H100 80GB HBM3", 81559, 81029),)


def test_a_gpu_without_memory_of_its_own() -> None:
    assert ask(GB10) == (Gpu(0, GB10.uuid, "NVIDIA GB10"),)
    zero = Device("GPU-0", "NVIDIA Thor")
    assert ask(zero) == (Gpu(0, "GPU-0", "NVIDIA Thor"),)


def test_a_lost_or_hidden_gpu_is_told_and_the_others_stay() -> None:
    nvml = RecordedNvml(H100, LOST, HIDDEN, H100)
    answer = ask_driver(nvml)
    assert [gpu.index for gpu in answer.gpus or ()] == [0, 3]
    assert "GPU 1 cannot be used: GPU is lost" in answer.note
    assert "GPU 2 cannot be used: Insufficient Permissions" in answer.note
    assert nvml.num_open == 0


def test_a_gpu_that_keeps_its_name_to_itself() -> None:
    shy = Device("GPU-1", "", 1024, faults={"nvmlDeviceGetName": 999})
    assert ask(shy) == (Gpu(0, "GPU-1", None, 1024, 1024),)


@pytest.mark.parametrize("code", [4, 9, 12, 18, 999])
def test_a_driver_that_does_not_start(code: int, tmp_path: Path) -> None:
    found = look(RecordedNvml(H100, init=code), tmp_path)
    assert found.gpus == ()
    assert found.gpu_source == f"no device files /dev/nvidia[0-9]* (NVML failed: {TEXTS[code]})"


def test_a_driver_that_fails_later_is_let_go() -> None:
    nvml = RecordedNvml(H100, count=999)
    nvml.faults["nvmlShutdown"] = 15
    answer = ask_driver(nvml)
    assert (answer.gpus, answer.note) == (None, "NVML failed: Unknown Error")
    assert nvml.num_open == 0


def test_a_container_without_the_device(tmp_path: Path) -> None:
    """The library is there; no GPU was given."""
    assert look(RecordedNvml(), tmp_path).gpu_source == "NVML lists no GPUs"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    blind = look(RecordedNvml(init=9), tmp_path)
    assert blind.gpus == ()
    assert "Driver Not Loaded" in blind.gpu_source


# Slices

SLICES = (
    Gpu(0, SLICE_1.uuid, SLICE_1.name, 40448, 40411),
    Gpu(0, SLICE_2.uuid, SLICE_2.name, 9984, 9972),
)


def test_a_divided_gpu_has_its_slices() -> None:
    (gpu,) = ask(DIVIDED)
    assert gpu.slices == SLICES
    assert ask(EMPTY)[0].slices == ()


def test_slices_that_may_not_be_counted() -> None:
    secret = Device("GPU-1", "X", 1024, slices=(), faults={"nvmlDeviceGetMaxMigDeviceCount": 4})
    assert ask(secret)[0].slices == ()


@pytest.mark.parametrize(
    ("text", "uuids"),
    [
        (None, [SLICE_1.uuid]),
        ("1", [SLICE_1.uuid]),
        ("0", [H100.uuid]),
        ("0,1", [SLICE_1.uuid]),
        (SLICE_2.uuid, [SLICE_2.uuid]),
        ("MIG-2222", [SLICE_2.uuid]),
        (f"{SLICE_2.uuid},{SLICE_1.uuid}", [SLICE_2.uuid]),
        (f"{H100.uuid},{SLICE_2.uuid}", [SLICE_2.uuid]),
        ("MIG-GPU-4a7d8e9f-0000-4000-8000-000000000006/1/0", None),
        ("MIG-33333333", []),
        ("2", []),
        ("", []),
        ("-1", []),
    ],
)
def test_a_process_sees_one_slice_and_nothing_beside_it(
    text: str | None, uuids: list[str] | None
) -> None:
    """The rules of NVIDIA's MIG guide, section on device enumeration."""
    gpus = ask(H100, DIVIDED, EMPTY)
    seen = visible_gpus(gpus, text)
    if uuids is None:
        assert [gpu.uuid for gpu in seen] == [text]  # the older spelling: believed, size unknown
        assert seen[0].total_mib is None
    else:
        assert [gpu.uuid for gpu in seen] == uuids


def test_the_machine_is_kept_beside_what_is_visible(tmp_path: Path) -> None:
    found = look(RecordedNvml(H200, H100), tmp_path, "1")
    assert [gpu.index for gpu in found.gpus] == [1]
    assert [gpu.index for gpu in found.all_gpus or ()] == [0, 1]
    assert found.gpu_source == "NVML lists 2 GPUs; CUDA_VISIBLE_DEVICES='1' leaves 1"


# Answers that no driver should give


class OddNvml(RecordedNvml):
    """Fails as the strict module does: `faults` has the exception that a function ends with."""

    def __init__(self, *devices: Device, **odd: object) -> None:
        super().__init__(*devices)
        self.odd = odd

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("nvml") or name not in self.odd:
            return found
        answer = self.odd[name]

        def give(*_: object) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return give


BAD_TEXT = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
ODD = (BAD_TEXT, RuntimeError("no"), OSError(5, "I/O"), None, SimpleNamespace(), b"\xff", "x")


@pytest.mark.parametrize("answer", ODD)
@pytest.mark.parametrize("name", [each for each in vars(RecordedNvml) if each.startswith("nvml")])
def test_an_odd_answer_is_never_a_traceback(name: str, answer: object, tmp_path: Path) -> None:
    for device in (H100, DIVIDED):
        nvml = OddNvml(device, **{name: answer})
        found = look(nvml, tmp_path)
        assert found.gpu_source
        if isinstance(answer, Exception) and name not in ("nvmlShutdown",):
            is_asked = device is DIVIDED or "Mig" not in name or name == "nvmlDeviceGetMigMode"
            assert not is_asked or type(answer).__name__ in found.gpu_source


def test_a_module_that_cannot_be_imported_is_told(tmp_path: Path) -> None:
    def broken() -> None:
        raise OSError("libnvidia-ml.so.1: file too short")

    found = probe({}, root=tmp_path, load_nvml=broken)
    assert "pynvml cannot be imported: OSError: libnvidia-ml.so.1" in found.gpu_source


@pytest.mark.parametrize("total", [None, "many", -1, 0])
def test_memory_of_no_size_is_unknown(total: object) -> None:
    nvml = OddNvml(H100, nvmlDeviceGetMemoryInfo=SimpleNamespace(total=total, free=3, used=1))
    gpus = ask_driver(nvml).gpus or ()
    assert [(gpu.total_mib, gpu.free_mib) for gpu in gpus] == [(None, None)]


def test_a_failure_is_not_memory_that_is_shared() -> None:
    broken = Device("GPU-1", "X", 1024, faults={"nvmlDeviceGetMemoryInfo": 999})
    answer = ask_driver(RecordedNvml(broken))
    assert answer.note == "NVML lists 1 GPU; GPU 0 tells no memory: Unknown Error"
    assert [gpu.memory_fault for gpu in answer.gpus or ()] == ["Unknown Error"]


def test_more_free_than_there_is_is_not_believed() -> None:
    answer = ask_driver(RecordedNvml(Device("GPU-1", "X", 1024, -100)))
    assert [gpu.free_mib for gpu in answer.gpus or ()] == [None]
    assert "1124 MiB free of 1024, which is not believed" in answer.note


def test_a_divided_gpu_that_cannot_be_listed_is_told(tmp_path: Path) -> None:
    secret = Device("GPU-1", "X", 1024, slices=(), faults={"nvmlDeviceGetMaxMigDeviceCount": 4})
    found = look(RecordedNvml(secret), tmp_path)
    assert found.gpus == ()
    assert "GPU 0 is divided (MIG), its slices cannot be listed: Insufficient" in found.gpu_source


def test_a_lost_slice_is_told() -> None:
    lost = Device("MIG-1", "X", 1, faults={"nvmlDeviceGetUUID": 15})
    answer = ask_driver(RecordedNvml(Device("GPU-1", "X", 1024, slices=(lost, None, SLICE_2))))
    assert answer.note == "NVML lists 1 GPU; slice 0 of GPU 0 cannot be used: GPU is lost"


def test_the_module_has_what_is_recorded() -> None:
    nvml = import_nvml()
    if nvml is None:
        pytest.skip("nvidia-ml-py is not installed (the gpu extra has it)")
    for name in vars(RecordedNvml):
        if name.startswith("nvml"):
            assert callable(getattr(nvml, name)), name
    for code, text in TEXTS.items():
        assert str(nvml.NVMLError(code)) == text == str(NVMLError(code))
