"""Write, or check, the record of what an engine understands of our command lines.

    python scripts/engine_understanding.py ENGINE PYTHON [--check | --write]

ENGINE is sglang or vllm, PYTHON an interpreter that has it (`scripts/engine_environment.py` makes
one). Every case of `engine_proof/cases.py` is planned, and the engine's own parser and checks read
the command; no GPU is needed. Without an option the record is printed. `--write` puts it where the
tests have it, `--check` compares and exits 1 with a diff. Exit 2: the engine cannot be asked.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import cast

from engine_proof.asking import AskingError, ask
from engine_proof.cases import ENGINES, Engine
from engine_proof.commands import commands
from engine_proof.record import entry, record_path, render


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("python", metavar="PYTHON")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="exit 1 with a diff when it differs")
    what.add_argument("--write", action="store_true", help="write the record")
    arguments = parser.parse_args(argv)
    engine = cast(Engine, arguments.engine)
    try:
        text = make_record(engine, arguments.python)
    except (AskingError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    path = record_path(engine)
    if arguments.check:
        kept = path.read_text(encoding="utf-8") if path.is_file() else ""
        lines = difflib.unified_diff(
            kept.splitlines(keepends=True),
            text.splitlines(keepends=True),
            fromfile=path.name,
            tofile="what the engine understands now",
            n=0,
        )
        sys.stdout.writelines(lines)
        return int(kept != text)
    if arguments.write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote {path}\n")
    else:
        sys.stdout.write(text)
    return 0


def make_record(engine: Engine, python: str) -> str:
    """Plan all cases and ask the engine about them, in one child."""
    answers = ask(engine, python, list(commands(engine).values()))
    pairs = zip(commands(engine).items(), answers, strict=True)
    return render(engine, {name: entry(command, answer) for (name, command), answer in pairs})


if __name__ == "__main__":
    sys.exit(main())
