"""What `doctor` found, as text and as JSON. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..machine.host import Host
from .words import columns, gpu_rows


def host_text(host: Host) -> str:
    """Give what was found for a reader."""
    blocks = {
        "machine": columns(_machine_rows(host)),
        "image kernel": columns(_kernel_rows(host)),
        "versions": columns(
            [(name, found or "not installed") for name, found in host.versions.items()]
        ),
        "broken": [f"  {fault}" for fault in host.faults],
    }
    return "\n\n".join("\n".join([title, *lines]) for title, lines in blocks.items() if lines)


def host_json(host: Host) -> dict[str, Any]:
    """Give what was found for programs."""
    return {
        "format_version": 1,
        "system": host.system,
        "cores": host.cores,
        "open_files": dict(zip(("soft", "hard"), host.open_files, strict=True)),
        "hardware": asdict(host.hardware),
        "image_kernel": {
            "path": host.kernel.path,
            "reason": host.kernel.reason,
            "levels": list(host.kernel_levels),
            "png": host.kernel.unfilter is not None,
        },
        "versions": dict(host.versions),
        "broken": list(host.faults),
    }


def _machine_rows(host: Host) -> list[tuple[str, str]]:
    hardware = host.hardware
    shm = "none" if hardware.shm_mib is None else f"{hardware.shm_mib} MiB"
    soft, hard = ("no limit" if value is None else str(value) for value in host.open_files)
    return [
        ("system", host.system),
        ("cpus", f"{hardware.cpus:g} of {host.cores} after affinity and cgroup quota"),
        ("memory", f"{hardware.memory_mib} MiB after cgroup limits"),
        ("/dev/shm", f"{shm} (engines use it, the built-in workers do not)"),
        ("open files", f"{soft}, can be raised to {hard}"),
        *gpu_rows(hardware),
        ("gpu extra", "installed" if hardware.has_gpu_extra else "not installed"),
    ]


def _kernel_rows(host: Host) -> list[tuple[str, str]]:
    png = "zlib-ng and the kernel" if host.kernel.unfilter is not None else "Pillow"
    return [
        ("path", f"{host.kernel.path}: {host.kernel.reason}"),
        ("processor", ", ".join(host.kernel_levels) or "not asked"),
        ("plain PNG", png),
    ]
