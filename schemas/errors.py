"""The whole error tree.

KimiServeError
    ConfigError               exit 2  the user's text is wrong; carries every finding of the load
    PlanError                 exit 3  this machine or this checkpoint cannot do what is asked
        MissingDependencyError        an extra is not installed; names it
    WorkerError               exit 4
        WorkerStartError              a worker died or gave up before it was ready
    EngineError               exit 5
    RequestError              never ends a process: an HTTP answer with status, code and param
        MediaError                    400, the image is damaged or the reference cannot be read
            MediaTooLargeError        413
            UnsupportedMediaError     415
            UpstreamError             502
        InvalidBodyError              422
        ClientGoneError               499
        BodyTooLargeError             413
        UnauthorizedError             401
        OverloadedError               429
        UnavailableError              503
        DeadlineError                 504
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from .findings import Finding


class KimiServeError(Exception):
    """Root of all errors made for users: a message, an optional hint, an exit code."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(KimiServeError):
    """The text of a profile, a variable or a flag is wrong; all findings of the load at once."""

    exit_code = 2

    def __init__(
        self, message: str, *, findings: Sequence[Finding] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.findings = tuple(findings)


class PlanError(KimiServeError):
    """The settings are well formed, but this machine or this checkpoint cannot do them."""

    exit_code = 3


class MissingDependencyError(PlanError):
    """An optional package is needed and absent."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the '{extra}' extra, which is not installed",
            hint=f"pip install 'kimi-serve[{extra}]'",
        )


class WorkerError(KimiServeError):
    """A worker process failed."""

    exit_code = 4


class WorkerStartError(WorkerError):
    """A worker died, failed or stayed silent before it was ready."""


class EngineError(KimiServeError):
    """The engine process failed."""

    exit_code = 5


class RequestError(KimiServeError):
    """One request cannot be answered; `param` names the part of the request that is at fault."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param


class MediaError(RequestError):
    """An image is damaged, or its reference cannot be read."""

    code = "invalid_image"


class MediaTooLargeError(MediaError):
    """An image has more bytes or pixels than the limits allow."""

    status = 413
    code = "image_too_large"


class UnsupportedMediaError(MediaError):
    """The bytes are an image, but of a format that is not accepted."""

    status = 415
    code = "unsupported_image_format"


class UpstreamError(MediaError):
    """The host of an image failed; the same request may succeed later."""

    status = 502
    code = "image_host_failed"


class BodyTooLargeError(RequestError):
    """The request, or the answer that it asks for, is larger than the limits allow."""

    status = 413
    code = "request_too_large"


class InvalidBodyError(RequestError):
    """The body is JSON of the wrong shape."""

    status = 422


class ClientGoneError(RequestError):
    """The client closed the connection; nobody reads the answer, the metrics count it."""

    status = 499
    code = "client_gone"


class UnauthorizedError(RequestError):
    """The bearer key is missing or wrong."""

    status = 401
    code = "invalid_api_key"


class OverloadedError(RequestError):
    """The queue is full; the client should come back later."""

    status = 429
    code = "overloaded"


class UnavailableError(RequestError):
    """The server is starting, draining or has no worker left."""

    status = 503
    code = "unavailable"


class DeadlineError(RequestError):
    """The request was not finished by its deadline."""

    status = 504
    code = "deadline_exceeded"
