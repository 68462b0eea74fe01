"""`--fix` and `--diff`: mends one file after the other, and says what stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kimi_serve.schemas.findings import Finding

from ..counted import counted
from ..sources.characters import printable
from ..sources.files import reason_of
from .run import Linted, Surroundings, lint_profile
from .selection import select

STDIN = "<stdin>"


@dataclass(frozen=True, slots=True)
class File:
    """One profile as it was given."""

    name: str
    path: Path | None
    data: bytes

    @property
    def folder(self) -> Path:
        return self.path.parent if self.path else Path(".")


def lint_one(file: File, around: Surroundings) -> Linted:
    """Lint one profile."""
    return lint_profile(
        file.data, name=file.name, folder=file.folder, around=around, file=file.path
    )


@dataclass(slots=True)
class Mending:
    """Applies the safe fixes of what is selected; with `is_diff` they are shown instead."""

    around: Surroundings
    selected: Sequence[str]
    ignored: Sequence[str]
    is_diff: bool
    errors: list[str] = field(default_factory=lambda: list[str]())
    _left_out: dict[str, int] = field(default_factory=lambda: dict[str, int]())

    def mended(self, file: File) -> bytes:
        """Give what stands in the file after that."""
        from .mend import mend

        def reported(data: bytes) -> tuple[Finding, ...]:
            written = lint_one(replace(file, data=data), self.around).written
            return select(written, self.selected, self.ignored)

        data = mend(file.data, printable(file.name), reported)
        if data != file.data and self.is_diff:
            self._show(file, data)
        elif data != file.data and self._write(file, data):
            return data
        return file.data

    def _show(self, file: File, data: bytes) -> None:
        from .output import write_output
        from .patch import make_patch

        patch = make_patch(file.data, data, file.name, lint_one(file, self.around).known)
        self._left_out[printable(file.name)] = patch.num_left_out
        try:
            write_output(patch.data, "-")
        except BrokenPipeError:
            raise
        except OSError as error:
            self.errors.append(f"standard output cannot be written: {reason_of(error)}")

    def _write(self, file: File, data: bytes) -> bool:
        from .write_back import write_file

        try:
            write_file(Path(file.name), file.data, data)
        except OSError as error:
            self.errors.append(f"{printable(file.name)} cannot be written: {reason_of(error)}")
            return False
        return True

    def notes(self, num_findings: int) -> Iterator[str]:
        """Say what the diff has not."""
        for name, number in self._left_out.items():
            if number:
                changes = counted(number, "change")
                verb = "is" if number == 1 else "are"
                yield (
                    f"{name}: {changes} {verb} left out of the diff, on lines with a secret; "
                    "--fix makes them"
                )
        if not self._left_out and num_findings:
            verb = "stays" if num_findings == 1 else "stay"
            yield (
                f"nothing here can be mended by itself: {counted(num_findings, 'finding')} {verb}"
            )
