"""The exceptions this package raises. Every message starts with the operator or the subject."""

from __future__ import annotations


class OrtMlxError(RuntimeError):
    """Base of every error raised by ort_mlx itself."""


class OptionError(OrtMlxError, ValueError):
    """An option that does not exist, or a value it does not take."""


class CompatibilityError(OrtMlxError, ImportError):
    """An installed package that this build cannot work with; the text says what to reinstall."""


class DeviceError(OrtMlxError):
    """No device of the requested kind."""


class TranslationError(OrtMlxError):
    """An op could not be translated or run: `[Op 'node'] what, got shapes ...`."""


class InputError(TranslationError, ValueError):
    """The same, caused by the values given to Run (ORT_INVALID_ARGUMENT)."""
