"""The bodies of the HTTP interface, as clients and the OpenAPI document see them."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kimi_serve.schemas.vocabulary import ImageDtype


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


class _Body(BaseModel):
    _refuse = model_validator(mode="before")(_refuse_unsupported)

    # Clients send the whole of OpenAI's chat request; what is not about preprocessing is theirs.
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


# Fields of other servers that would change the answer; ignoring them would be a silent lie.
UNSUPPORTED = (
    "chat_template", "continue_final_message", "documents", "media_io_kwargs",
    "mm_processor_kwargs", "thinking", "truncate_prompt_tokens",
)  # fmt: skip


class PreprocessRequest(_Body):
    """A chat with images, or images alone."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["messages"]}, {"required": ["images"]}]}
    )

    model: str | None = None
    messages: list[dict[str, Any]] | None = Field(
        None, description="OpenAI chat messages; content parts `text` and `image_url`."
    )
    images: list[str] | None = Field(
        None, description="Images as data URLs or bare base64, without a prompt."
    )
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description='Passed to the chat template, such as {"thinking": false}.',
    )


class TokenizeRequest(_Body):
    """One text, or a chat without images; special tokens that the text spells stay text."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}]}
    )

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)


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
