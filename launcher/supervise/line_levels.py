"""The level of each line that an engine writes, as its own formats say it. Pure."""

from __future__ import annotations

import logging
import re

_NAMES = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "SUCCESS": logging.INFO,
    "NOTICE": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "FATAL": logging.CRITICAL,
}
_WORD = "|".join(_NAMES)
_GLOG = {"V": logging.DEBUG, "I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR}

# vLLM puts "(APIServer pid=1) " before every line of a process, whoever wrote it.
_PROCESS = re.compile(r"\(\w[\w.:-]*(?: [\w=.:-]+)* pid=\d+\) ?")
_HEADS = (
    re.compile(rf"({_WORD}) \d\d-\d\d \d\d:\d\d:\d\d"),  # vLLM
    re.compile(rf"({_WORD}): "),  # uvicorn, which pads behind the colon
    re.compile(rf"({_WORD}):[\w.]+:"),  # Python's logging.basicConfig
    re.compile(rf"\[({_WORD})\] "),  # Granian
    re.compile(rf"\d{{4}}-\d\d-\d\d[T ][\d:.,]+ *[|-]? *({_WORD})\b"),  # loguru, plain logging
    re.compile(r"\S+:\d+:\d+ \[\d+\] .{0,40}?NCCL (INFO|WARN|ERROR|TRACE)\b"),
)
# SGLang writes no level at all.
_SGLANG = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] ?(.*)", re.DOTALL)
_GLOG_HEAD = re.compile(r"(?:\[rank\d+\]:?)?\[?([VIWEF])\d{4} \d\d:\d\d:\d\d")
_WARNING = re.compile(r"\S.*:\d+: \w*Warning: ")
_TRACEBACK = re.compile(r"(?:^|[\s|])Traceback \(most recent call last\):\s*$")
_BETWEEN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class LineLevels:
    """One stream of one engine: a traceback is remembered for each process that writes to it."""

    def __init__(self) -> None:
        self._inside: dict[str, bool] = {}
        self._kept: dict[str, int] = {}

    def level(self, line: str) -> int:
        """Give the level of the next line."""
        match = _PROCESS.match(line)
        process = match[0] if match else ""
        rest = line[len(process) :]
        if _TRACEBACK.search(rest):
            self._inside[process] = True
            self._kept[process] = logging.ERROR
            return logging.ERROR
        own = _own_level(rest)
        if own is not None:
            # Another process of the engine may write between the lines of a traceback.
            if not self._inside.get(process):
                self._kept[process] = own
            return own
        return self._level_of_plain(process, rest)

    def _level_of_plain(self, process: str, rest: str) -> int:
        if rest.strip() in _BETWEEN:
            return logging.ERROR
        is_deeper = not rest.strip() or rest[0].isspace()
        if self._inside.get(process):
            # The first line that is not indented is the exception itself.
            self._inside[process] = is_deeper
            return logging.ERROR
        if is_deeper:
            return self._kept.get(process, logging.INFO)
        self._kept[process] = logging.INFO
        return logging.INFO


def _own_level(line: str) -> int | None:
    for head in _HEADS:
        match = head.match(line)
        if match:
            return _NAMES[match[1]]
    match = _SGLANG.match(line)
    if match:
        inner = _own_level(match[1])
        return logging.INFO if inner is None else inner
    match = _GLOG_HEAD.match(line)
    if match:
        return _GLOG.get(match[1], logging.CRITICAL)
    return logging.WARNING if _WARNING.match(line) else None
