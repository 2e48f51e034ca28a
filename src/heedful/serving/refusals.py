"""Requests that are refused: the reason, for the client, and its status code."""

import logging

_log = logging.getLogger("heedful.serving")


class RefusedError(Exception):
    """A request that is not answered with a translation; the message is for the client."""

    status = 400

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class InvalidError(RefusedError):
    """A parameter that is missing, of the wrong type, or out of range."""


class LanguageError(InvalidError):
    """A language, or a pair of them, that no model has.

    Attributes:
        parameter: "source" or "target".
    """

    def __init__(self, message: str, *, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class TextTooLongError(InvalidError):
    """More characters or texts than a request may have."""


class BodyTooLargeError(RefusedError):
    """More bytes than a request may have."""

    status = 413


class MediaTypeError(RefusedError):
    """A body that is neither JSON nor a form."""

    status = 415


class UnauthorizedError(RefusedError):
    """No API key, or none that the server knows."""

    status = 403


class RequestTimeoutError(RefusedError):
    """A body that did not arrive in time."""

    status = 408


class TooManyRequestsError(RefusedError):
    """More requests than a client may send, or than the server can take in."""

    status = 429


class UnavailableError(RefusedError):
    """A translation that was not done in time, or a server that is going down."""

    status = 503


def not_stored(error: OSError) -> UnavailableError:
    """Log why a document cannot be stored; return the answer for its client."""
    _log.error("a document cannot be stored: %s", error.strerror)
    return UnavailableError("the document cannot be stored; try again later", retry_after=60)


class NoSuchLayerError(RefusedError):
    """A layer that the model does not have."""

    status = 404


class NoSuchGlossaryError(RefusedError):
    """A glossary that the client does not have, or not for the languages of the request."""

    status = 404


class NoSuchMemoryError(RefusedError):
    """A translation memory, a segment or a job that the client does not have."""

    status = 404


class NoSuchDocumentError(RefusedError):
    """A document that the client does not have, or that was removed."""

    status = 404


class NotImplementedHereError(RefusedError):
    """Something that this server was installed without."""

    status = 501
