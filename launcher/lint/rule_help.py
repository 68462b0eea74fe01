"""The page of a rule as Markdown; the catalogue's one sentence where there is none."""

from __future__ import annotations

from kimi_serve.schemas.rule_pages import page, section
from kimi_serve.schemas.rules import Rule


def rule_markdown(rule: Rule) -> str:
    """Give the whole page."""
    try:
        return page(rule.id)
    except (OSError, KeyError):
        return f"# {rule.id} {rule.name}\n\n{rule.summary}\n"


def rule_description(rule: Rule) -> str:
    """Give what the rule finds, in a paragraph."""
    try:
        return section(rule.id, "What it finds").strip() or rule.summary
    except (OSError, KeyError):
        return rule.summary
