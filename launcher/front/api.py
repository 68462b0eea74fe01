"""The bodies of the HTTP interface, as clients and the OpenAPI document see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from kimi_serve.preprocess.text.prompt import OWN_VARIABLES
from kimi_serve.schemas.vocabulary import ImageDtype

# What `preprocess.text.chat` accepts, as the OpenAPI document says it.
REFERENCE: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "format": "image-reference",
    "description": "A data URL, bare base64, or a URL or path that the server allows.",
}
_IMAGE = {"anyOf": [REFERENCE, {"type": "object", "properties": {"url": REFERENCE},
                                "required": ["url"]}]}  # fmt: skip
_TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_IMAGES: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"type": {"const": kind}, kind: _IMAGE},
        "required": ["type", kind],
    }
    for kind in ("image_url", "image")
]


def _message(*parts: dict[str, Any]) -> dict[str, Any]:
    content = [
        {"type": "string"},
        {"type": "array", "items": {"anyOf": list(parts)}},
        {"type": "null"},
    ]
    return {
        "type": "object",
        "properties": {"role": {"type": "string", "minLength": 1}, "content": {"anyOf": content}},
        "required": ["role"],
        "anyOf": [{"required": ["content"]}, {"properties": {"role": {"const": "assistant"}}}],
    }


def _refuse_unsupported(body: Any) -> Any:
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        given = [name for name in UNSUPPORTED if fields.get(name) is not None]
        if given:
            message = (
                f"not supported here: {', '.join(given)}; what the chat template should know goes "
                "into chat_template_kwargs"
            )
            raise ValueError(message)
        return fields
    return body


# Fields of other servers that would change the answer; ignoring them would be a silent lie.
UNSUPPORTED = (
    "chat_template", "continue_final_message", "documents", "media_io_kwargs",
    "mm_processor_kwargs", "thinking", "truncate_prompt_tokens",
)  # fmt: skip

_NotEmpty = Field(json_schema_extra={"minItems": 1})
Messages = Annotated[
    list[Annotated[dict[str, Any], WithJsonSchema(_message(_TEXT, *_IMAGES))]], _NotEmpty
]
TextMessages = Annotated[
    list[Annotated[dict[str, Any], WithJsonSchema(_message(_TEXT))]], _NotEmpty
]
Images = Annotated[list[Annotated[str, WithJsonSchema(REFERENCE)]], _NotEmpty]
_KWARGS: dict[str, Any] = {"propertyNames": {"not": {"enum": sorted(OWN_VARIABLES)}}}
TemplateKwargs = Annotated[dict[str, Any], Field(json_schema_extra=_KWARGS)]


def _one_of(first: str, first_type: str, second: str) -> Callable[[dict[str, Any]], None]:
    """Let the schema say that one of two fields is given, and what is refused though unknown."""

    def extend(schema: dict[str, Any]) -> None:
        kinds = {first: first_type, second: "array"}
        schema["oneOf"] = [
            {"required": [name], "properties": {name: {"type": kind}}}
            for name, kind in kinds.items()
        ]
        for name in UNSUPPORTED:
            schema["properties"][name] = {"type": "null", "description": "Not supported here."}

    return extend


class _Body(BaseModel):
    _refuse = model_validator(mode="before")(_refuse_unsupported)

    # Clients send the whole of OpenAI's chat request; what is not about preprocessing is theirs.
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True, strict=True)


class PreprocessRequest(_Body):
    """A chat with images, or images alone."""

    model_config = ConfigDict(json_schema_extra=_one_of("messages", "array", "images"))

    model: str | None = None
    messages: Messages | None = Field(
        None, description="OpenAI chat messages; content parts `text` and `image_url`."
    )
    images: Images | None = Field(None, description="Images without a prompt.")
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: TemplateKwargs = Field(
        default_factory=dict,
        description='Passed to the chat template, such as {"thinking": false}.',
    )


class TokenizeRequest(_Body):
    """One text, or a chat without images; special tokens that the text spells stay text."""

    model_config = ConfigDict(json_schema_extra=_one_of("prompt", "string", "messages"))

    prompt: str | None = None
    messages: TextMessages | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: TemplateKwargs = Field(default_factory=dict)


class TokenizeResponse(BaseModel):
    tokens: list[int]
    count: int


class TensorBody(BaseModel):
    dtype: ImageDtype
    shape: list[int] = Field(description="[patches, 3, patch_size, patch_size]")
    data: str = Field(description="base64 of the little-endian values, C order")


class ImageBody(BaseModel):
    index: int
    width: int = Field(description="of the upright image")
    height: int
    format: str
    orientation_applied: bool
    resized: list[int] = Field(description="[width, height] before padding")
    num_tokens: int
    sha256: str = Field(description="of the content and every setting that changes pixels")


class UsageBody(BaseModel):
    prompt_tokens: int
    image_tokens: int


class PreprocessResponse(BaseModel):
    id: str
    model: str
    input_ids: list[int] | None
    grid_thws: list[list[int]] = Field(description="[t, h, w] in patches, one an image")
    pixel_values: TensorBody
    images: list[ImageBody]
    usage: UsageBody


class ErrorBody(BaseModel):
    message: str
    type: str
    code: str
    param: str | None


class ErrorResponse(BaseModel):
    """OpenAI's error envelope; `param` names the image at fault, such as `images[2]`."""

    error: ErrorBody


class HealthResponse(BaseModel):
    status: str


class ReadyResponse(BaseModel):
    ready: bool
    workers_ready: int
    workers: int


class ModelBody(BaseModel):
    id: str
    object: str
    created: int
    owned_by: str


class ModelsResponse(BaseModel):
    object: str
    data: list[ModelBody]


class ServerInfoResponse(BaseModel):
    """The plan as `kimi-serve plan --json` gives it, and the report of every worker."""

    version: str
    generation: int = Field(description="1, and one more for every reload")
    workers: list[dict[str, Any]]
    plan: dict[str, Any]
