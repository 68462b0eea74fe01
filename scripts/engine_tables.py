"""Write, or check, the table of an engine's flags and variables from its wheel.

    python scripts/engine_tables.py WHEEL_OR_DIRECTORY [--check | --write]

The argument is a wheel file, an installed package directory (`.../site-packages/sglang`) or the
directory that holds it. Nothing of the engine is imported or run: its files are read as text.
Without an option the table is printed. `--write` puts it where the package has it, `--check`
compares and exits 1 with a diff. Exit 2: the package cannot be read.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from engine_reading.package import ReadingError, open_package
from engine_reading.table import build_table, render

TABLES = Path(__file__).resolve().parents[1] / "schemas" / "engine_tables"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", type=Path, metavar="WHEEL_OR_DIRECTORY")
    parser.add_argument("--tables", type=Path, default=TABLES, help="where the tables are kept")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="exit 1 with a diff when it differs")
    what.add_argument("--write", action="store_true", help="write the table")
    arguments = parser.parse_args(argv)
    try:
        package = open_package(arguments.package)
        text = render(build_table(package))
    except ReadingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    path: Path = arguments.tables / f"{package.engine}-{package.version}.json"
    if arguments.check:
        return check(path, text)
    if arguments.write:
        path.write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote {path}\n")
    else:
        sys.stdout.write(text)
    return 0


def check(path: Path, text: str) -> int:
    """Compare the kept table with the one just read."""
    kept = path.read_text(encoding="utf-8") if path.is_file() else ""
    if kept == text:
        return 0
    lines = difflib.unified_diff(
        kept.splitlines(keepends=True),
        text.splitlines(keepends=True),
        fromfile=str(path),
        tofile="read from the package",
        n=0,
    )
    sys.stdout.writelines(lines)
    return 1


if __name__ == "__main__":
    sys.exit(main())
