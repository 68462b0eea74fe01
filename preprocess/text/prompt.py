"""From a chat to token ids with one placeholder per image, and from those to the expanded ids.

The template writes special tokens and the request must not be able to. A request's text may
spell one whole, or in two parts that the template joins, or in a role, a name, a tool's arguments.
So the request never gets a chance to match:

1. In every string of the request the characters that can begin a special token ('<' and '[' for
   Kimi) are replaced, one by one, by stand-ins: private-use characters that occur neither in the
   request nor in the template. Lengths and comparisons of other text stay as they are.
2. The template renders. Special tokens found in the result now are the template's own.
3. In the runs between them the original characters are put back, and each whole run is encoded
   with special tokens off. Text that spells no special token so gets exactly the ids that encoding
   the rendered prompt in one piece would give.

A template that writes the beginning of a special token just before a request's text ("<" + name)
could let the text finish it; such a text gets a stand-in for its first character too. What a
template does by looking for special tokens inside a message (cutting at '</think>') finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kimi_serve.schemas.errors import RequestError

from ..checkpoint_files.json_files import as_list, as_object
from .chat import Chat, copy_json
from .template import PRIVATE_PLANES, ChatTemplate
from .tokenizer import Tokenizer

VIDEO_PLACEHOLDER = "<|kimi_k25_video_placeholder|>"
OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt"})


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """Ids with one placeholder per image; `slots` are the indices of those, in image order."""

    ids: list[int]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExpandedPrompt:
    """The ids that a model gets; `spans` are [start, end) of each image's placeholders."""

    ids: list[int]
    spans: tuple[tuple[int, int], ...]


def render_prompt(
    chat: Chat,
    template: ChatTemplate,
    tokenizer: Tokenizer,
    *,
    add_generation_prompt: bool = True,
    template_kwargs: object = None,
    tools: object = None,
) -> TokenizedPrompt:
    """Render a chat and encode it; the placeholders are as many as the chat has images.

    `template_kwargs` (an object) and `tools` (a list) are taken as they came in the request.
    """
    request = _request(chat, template_kwargs, tools)
    guard = Guard.make(request, template, tokenizer)
    variables: dict[str, Any] = guard.cover(request)
    variables["add_generation_prompt"] = add_generation_prompt
    try:
        text = template.render(variables)
    except RequestError as error:
        raise RequestError(guard.uncover(error.message), param=error.param) from error
    if VIDEO_PLACEHOLDER in text:
        message = "the chat template asks for a video, which is not supported"
        raise RequestError(message, param="messages")
    return _encode(text, guard, tokenizer, len(chat.images))


def expand(prompt: TokenizedPrompt, counts: Sequence[int]) -> ExpandedPrompt:
    """Repeat the placeholder of each image as often as the image has tokens.

    Refuses counts that do not fit the slots, and ids that hold other placeholders than the slots:
    those were expanded before.
    """
    if len(counts) != len(prompt.slots):
        message = (
            f"the prompt has {len(prompt.slots)} image slots, but there are {len(counts)} images"
        )
        raise RequestError(message, param="messages")
    if any(count < 1 for count in counts):
        message = f"every image has at least one token, not {list(counts)}"
        raise ValueError(message)
    if not prompt.slots:
        return ExpandedPrompt(list(prompt.ids), ())
    pad = prompt.ids[prompt.slots[0]]
    if tuple(index for index, id in enumerate(prompt.ids) if id == pad) != prompt.slots:
        message = "the prompt has placeholders outside its slots: it was expanded before"
        raise ValueError(message)
    ids: list[int] = []
    spans: list[tuple[int, int]] = []
    begin = 0
    for slot, count in zip(prompt.slots, counts, strict=True):
        ids += prompt.ids[begin:slot]
        spans.append((len(ids), len(ids) + count))
        ids += [pad] * count
        begin = slot + 1
    ids += prompt.ids[begin:]
    if ids.count(pad) != sum(counts):
        message = f"{ids.count(pad)} placeholders for {sum(counts)} image tokens"
        raise ValueError(message)
    return ExpandedPrompt(ids, tuple(spans))


