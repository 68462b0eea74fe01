"""What stops a launch before it begins: findings that say it cannot work as it is written."""

from __future__ import annotations

from kimi_serve.schemas.errors import ConfigError, KimiServeError, PlanError
from kimi_serve.schemas.plan import LaunchPlan

OVERRIDE = "--start-anyway"
# Errors that are the machine's: the same text may be right on another one.
_OF_THE_MACHINE = frozenset(("KS204", "KS306", "KS403"))


def refusal(plan: LaunchPlan) -> KimiServeError | None:
    """Give the error that ends the launch, None when no finding is an error."""
    errors = [finding for finding in plan.findings if finding.severity == "error"]
    if not errors:
        return None
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    message = f"nothing was started: {errors[0]}{more}"
    hint = f"{errors[0].help or 'see kimi-serve plan'}; {OVERRIDE} starts in spite of it"
    if all(error.rule in _OF_THE_MACHINE for error in errors):
        return PlanError(message, hint=hint)
    return ConfigError(message, hint=hint)
