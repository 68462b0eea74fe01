"""What a profile takes from outside itself: `${NAME}` in texts, and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import SecretStr

from kimi_serve.schemas.fields import SettingField
from kimi_serve.schemas.vocabulary import HIDDEN

from ..secrets.names import meant_variable
from ..secrets.shapes import mask
from .characters import bare, shown
from .files import read_file
from .glued import note_glued
from .layers import UNSET, Mend, Notes, RefusedError, Unset
from .paths import Surroundings, absolute
from .scalars import ASCII_BLANKS, refuse_odd
from .suggest import nearest
from .yaml_nodes import Broken, Items, Node, Scalar, Table, scalar_kind

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<broken>\$\{)")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What a variable can be called."""

# Only what looks like a variable or a path is ever repeated: it may be the secret itself.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_FILE = re.compile(r"[\w.~-]*(/[\w.-]+)+", re.ASCII)
_MAX_SECRET_BYTES: Final = 64 * 1024
# No header carries them at the ends of a key: with them every request would be refused.
# Other words for the two kinds of reference; secrets elsewhere are written with some of them.
_KINDS: Final = {
    **dict.fromkeys(("env", "environment", "variable", "var", "env_var", "from_env"), "env"),
    **dict.fromkeys(("file", "path", "filename", "from_file"), "file"),
}


def expand(text: str, env: Mapping[str, str] | None) -> str | None:
    """Replace `${NAME}`, and `$${` by `${`; None when that needs an `env` and there is none.

    Raises RefusedError for a variable that is not set or is empty.
    """
    pieces: list[str] = []
    last = 0
    is_known = True
    for match in _REFERENCE.finditer(text):
        pieces += [text[last : match.start()], "${"]
        last = match.end()
        if match["broken"]:
            raise RefusedError(
                "KS104",
                f"{shown(text)} has a ${{ that is not ${{NAME}}",
                "write $${ for the two characters themselves",
            )
        if match["name"] and env is None:
            is_known = False
        elif match["name"] and env is not None:
            pieces[-1] = _look_up(match["name"], env)
    return "".join([*pieces, text[last:]]) if is_known else None


def refers(text: str) -> bool:
    """Say whether a text names a variable."""
    return any(match["name"] for match in _REFERENCE.finditer(text))


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """Give a text in its pieces, each (literal, "") or ("", the variable that stands there)."""
    last = 0
    for match in _REFERENCE.finditer(text):
        before = text[last : match.start()] + ("" if match["name"] else "${")
        if before:
            yield before, ""
        if match["name"]:
            yield "", match["name"]
        last = match.end()
    if text[last:]:
        yield text[last:], ""


def _look_up(name: str, env: Mapping[str, str]) -> str:
    value = env.get(name, "")
    if not value:
        state = "empty" if name in env else "not set"
        raise RefusedError("KS104", f"the variable {name} is {state}", f"set {name}")
    return value


def read_secret(
    field: SettingField, node: Node, place: Surroundings, notes: Notes
) -> SecretStr | Unset:
    """Read `{env: NAME}` or `{file: PATH}`; nothing of any other form is ever repeated."""
    if isinstance(node, Scalar) and note_glued(node, field.path, notes):
        return UNSET
    if isinstance(node, Table) and len(node.entries) == 1:
        ((key, value),) = node.entries
        if isinstance(value, Broken):
            return UNSET
        if isinstance(value, Scalar) and scalar_kind(value) == "str" and value.text:
            if key.text == "env":
                _check_name(field, value.text, is_flag=notes.place(node.span).kind == "flag")
                return _from_variable(field, value.text, place)
            if key.text == "file":
                return _from_file(field, value.text, place)
        meant = _meant_kind(key.text)
        if meant and meant != key.text:
            _note_misspelt(field, key, meant, notes)
            return UNSET
    raise _refused(field, node, is_flag=notes.place(node.span).kind == "flag")


def _meant_kind(key: str) -> str | None:
    """Give the kind of reference, `env` or `file`, that a key of a secret was meant to be."""
    word = key.strip().casefold().replace("-", "_")
    return _KINDS.get(word) or nearest(word, ("env", "file"))


