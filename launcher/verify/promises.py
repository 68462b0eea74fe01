"""What is promised beside equal pixels, checked on what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from ..counted import counted
from .fleet import WorkerState
from .results import LoadPoint, NotMeasured, Promise, Report


def check_zero_contexts(
    report: Report, workers: Sequence[WorkerState], which: str, listed: set[int] | None
) -> None:
    """Add what proves that no forced-CPU worker touched CUDA: three views that do not overlap.

    `listed` are the processes that the driver knows on the GPU, None where it was not asked.
    """
    torch = [state.report.pid for state in workers if state.report.torch_imported]
    mapped = {state.report.pid: state.libraries for state in workers if state.libraries}
    visible = [state.report.cuda_visible_devices for state in workers]
    report.promises.append(
        Promise(
            f"{which}, forced CPU: torch is not imported",
            not torch,
            f"pids {torch} imported it" if torch else f"said by all {len(workers)} when ready",
        )
    )
    report.promises.append(
        Promise(
            f"{which}, forced CPU: no library of CUDA or torch is mapped",
            not mapped,
            str(mapped) if mapped else "/proc/PID/maps of each after its images",
        )
    )
    report.promises.append(
        Promise(
            f"{which}, forced CPU: CUDA_VISIBLE_DEVICES is empty",
            all(text == "" for text in visible),
            "said by each worker",
        )
    )
    if listed is not None:
        own = sorted(listed & {state.report.pid for state in workers})
        report.promises.append(
            Promise(
                f"{which}, forced CPU: NVML sees none of them on the GPU",
                not own,
                f"it lists {own}" if own else f"it lists other processes: {len(listed)}",
            )
        )


def check_gpu_memory(report: Report, point: LoadPoint) -> None:
    """Add whether the workers took at most what the plan counts for them."""
    if point.gpu_predicted_mib is None:
        return
    which = f"GPU, {counted(point.workers, 'worker')}"
    if point.gpu_workers_mib is None:
        if point.gpu_total_mib is None:
            return
        why = "NVML lists no memory of single processes here (another pid namespace, or MIG)"
        report.not_measured.append(NotMeasured(f"{which}: memory of each worker", why))
        used, how = point.gpu_total_mib, "the device's use before and during"
    else:
        used, how = sum(point.gpu_workers_mib), "NVML's list of processes"
    report.promises.append(
        Promise(
            f"{which}: GPU memory stays within the plan's {point.gpu_predicted_mib:.0f} MiB",
            used <= point.gpu_predicted_mib,
            f"{used:.0f} MiB by {how}",
        )
    )
