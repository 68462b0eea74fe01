"""The command `kimi-serve rule`: the catalogue, and the page of one rule."""

from __future__ import annotations

import json
from typing import Any

import click

from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.rules import RULES, Rule


@click.command(help="Explain one rule, or list all of them.")
@click.argument("id", required=False, metavar="[KSnnn]")
@click.option("--all", "show_all", is_flag=True, help="Every rule with its page.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.pass_context
def rule(ctx: click.Context, /, id: str | None, show_all: bool, as_json: bool) -> None:
    """Print rules."""
    if id is not None and show_all:
        raise click.UsageError("give one rule, or --all")
    rules = [_find(id)] if id is not None else list(RULES.values())
    if as_json:
        documents = [_document(one) for one in rules]
        click.echo(json.dumps(documents[0] if id is not None else documents, indent=2))
    elif id is not None or show_all:
        from .rule_help import rule_markdown

        click.echo("\n\n".join(rule_markdown(one).rstrip() for one in rules))
    else:
        for one in rules:
            click.echo(f"{one.id}  {one.severity:<7}  {one.name:<28}  {one.summary}")


def _find(id: str) -> Rule:
    found = RULES.get(id.strip().upper())
    if found is not None:
        return found
    from difflib import get_close_matches

    close = get_close_matches(id[:40].casefold(), [one.name for one in RULES.values()], n=1)
    by_name = [one for one in RULES.values() if one.name in (id.casefold(), *close)]
    hint = f"did you mean {by_name[0].id} ({by_name[0].name})?" if by_name else None
    raise ConfigError(f"there is no rule {id[:40]!r}", hint=hint or "`kimi-serve rule` lists them")


def _document(one: Rule) -> dict[str, Any]:
    from .rule_help import rule_markdown

    return {
        "id": one.id,
        "name": one.name,
        "severity": one.severity,
        "fix": {"no": None}.get(one.mending, one.mending),
        "summary": one.summary,
        "url": f"docs/rules/{one.id}.md",
        "page": rule_markdown(one),
    }