@dataclass(frozen=True, slots=True)
class Guard:
    """The stand-ins of one request.

    `begins` maps the characters that can begin a special token, `resumes` those that can go on
    with one that the template has begun; `endings` are the texts that would finish such a one.
    """

    begins: Mapping[int, int]
    resumes: Mapping[int, int]
    endings: tuple[str, ...]

    @classmethod
    def make(cls, request: object, template: ChatTemplate, tokenizer: Tokenizer) -> Guard:
        """Choose the stand-ins: characters that neither the request nor the template has."""
        taken = set(filter(PRIVATE_PLANES.__contains__, map(ord, template.source)))
        _collect_private(request, taken)
        endings = tuple(_endings(template, tokenizer))
        first = {text[0] for text in tokenizer.special_ids}
        needed = sorted(first | {text[0] for text in endings})
        free = (code for code in PRIVATE_PLANES if code not in taken and code & 0xFFFE != 0xFFFE)
        chosen = dict(zip(map(ord, needed), islice(free, len(needed)), strict=False))
        if len(chosen) < len(needed):
            message = "the text uses all private-use characters, none is left to work with"
            raise RequestError(message, param="messages")
        begins = {ord(character): chosen[ord(character)] for character in first}
        return cls(begins, chosen, endings)

    def cover(self, value: object) -> Any:
        """Replace in every string of a JSON value, keys included."""
        if isinstance(value, str):
            return self._cover_text(value)
        items, entries = as_list(value), as_object(value)
        if items is not None:
            return [self.cover(item) for item in items]
        if entries is not None:
            return {self._cover_text(key): self.cover(item) for key, item in entries.items()}
        return value

    def uncover(self, text: str) -> str:
        """Put the original characters back."""
        return text.translate({stand_in: code for code, stand_in in self.resumes.items()})

    def _cover_text(self, text: str) -> str:
        covered = text.translate(self.begins)
        if text and any(text.startswith(end) or end.startswith(text) for end in self.endings):
            return chr(self.resumes[ord(text[0])]) + covered[1:]
        return covered


def _request(chat: Chat, template_kwargs: object, tools: object) -> dict[str, Any]:
    """Gather all that came from the request, as the variables that the template sees."""
    copied = copy_json(template_kwargs, "chat_template_kwargs")
    kwargs: dict[str, Any] | None = {} if copied is None else as_object(copied)
    if kwargs is None:
        message = "chat_template_kwargs must be an object"
        raise RequestError(message, param="chat_template_kwargs")
    clash = sorted(OWN_VARIABLES.intersection(kwargs))
    if clash:
        message = f"chat_template_kwargs must not set {', '.join(clash)}"
        raise RequestError(message, param="chat_template_kwargs")
    copied_tools: Any = copy_json(tools, "tools")
    if copied_tools is not None and not isinstance(copied_tools, list):
        message = "tools must be a list of tools"
        raise RequestError(message, param="tools")
    return {
        **kwargs,
        "messages": list(chat.messages),
        "tools": copied_tools or None,
    }


def _collect_private(value: object, taken: set[int]) -> None:
    if isinstance(value, str):
        if not value.isascii():
            taken.update(filter(PRIVATE_PLANES.__contains__, map(ord, set(value))))
        return
    entries = as_object(value) or {}
    for item in [*(as_list(value) or []), *entries.keys(), *entries.values()]:
        _collect_private(item, taken)


def _endings(template: ChatTemplate, tokenizer: Tokenizer) -> set[str]:
    """List what would finish a special token that one of the template's literals begins."""
    longest = max(map(len, tokenizer.special_ids), default=0)
    begun = {
        literal[-size:]
        for literal in template.literals
        for size in range(1, min(longest, len(literal) + 1))
        if literal[-size:] in tokenizer.special_prefixes
    }
    return {
        special[len(start) :]
        for start in begun
        for special in tokenizer.special_ids
        if special.startswith(start)
    }


def _encode(text: str, guard: Guard, tokenizer: Tokenizer, num_images: int) -> TokenizedPrompt:
    ids: list[int] = []
    slots: list[int] = []
    begin = 0
    for match in tokenizer.special_pattern.finditer(text):
        ids += tokenizer.encode_text(guard.uncover(text[begin : match.start()]))
        id = tokenizer.special_ids[match.group()]
        if id == tokenizer.placeholder_id:
            slots.append(len(ids))
        ids.append(id)
        begin = match.end()
    ids += tokenizer.encode_text(guard.uncover(text[begin:]))
    if len(slots) != num_images:
        message = f"the chat template made {len(slots)} image slots for {num_images} images"
        raise RequestError(message, param="messages")
    return TokenizedPrompt(ids, tuple(slots))
