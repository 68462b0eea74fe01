"""Every path, native and pure, on every golden case and in every type: the same bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from image_samples import ALL_FORMATS, DATA, DISPLAY, KIMI, load_json
from native_levels import LEVELS, needs_kernel

from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.preprocess.images.kimi import plan_resize
from kimi_serve.preprocess.images.normalise import NUMPY_DTYPES, Normaliser
from kimi_serve.preprocess.images.picture import Picture, PureWriter
from kimi_serve.preprocess.native.kernel import NativeWriter
from kimi_serve.schemas.errors import MediaError
from kimi_serve.schemas.vocabulary import ImageDtype
from kimi_serve.schemas.worker import ResizeConfig

pytestmark = needs_kernel
CASES = load_json("golden/golden.json")["cases"]
CHECKPOINT = replace(DISPLAY, policy="checkpoint", formats=ALL_FORMATS)
DTYPES: tuple[ImageDtype, ...] = get_args(ImageDtype)


def _compare(picture: Picture, size: tuple[int, int], config: ResizeConfig) -> None:
    plan = plan_resize(*size, config)
    shape = plan.num_patches, 3, config.patch_size, config.patch_size
    for dtype in DTYPES:
        expected, got = (np.empty(shape, NUMPY_DTYPES[dtype]) for _ in range(2))
        PureWriter(Normaliser(config, dtype)).write(picture, plan, expected)
        for level in LEVELS:
            NativeWriter(config, dtype, level).write(picture, plan, got)
            assert np.array_equal(got.view(np.uint8), expected.view(np.uint8)), (level, dtype)


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{c['file']}" for n, c in enumerate(CASES)])
def test_golden_cases(case: dict[str, Any]) -> None:
    decoded = decode_image((DATA / "golden" / case["file"]).read_bytes(), CHECKPOINT)
    values = {name: tuple(case["config"][name]) for name in ("image_mean", "image_std")}
    _compare(decoded.picture, decoded.size, ResizeConfig(**(case["config"] | values)))


def test_the_other_images() -> None:
    seen = 0
    for path in sorted((DATA / "images").iterdir()):
        for rules in (CHECKPOINT, replace(CHECKPOINT, policy="display")):
            try:
                decoded = decode_image(path.read_bytes(), rules)
            except MediaError:
                continue
            _compare(decoded.picture, decoded.size, replace(KIMI, in_patch_limit=40))
            seen += 1
    assert seen > 20
