"""The bundled demo checkpoint, loaded once, and the recorded prompts."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED
from kimi_serve.preprocess.text.load import load_tokenizer
from kimi_serve.preprocess.text.template import ChatTemplate, load_chat_template
from kimi_serve.preprocess.text.tokenizer import Tokenizer
from kimi_serve.schemas.worker import TokenizerSpec

PROMPTS = Path(__file__).parent / "data" / "prompts"
PAD = 163605


@cache
def demo_tokenizer() -> Tokenizer:
    return load_tokenizer(TokenizerSpec(str(BUNDLED), "tokenizer.json", PAD))


@cache
def demo_template() -> ChatTemplate:
    return load_chat_template(BUNDLED)


def recorded(name: str) -> Any:
    return json.loads((PROMPTS / name).read_text(encoding="utf-8"))
