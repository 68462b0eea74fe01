"""One verification from plan to report."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kimi_serve.preprocess.cuda.memory import MIB, largest_peak_bytes
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.schemas.errors import KimiServeError, RequestError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.patch_bound import slot_bytes
from kimi_serve.schemas.plan import LaunchPlan
from kimi_serve.schemas.worker import WorkerSpec

from ..counted import counted
from ..version import VERSION, installed_version
from .fleet import Configuration, Loaded, listed_by, load, make, running, states
from .gpu_memory import GpuMemory, open_gpu_memory
from .images import Images, Sample
from .parity import EXACT, GPU_JPEG, Made, compare
from .promises import check_gpu_memory, check_zero_contexts
from .reference import reference
from .results import (
    Comparison,
    ImageParity,
    NotMeasured,
    Promise,
    Report,
)
from .second_opinions import SecondOpinion, missing

CPU = "forced CPU"
GPU = "GPU"
_LIBRARIES = (
    "kimi-serve", "numpy", "pillow", "simplejpeg", "zlib-ng", "torch", "torchvision",
    "transformers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """What to verify: the plans that force the CPU and that do not, images, worker counts."""

    forced: LaunchPlan
    free: LaunchPlan
    images: Images
    workers: Sequence[int]
    seconds: float
    env: Mapping[str, str]

    @property
    def gpu_spec(self) -> WorkerSpec | None:
        """The spec of a CUDA worker, None where the plan has none."""
        specs = self.free.worker_specs()
        return specs[0] if specs and specs[0].preprocess_device == "cuda" else None

    @property
    def num_steps(self) -> int:
        configurations = 1 if self.gpu_spec is None else 2
        ways = ("transformers",) if configurations == 2 else ("transformers", "device")
        others = sum(not missing(way) for way in ways)
        pictures = len(self.images.samples) * (configurations + others)
        return pictures + configurations * len(self.workers)


class Verification:
    """Fills one report; `step` is told of every image and every load that is done."""

    def __init__(self, task: Task, step: Callable[[str], None]) -> None:
        self._task = task
        self._step = step
        self._settings = task.forced.settings
        self.report = Report(
            version=VERSION,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            host=_host(task.free),
            settings={
                "model": task.forced.model.value,
                "image.policy": self._settings.image.policy,
                "image.kernel": self._settings.image.kernel,
                "images": str(len(task.images.samples)),
                "workers": ", ".join(map(str, task.workers)),
                "seconds": f"{task.seconds:g} a worker count",
            },
        )
        self.report.not_measured += task.images.left_out
        self._memory: GpuMemory | None = None
        self._readable: set[str] = set()
        self._refused: set[str] = set()

    def run(self) -> Report:
        """Measure everything that this host lets us measure."""
        self._look_at_gpu()
        asyncio.run(self._parity())
        self._second_opinions()
        asyncio.run(self._loads())
        if self._memory is not None and self._memory.fault:
            self._missed("GPU memory, as far as it is not shown", self._memory.fault)
        return self.report

    def _look_at_gpu(self) -> None:
        gpus = self._task.free.hardware.gpus
        if self._task.gpu_spec is None:
            reason = self._task.free.preprocess_device.reason
            self._missed("the GPU configuration: parity, memory, throughput", reason)
        if not gpus:
            why = f"there is no GPU: {self._task.free.hardware.gpu_source}"
            self._missed("NVML's view of the forced-CPU workers, GPU memory", why)
            return
        self._memory, why = open_gpu_memory(gpus[0].index)
        if self._memory is None:
            self._missed("GPU memory", why)

    def _missed(self, what: str, why: str) -> None:
        self.report.not_measured.append(NotMeasured(what, why))

    # Parity

    async def _parity(self) -> None:
        await self._against_reference()
        if self._task.gpu_spec is not None:
            await self._gpu_against_cpu(self._task.gpu_spec)

    async def _against_reference(self) -> None:
        """Compare with the checkpoint's order of steps, in the policy that promises it."""
        spec = _parity_spec(self._task.forced.worker_specs()[0])
        exact = replace(spec, rules=replace(spec.rules, policy="checkpoint"))
        found: list[ImageParity] = []
        async with running([exact], self._settings, self._task.env) as pool:
            for sample in self._task.images.samples:
                try:
                    facts, made, _ = await make(pool, sample.data)
                except RequestError as error:
                    self._missed(f"{sample.name} beside the checkpoint's order", error.message)
                    self._refused.add(sample.name)
                else:
                    wanted = reference(sample.data, spec.resize)
                    other = Made(wanted.values, wanted.grid_thw, wanted.tokens)
                    found.append(compare(sample.name, facts, spec.resize, made, other, EXACT))
                    self._readable.add(sample.name)
                self._step(sample.name)
            check_zero_contexts(self.report, states(pool), "1 worker", self._listed())
        title = "forced CPU beside the checkpoint's own order (image.policy: checkpoint)"
        self.report.comparisons.append(Comparison(title, tuple(found)))

    async def _gpu_against_cpu(self, gpu: WorkerSpec) -> None:
        """Compare both configurations in the policy of the profile."""
        cpu_spec, gpu_spec = _parity_spec(self._task.forced.worker_specs()[0]), _parity_spec(gpu)
        found: list[ImageParity] = []
        try:
            async with (
                running([cpu_spec], self._settings, self._task.env) as cpus,
                running([gpu_spec], self._settings, self._task.env) as gpus,
            ):
                for sample in self._task.images.samples:
                    try:
                        facts, ours, _ = await make(cpus, sample.data)
                        _, theirs, fallback = await make(gpus, sample.data)
                    except RequestError as error:
                        self._missed(f"{sample.name} on both devices", error.message)
                        self._refused.add(sample.name)
                    else:
                        bound = GPU_JPEG if facts.format == "jpeg" else EXACT
                        note = "" if fallback is None else f"redone on the CPU: {fallback}"
                        found.append(
                            compare(sample.name, facts, gpu.resize, theirs, ours, bound, note)
                        )
                    self._step(sample.name)
        except KimiServeError as error:
            self._missed("parity of the GPU configuration", error.message)
        title = f"GPU beside forced CPU (image.policy: {self._settings.image.policy})"
        self.report.comparisons.append(Comparison(title, tuple(found)))

    def _second_opinions(self) -> None:
        spec = _parity_spec(self._task.forced.worker_specs()[0])
        exact = replace(spec.rules, policy="checkpoint")
        self._second_opinion(SecondOpinion("transformers", spec.resize, exact), "transformers")
        if self._task.gpu_spec is None:
            what = "the CUDA path's arithmetic on the CPU"
            self._second_opinion(SecondOpinion("device", spec.resize, spec.rules), what)

    def _second_opinion(self, opinion: SecondOpinion, what: str) -> None:
        if opinion.missing:
            self._missed(what, opinion.missing)
            return
        kernel = self._task.forced.worker_specs()[0].image_kernel
        processor = ImageProcessor(opinion.resize, opinion.rules, kernel)
        made = [sample for sample in self._task.images.samples if sample.name in self._readable]

        def ours(sample: Sample) -> tuple[ImageFacts, Made]:
            # Here and not in a worker: that those are equal was shown before.
            facts, values = processor.process_array(sample.data)
            self._step(sample.name)
            return facts, Made(values, facts.grid_thw, facts.num_tokens)

        compared, why = opinion.compare(made, ours)
        if compared is None:
            self._missed(what, why)
        else:
            self.report.comparisons.append(compared)

    # Load

    async def _loads(self) -> None:
        samples = self._samples_to_load()
        for configuration in self._configurations() if samples else ():
            for workers in self._task.workers:
                await self._load(configuration, workers, samples)
                self._step(f"{configuration.name}, {counted(workers, 'worker')}")

    def _samples_to_load(self) -> list[Sample]:
        """Leave out what was refused before: one damaged image must not cost the whole section."""
        images = self._task.images
        samples = [each for each in images.load_samples if each.name not in self._refused]
        if not samples:
            detail = f"none of {len(images.samples)} was made: see what was not measured"
            self.report.promises.append(Promise("there are images to measure", False, detail))
        return samples

    def _configurations(self) -> list[Configuration]:
        found = [Configuration(CPU, self._task.forced.worker_specs()[0])]
        if self._task.gpu_spec is not None:
            found.append(Configuration(GPU, self._task.gpu_spec))
        return found

    async def _load(
        self, configuration: Configuration, workers: int, samples: Sequence[Sample]
    ) -> None:
        try:
            loaded = await load(
                configuration,
                workers,
                samples,
                self._settings,
                self._task.env,
                seconds=self._task.seconds,
                memory=self._memory,
            )
        except KimiServeError as error:
            which = f"{configuration.name} with {counted(workers, 'worker')}"
            self._missed(f"throughput and memory: {which}", error.message)
            return
        self._conclude(configuration, loaded)

    def _conclude(self, configuration: Configuration, loaded: Loaded) -> None:
        point = loaded.point
        if configuration.name == CPU:
            which = f"{counted(point.workers, 'worker')} under load"
            check_zero_contexts(self.report, loaded.workers, which, loaded.listed)
            self.report.loads.append(point)
            return
        point = replace(
            point, gpu_predicted_mib=float(point.workers * self._predicted_mib(configuration.spec))
        )
        self.report.loads.append(point)
        check_gpu_memory(self.report, point)

    def _predicted_mib(self, spec: WorkerSpec) -> int:
        """Give what the plan counts for one worker: its context and its largest image."""
        budget = self._task.free.budget
        if budget is not None and budget.gpus and budget.gpus[0].worker_mib:
            return budget.gpus[0].worker_mib
        peak = largest_peak_bytes(spec.rules.max_pixels)
        if spec.gpu_budget_bytes is not None:
            peak = min(peak, spec.gpu_budget_bytes)
        return self._settings.gpu.worker_context_mib + -(-peak // MIB)

    def _listed(self) -> set[int] | None:
        return None if self._memory is None else listed_by(self._memory)


def _parity_spec(spec: WorkerSpec) -> WorkerSpec:
    """Compare what is sent as float32, whatever the profile sends; slots are made for it."""
    size = slot_bytes(spec.resize, "float32")
    return replace(spec, rules=replace(spec.rules, dtype="float32"), slot_bytes=size)


def _host(plan: LaunchPlan) -> dict[str, str]:
    gpus = plan.hardware.gpus
    named = ", ".join(gpu.name or f"GPU {gpu.index}" for gpu in gpus)
    return {
        "processor": _processor(),
        "cores": f"{plan.hardware.cpus:g}",
        "memory": f"{plan.hardware.memory_mib} MiB",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "GPU": named or f"none ({plan.hardware.gpu_source})",
        "Python": platform.python_version(),
        **{name: installed_version(name) or "not installed" for name in _LIBRARIES},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
