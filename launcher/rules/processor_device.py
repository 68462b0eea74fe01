"""Which device vLLM's image processor is told to use, and whether the engine takes that."""

from __future__ import annotations

from collections.abc import Iterator

from kimi_serve.schemas.engine_names import KIMI
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import Origin

from ..resolver.engine_view import Given
from ..resolver.situation import Situation
from ..sources.characters import shown
from .wording import at, json_object

_FLAG = "--mm-processor-device"


def device_findings(situation: Situation) -> Iterator[Finding]:
    """Say where vLLM refuses the device, or takes another one than the flag says (KS203)."""
    if situation.kind != "vllm":
        return
    refused, flag = refused_device(situation), _flag(situation)
    inner = _inner(situation)
    if refused is not None:
        yield _refused(situation, refused, flag)
    elif flag is None or inner is None or inner.text == flag.text:
        return
    # Kimi's processor looks at neither, which KS201 says.
    elif not situation.is_one_of(KIMI):
        message = f"{inner.name} beats {flag.name} {flag.text} without a word"
        related = (inner.at_value.origin,)
        yield at("KS203", flag, message, "keep one of them", severity="warning", related=related)


def _refused(situation: Situation, refused: Given, flag: Given | None) -> Finding:
    message = (
        f"{refused.name} is {shown(refused.text)}: {situation.engine_name} refuses to start with "
        "that on an instance that runs the model"
    )
    related: tuple[Origin, ...] = ()
    if flag is not None and flag.name != refused.name:
        message += f", and {flag.name} does not overrule it"
        related = (flag.at_value.origin,)
    help = "write cpu, or leave it out"
    if situation.is_one_of(KIMI):
        help = "leave it out: this model's images are preprocessed on the CPU in any case"
    return at("KS203", refused.at_value, message, help, related=related)


def refused_device(situation: Situation) -> Given | None:
    """Give what asks for an accelerator where vLLM keeps it for the language model.

    The flag is folded into the keywords, where a device that stands there already wins; the
    check looks at the outcome and at no model.
    """
    if situation.kind != "vllm" or _encodes_only(situation):
        return None
    given = _inner(situation) or _flag(situation)
    if given is None or given.text.partition(":")[0] in ("auto", "cpu"):
        return None
    return given


def _flag(situation: Situation) -> Given | None:
    given = situation.flag(_FLAG)
    return None if given is None or given.is_open else given


def _inner(situation: Situation) -> Given | None:
    kwargs = situation.flag("--mm-processor-kwargs")
    device = json_object(kwargs).get("device") if kwargs is not None else None
    if kwargs is None or device is None or "${" in str(device):
        return None
    name = f"the device in {kwargs.name}"
    return Given(name, str(device), kwargs.origin, kwargs.path, kwargs.value)


def _encodes_only(situation: Situation) -> bool:
    """Whether this instance only encodes images; true as well where nobody can tell."""
    transfer = situation.flag("--ec-transfer-config")
    if transfer is None:
        return False
    role = json_object(transfer).get("ec_role")
    return role is None or role == "ec_producer"
