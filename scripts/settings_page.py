"""Print the reference page of all settings, made from the settings table: `make docs` keeps it.

python scripts/settings_page.py > docs/settings.md
"""

from __future__ import annotations

import json
import sys

from kimi_serve.schemas.fields import SettingField, sections, setting_fields

_INTRO = """# Settings

Made from `schemas/settings.py` by `make docs`; a test compares.

Lowest first: built-in default, profile (`--profile FILE`, parents of `extends:` first),
environment, flag. An empty variable counts as unset. Secrets stand in a profile only as
`{env: NAME}` or `{file: PATH}`.
"""


def settings_page() -> str:
    """Give the page as Markdown."""
    parts = [_INTRO]
    for section in sections():
        rows = [_row(field) for field in setting_fields().values() if field.section == section]
        parts.append(
            "\n".join(
                [
                    f"## {section}",
                    "",
                    "| key | type, default | flag | variable | |",
                    "|---|---|---|---|---|",
                    *rows,
                    "",
                ]
            )
        )
    return "\n".join(parts)


def _row(field: SettingField) -> str:
    kind = " \\| ".join(field.choices) if field.kind == "choice" else field.kind
    default = json.dumps(field.default)
    flag = ", ".join(filter(None, (field.flag, field.negative_flag)))
    return (
        f"| `{field.name}` | {kind}, `{default}` | `{flag}` | `{field.env_name}` | {field.help} |"
    )


if __name__ == "__main__":
    sys.stdout.write(settings_page())
