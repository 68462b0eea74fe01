"""Reads the small text and JSON files of a checkpoint; a fault is a `PlanError` with the file.

Owns the limits and the words of the errors, not the meaning of any key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from kimi_serve.schemas.errors import PlanError

MAX_FILE_BYTES = 64 * 1024 * 1024

JsonObject = dict[str, object]


def is_there(path: Path) -> bool:
    """Say whether a path exists; for one that may not be looked at, reading will say why."""
    try:
        return path.exists()
    except OSError:
        return True


def read_bytes(path: Path, *, limit: int = MAX_FILE_BYTES) -> bytes:
    """Read a regular file of at most `limit` bytes."""
    try:
        if path.exists() and not path.is_file():
            message = f"{path} is not a regular file"
            raise PlanError(message)
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise PlanError(message) from error
    if len(data) > limit:
        message = f"{path} is larger than {limit // (1024 * 1024)} MiB, which no such file is"
        raise PlanError(message)
    return data


def read_text(path: Path, *, limit: int = MAX_FILE_BYTES) -> str:
    """Read a UTF-8 file."""
    data = read_bytes(path, limit=limit)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}"
        raise PlanError(message) from error


def read_json_object(path: Path) -> JsonObject:
    """Read a file that holds one JSON object."""
    text = read_text(path)
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}"
        raise PlanError(message) from error
    except (ValueError, RecursionError) as error:  # numbers of 4300 digits, nesting without end
        message = f"{path}: not usable JSON: {error}"
        raise PlanError(message) from error
    values = as_object(value)
    if values is None:
        message = f"{path} must hold a JSON object, not {kind_of(value)}"
        raise PlanError(message)
    return values


def object_at(values: JsonObject, key: str, path: Path) -> JsonObject | None:
    """Give the object under `key`, None when it is absent or null."""
    value = values.get(key)
    if value is None:
        return None
    found = as_object(value)
    if found is None:
        message = f"{path}: {key} must be an object, not {kind_of(value)} {show(value)}"
        raise PlanError(message)
    return found


def as_object(value: object) -> JsonObject | None:
    """Give a parsed value as an object, None when it is something else."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    """Give a parsed value as a list, None when it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else None


def kind_of(value: object) -> str:
    """Name a value's JSON type in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, dict) else type(value).__name__


def show(value: object, *, limit: int = 80) -> str:
    """Show a value in an error message, cut to `limit` characters."""
    text = ascii(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
