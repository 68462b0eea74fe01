"""Coverage-guided fuzzing of lint; CONTRIBUTING says how to run it.

An input is a profile, then after a line `%%` variables (`NAME=VALUE` lines), then after another
one arguments of the engine, one a line; `--set ITEM` is a setting. `@KEY@` stands for a secret, but
not right behind a letter or digit: there no token begins.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from importlib import import_module
from pathlib import Path
from typing import Any

# The product is imported inside functions: a run instruments it while it is first imported.

FORMATS = ("full", "concise", "json", "github", "sarif", "junit")
# One is known by its shape wherever it stands, the other only by the variable that holds it.
SHAPED = "sk-Xq7vTRUSTNO1zzzz"
NAMED = "Zw9rTRUSTNO2yyyy"
CUT = b"\n%%\n"


class LeakError(AssertionError):
    """A planted secret stands in an output."""


def judge(data: bytes, folder: Path) -> None:
    """Lint one input beside `folder`; nothing may be raised, no output may hold a secret.

    Whatever the text of a profile, a variable or an argument is, it gives findings: exit code 0
    or 1, so not even a ConfigError may come out.
    """
    profile, env, arguments = split(data)
    outputs = rendered(profile, env, arguments, folder)
    for format, text in outputs.items():
        if SHAPED in text or NAMED in text:
            raise LeakError(f"format {format} shows a secret")
    json.loads(outputs["json"])
    json.loads(outputs["sarif"])
    # Encoded as it is written.
    ElementTree.fromstring(outputs["junit"].encode("utf-8", "backslashreplace"))


def split(data: bytes) -> tuple[bytes, dict[str, str], list[str]]:
    """Take an input apart; variables and arguments are decoded as the system's are."""
    planted = re.sub(rb"(?<![A-Za-z0-9])@KEY@", SHAPED.encode(), data)
    parts = [*planted.split(CUT, 2), b"", b""]
    lines = parts[1].replace(b"\0", b"").decode("utf-8", "surrogateescape").split("\n")
    pairs = [line.partition("=") for line in lines]
    env = {name: value for name, _, value in pairs if name}
    arguments = parts[2].replace(b"\0", b"").decode("utf-8", "surrogateescape")
    return parts[0], env | {"HF_TOKEN": NAMED}, arguments.split("\n") if arguments else []


def rendered(
    profile: bytes, env: dict[str, str], arguments: list[str], folder: Path
) -> dict[str, str]:
    """Give every format of what is found; with nothing but a profile also hermetically."""
    from kimi_serve.launcher.lint.baseline import fingerprint, home_of
    from kimi_serve.launcher.lint.formats import render
    from kimi_serve.launcher.lint.report import Report, Reported
    from kimi_serve.launcher.lint.run import Surroundings, lint_profile
    from kimi_serve.launcher.sources.flags import check_argv

    name = "profile.yaml"
    if len(env) == 1 and not arguments:
        lint_profile(profile, name=name, folder=folder)
    args = [argument for argument in arguments if not argument.startswith("--set ")]
    around = Surroundings(
        env=env,
        flags={"engine__args": json.dumps(args)} if args else {},
        set_items=tuple(item.removeprefix("--set ") for item in arguments if item not in args),
    )
    linted = lint_profile(profile, name=name, folder=folder, around=around)
    reported: list[Reported] = []
    for found in (*check_argv(arguments), *linted.findings):
        source = linted.sources.get(home_of(found, name))
        reported.append(Reported(found, name, fingerprint(found, name, source)))
    report = Report((name,), tuple(reported), linted.sources, exit_code=1)
    return {format: render(format, report) for format in FORMATS}


def prepare(folder: Path) -> None:
    """Put small checkpoints beside the profile, so that rules about a model are reached."""
    from rule_runner import lint_in

    lint_in(folder, "")


def main() -> None:
    """Run libFuzzer with the options of the command line."""
    # By name: it is installed with the fuzz group only, and published stubs lack half of it.
    atheris: Any = import_module("atheris")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)

        def one(data: bytes) -> None:
            judge(data, folder)

        with atheris.instrument_imports(include=["kimi_serve"]):
            prepare(folder)
            one(b"")
        # A merge starts itself again, through a shell, by its first word.
        again = shlex.join((sys.executable, str(Path(__file__).resolve())))
        atheris.Setup([again, *sys.argv[1:]], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
