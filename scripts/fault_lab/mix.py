"""Which requests the load is made of, and in what proportions."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence

from kimi_serve.launcher.pipeline import load, make_plan
from kimi_serve.preprocess.workers.processor import build_processor

from .corpus import BIG, BROKEN, MEDIUM, SMALL, TEXTS, Corpus, Known


class Mix:
    """Draws requests; the same seed draws the same ones."""

    def __init__(self, groups: Sequence[tuple[int, Sequence[Known]]], seed: int) -> None:
        self._random = random.Random(seed)
        self._groups = [group for _, group in groups]
        self._weights = [weight for weight, _ in groups]

    def draw(self) -> Known:
        (group,) = self._random.choices(self._groups, self._weights)
        return self._random.choice(group)


def make_corpus() -> Corpus:
    """Build the processor that a server without settings has."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("KIMI_SERVE_")}
    spec = make_plan(load([], {}, [], env), env).worker_specs()[0]
    return Corpus(build_processor(spec), spec.slot_bytes)


def fault_mix(seed: int) -> Mix:
    """Everything that clients send: images of all sizes, chats, texts, damage."""
    corpus = make_corpus()
    pairs = list(itertools.pairwise(SMALL))
    json_kind = "application/json"
    return Mix(
        [
            (30, [corpus.images("small image", [name]) for name in SMALL]),
            (10, [corpus.images("small image, JSON", [name], json_kind) for name in SMALL]),
            (10, [corpus.chat("chat of two images", pair, TEXTS[1]) for pair in pairs]),
            (8, [corpus.images("medium image", [name]) for name in MEDIUM]),
            (3, [corpus.images("big image", [name]) for name in BIG]),
            (2, [corpus.images("eight images", SMALL[:8])]),
            (20, [corpus.text(text) for text in TEXTS]),
            (14, [corpus.images("damaged image", [name]) for name in BROKEN]),
            (3, [corpus.images("damaged among good", [SMALL[0], name]) for name in BROKEN]),
        ],
        seed,
    )


def soak_mix(seed: int) -> Mix:
    """Real images in the proportions of a day, without faults."""
    corpus = make_corpus()
    return Mix(
        [
            (75, [corpus.images("small image", [name]) for name in SMALL]),
            (6, [corpus.images("medium image", [name]) for name in MEDIUM]),
            (2, [corpus.images("big image", [name]) for name in BIG]),
            (10, [corpus.chat("chat", [name], TEXTS[1]) for name in SMALL]),
            (7, [corpus.text(text) for text in TEXTS]),
        ],
        seed,
    )