def _note_misspelt(field: SettingField, key: Scalar, meant: str, notes: Notes) -> None:
    notes.add(
        "KS101",
        f"unknown key `{bare(key.text)}` in `{field.path}`; did you mean `{meant}`?",
        key.span,
        path=field.path,
        help="write {env: NAME} or {file: PATH}",
        mend=Mend(key.span, meant, "unsafe") if "\n" not in key.text else None,
    )


def _refused(field: SettingField, node: Node, *, is_flag: bool) -> RefusedError:
    """Say why a node is no reference to a secret: it is the secret itself, or nothing at all."""
    help = f"write {{env: NAME}} or {{file: PATH}}, or set {field.env_name}"
    if isinstance(node, Scalar) and not node.text.strip():
        return RefusedError("KS104", f"`{field.path}` is empty", f"{help}, or remove the key")
    if isinstance(node, Items) and not node.items:
        return RefusedError("KS104", f"`{field.path}` must be a reference, not a list", help)
    if isinstance(node, Table) and (not node.entries or _is_incomplete(node)):
        return RefusedError("KS104", f"`{field.path}` takes one of `env` and `file`", help)
    place = "--set" if is_flag else "a file"
    return _literal(field, place, help)


def _literal(field: SettingField, place: str, help: str) -> RefusedError:
    message = f"`{field.path}` is a secret and must not stand in {place}"
    return RefusedError("KS505", message, help)


def _check_name(field: SettingField, name: str, *, is_flag: bool) -> None:
    """Refuse what no variable is called: a reference in a reference, or the secret itself."""
    if NAME.fullmatch(name) and mask(name) == name:
        return
    meant = meant_variable(name)
    if meant:
        message = f"`{field.path}`: `env` takes the bare name of a variable"
        raise RefusedError("KS104", message, f"write {{env: {meant}}}")
    help = f"write {{env: NAME}}, the name of the variable that holds it, or set {field.env_name}"
    raise _literal(field, "--set" if is_flag else "a file", help)


def _is_incomplete(node: Table) -> bool:
    """Tell whether nothing stands there but references, none of them or both of them whole."""
    values = [value for _, value in node.entries]
    is_one = len(values) == 1
    return all(key.text in ("env", "file") for key, _ in node.entries) and all(
        isinstance(value, Scalar) and (not value.text if is_one else scalar_kind(value) == "str")
        for value in values
    )


def _from_variable(field: SettingField, name: str, place: Surroundings) -> SecretStr:
    """Give the secret that a variable holds; a stand-in when there is no `env` to look into."""
    subject = f"the variable {name}" if _VARIABLE.fullmatch(name) else "the variable named here"
    if place.env is None:
        return SecretStr(HIDDEN)
    value = place.env.get(name, "").strip(ASCII_BLANKS)
    if not value:
        state = "empty" if name in place.env else "not set"
        raise RefusedError("KS104", f"`{field.path}`: {subject} is {state}")
    refuse_odd(field, value)
    return SecretStr(value)


def _from_file(field: SettingField, path: str, place: Surroundings) -> SecretStr:
    """Give the secret that a file holds, without blanks at both ends; a stand-in as above."""
    subject = f"the file {path}" if _FILE.fullmatch(path) else "the file named here"
    if place.env is None:
        return SecretStr(HIDDEN)
    try:
        # A shell may hand a secret over by a descriptor: it is never written to a disk then.
        data = read_file(absolute(path, place), _MAX_SECRET_BYTES + 1, is_named=True)
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError("KS104", f"`{field.path}`: {subject} is not UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a path"
        raise RefusedError("KS104", f"`{field.path}`: {subject} cannot be read: {reason}") from None
    if len(data) > _MAX_SECRET_BYTES:
        raise RefusedError("KS104", f"`{field.path}`: {subject} is too large for a secret")
    value = text.strip(ASCII_BLANKS)
    if not value:
        raise RefusedError("KS104", f"`{field.path}`: {subject} is empty")
    refuse_odd(field, value)
    return SecretStr(value)
