"""The rule catalogue: what each KSnnn is called, how severe it is, whether it can be mended.

The rules themselves are in `launcher.rules` and `launcher.sources`; their pages in `docs/rules/`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .findings import Severity

Mending = Literal["no", "safe", "unsafe"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; a finding may be more or less severe than the rule usually is."""

    id: str
    name: str
    severity: Severity
    mending: Mending
    summary: str


_ROWS: tuple[tuple[str, str, Severity, Mending, str], ...] = (
    ("KS001", "yaml-syntax", "error", "no", "The file is not YAML as profiles use it."),
    ("KS002", "profile-not-mapping", "error", "no", "A profile is one mapping of sections."),
    ("KS003", "duplicate-key", "error", "no", "A key stands twice; most readers keep the last."),
    ("KS004", "extends-broken", "error", "no", "A parent profile is missing or extends itself."),
    ("KS005", "ambiguous-scalar", "warning", "safe", "YAML readers disagree about this value."),
    ("KS006", "invisible-character", "error", "safe", "A character is invisible or a look-alike."),
    ("KS007", "unused-suppression", "info", "safe", "An ignore comment is stale or has no reason."),
    ("KS101", "unknown-key", "error", "unsafe", "No setting has this name."),
    ("KS102", "unknown-variable", "error", "no", "Nothing reads this variable."),
    ("KS103", "unknown-engine-flag", "error", "unsafe", "The engine has no such flag."),
    ("KS104", "invalid-value", "error", "no", "The value has the wrong type, range or word."),
    ("KS105", "missing-value", "error", "no", "A value is needed and nobody gives it."),
    ("KS106", "empty-section", "error", "safe", "A section has nothing below it."),
    ("KS107", "engine-boolean", "error", "safe", "The engine reads this word otherwise."),
    ("KS108", "shadowed-value", "info", "no", "A higher layer always overrides this value."),
    ("KS109", "deprecated-name", "warning", "safe", "The name has a successor."),
    ("KS110", "legacy-name-wins", "error", "no", "Both names are set, and the old one wins."),
    ("KS201", "no-effect-for-model", "warning", "no", "This model never reads the setting."),
    ("KS202", "no-effect-without", "warning", "no", "The setting does nothing without another."),
    ("KS203", "unsupported-combination", "error", "no", "The engine cannot do both at once."),
    ("KS204", "unsupported-hardware", "error", "no", "The hardware cannot do this."),
    ("KS205", "engine-too-old", "warning", "no", "The option is newer than the engine."),
    ("KS206", "image-options-on-text-model", "warning", "no", "The model takes no images."),
    ("KS207", "engine-version-unchecked", "warning", "no", "Nobody checked this engine version."),
    ("KS208", "checkpoint-disagreement", "warning", "no", "The checkpoint contradicts itself."),
    ("KS209", "forced-for-one-worker", "info", "no", "With one worker the flag saves little."),
    ("KS210", "cpu-not-forced", "info", "no", "A GPU is there and the workers do not use it."),
    ("KS301", "worker-gpu-headroom", "warning", "no", "The workers' contexts do not fit the GPU."),
    ("KS302", "gpu-preprocess-fanout", "warning", "no", "Many workers preprocess on one GPU."),
    ("KS303", "static-fraction-range", "warning", "no", "The share is out of range."),
    ("KS304", "split-budget-too-small", "warning", "no", "A worker's share holds no image."),
    ("KS305", "cpu-oversubscription", "warning", "no", "More threads than cores."),
    ("KS306", "gpu-count", "error", "no", "More GPUs are asked for than there are."),
    ("KS307", "shared-memory", "warning", "no", "The container's shared memory is too small."),
    ("KS308", "image-cache-memory", "warning", "no", "The image cache is too large or too small."),
    ("KS401", "loopback-in-container", "warning", "unsafe", "Nobody outside reaches this address."),
    ("KS402", "port-conflict", "error", "no", "Two listeners want the same port."),
    ("KS403", "path-not-usable", "error", "no", "The path leads nowhere where it is used."),
    ("KS404", "service-link-collision", "warning", "no", "Kubernetes injects our variable names."),
    ("KS405", "proxy-captures-loopback", "warning", "no", "A proxy catches probes of this host."),
    ("KS501", "open-media-domains", "warning", "no", "Clients may have any host fetched."),
    ("KS502", "media-domain-form", "error", "safe", "An allowed host never matches as written."),
    ("KS503", "local-media-path", "error", "no", "Clients may read more than images."),
    ("KS504", "remote-code-unpinned", "warning", "no", "Remote code may change under you."),
    ("KS505", "literal-secret", "error", "no", "A secret stands where it is read by all."),
    ("KS506", "public-without-key", "warning", "no", "Everybody can reach it without a key."),
    ("KS507", "trusted-content-hashes", "warning", "no", "Callers' media hashes are believed."),
    ("KS601", "env-too-late", "error", "no", "The variable is set after it was read."),
    ("KS602", "args-as-shell-string", "error", "safe", "Arguments stand in one string."),
)  # fmt: skip

RULES: Mapping[str, Rule] = types.MappingProxyType({row[0]: Rule(*row) for row in _ROWS})
