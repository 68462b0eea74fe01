"""What stops a launch before it begins: findings that say it cannot work as it is written."""

from __future__ import annotations

from kimi_serve.schemas.errors import ConfigError, KimiServeError, PlanError
from kimi_serve.schemas.plan import LaunchPlan

OVERRIDE = "--start-anyway"
# Errors that are the machine's: the same text may be right on another one.
_OF_THE_MACHINE = frozenset(("KS204", "KS306", "KS403"))


def cannot_start(plan: LaunchPlan) -> PlanError | None:
    """Give the error of an engine that nothing can start here, None where it can be tried."""
    install = plan.install
    if install is None or not install.problem:
        return None
    message = f"{plan.engine.value} cannot be started: {install.problem}"
    return PlanError(message, hint=install.remedy or None)


def refusal(plan: LaunchPlan) -> KimiServeError | None:
    """Give the error that ends the launch, None when no finding is an error."""
    errors = [finding for finding in plan.findings if finding.severity == "error"]
    if not errors:
        return None
    impossible = cannot_start(plan)
    if impossible is not None and all(error.path == "engine.python" for error in errors):
        return impossible
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    message = f"nothing was started: {errors[0]}{more}"
    hint = errors[0].help or "see kimi-serve plan"
    if impossible is None:
        hint += f"; {OVERRIDE} starts in spite of it"
    if all(error.rule in _OF_THE_MACHINE for error in errors):
        return PlanError(message, hint=hint)
    return ConfigError(message, hint=hint)
