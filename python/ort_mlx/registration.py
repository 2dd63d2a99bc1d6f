"""Registering the provider with ONNX Runtime, and putting it into sessions."""

from __future__ import annotations

import functools
import threading
import uuid
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

from . import compat, settings
from ._native import EP_NAME, gpu_is_available
from ._native import __file__ as _native_file
from .errors import DeviceError, OrtMlxError
from .hosts import zeros
from .reports import Report
from .session import TOKEN_OPTION, EpSession, of_token

_PREFIX = f"ep.{EP_NAME.lower()}."
_lock = threading.RLock()


def get_library_path() -> str:
    """The absolute path of the plugin library, for `register_execution_provider_library`."""
    return _native_file


def get_ep_name() -> str:
    """The provider's name, "MLXExecutionProvider"."""
    return EP_NAME


def get_ep_names() -> list[str]:
    """The names of all providers in the library: the one."""
    return [EP_NAME]


def register() -> None:
    """Make the provider known to ONNX Runtime; does nothing when it already is.

    Raises:
        CompatibilityError: onnxruntime is missing or too old.
    """
    ort = compat.onnxruntime()
    with _lock:
        if not is_registered():
            ort.register_execution_provider_library(EP_NAME, get_library_path())


def unregister() -> None:
    """Undo `register`; does nothing when not registered. Sessions that live go on working."""
    ort = compat.onnxruntime()
    with _lock:
        if is_registered():
            ort.unregister_execution_provider_library(EP_NAME)


def is_registered() -> bool:
    """Whether ONNX Runtime knows the provider, whoever registered it."""
    return bool(devices())


def devices() -> list[Any]:
    """ORT's `OrtEpDevice`s of the provider: at most one, and none before `register`."""
    return [d for d in compat.onnxruntime().get_ep_devices() if d.ep_name == EP_NAME]


def enable(session_options: Any = None, **options: Any) -> Any:
    """Put the provider in front in the sessions made with these options.

    Args:
        session_options: an `onnxruntime.SessionOptions`; a new one is made when left out.
        **options: see docs/options.md. `device` is "auto" (the GPU if there is one), "gpu" or
            "cpu"; `strict=True` refuses a model of which a node would stay on another provider.

    Returns:
        The session options. Calling it again with the same ones only changes options.

    Raises:
        OptionError: an unknown option or value.
        DeviceError: no such device.
        CompatibilityError: onnxruntime is missing or too old.
    """
    ort = compat.onnxruntime()
    if session_options is not None and not isinstance(session_options, ort.SessionOptions):
        raise TypeError(
            "ort_mlx.enable takes an onnxruntime.SessionOptions, made before its session, not "
            f"{_kind(session_options)}"
        )
    strings = checked(options)
    session_options = ort.SessionOptions() if session_options is None else session_options
    if "threads" not in strings and session_options.intra_op_num_threads > 0:
        strings["threads"] = str(session_options.intra_op_num_threads)
    register()
    found = devices()
    if not found:
        raise DeviceError("ONNX Runtime lists no device for MLX; run: python -m ort_mlx doctor")
    if _is_enabled(session_options):
        for name, value in settings.as_strings(options).items():
            if _entry(session_options, name) != value:  # ORT warns when an entry is written again
                session_options.add_session_config_entry(_PREFIX + name, value)
    else:
        session_options.add_provider_for_devices(found[:1], strings)
    return session_options


def checked(options: dict[str, Any]) -> dict[str, str]:
    """Options as ORT carries them, once they and the device that they ask for are seen to exist."""
    strings = settings.as_strings({"device": "auto", **options})
    if strings["device"] == "gpu" and not gpu_is_available():
        raise DeviceError(
            "device='gpu' was asked for, but MLX has no GPU here; use device='cpu', or run "
            "python -m ort_mlx doctor to see what is missing"
        )
    return strings


def _is_enabled(session_options: Any) -> bool:
    return _has_providers(session_options) and _entry(session_options, "device") is not None


def _entry(session_options: Any, name: str) -> str | None:
    try:
        return str(session_options.get_session_config_entry(_PREFIX + name))
    except Exception:  # ORT raises RuntimeError or its own Fail for a missing entry, by version
        return None


def _kind(given: Any) -> str:
    return "None" if given is None else f"a {type(given).__name__}"


def _ep_session(session: Any) -> EpSession:
    """Our side of an InferenceSession, found by sending it a token through ORT."""
    if not isinstance(session, compat.onnxruntime().InferenceSession):
        raise TypeError(f"this takes an onnxruntime.InferenceSession, not {_kind(session)}")
    token = uuid.uuid4().hex
    session.set_ep_dynamic_options({TOKEN_OPTION: token})
    found = of_token(token)
    if found is None:
        raise OrtMlxError(
            f"this session does not use {EP_NAME} (it uses {', '.join(session.get_providers())}). "
            "`providers=` given to InferenceSession replaces what ort_mlx.enable put into its "
            "session options: pass one or the other"
        )
    return found


def report(session: Any) -> Report:
    """The placement of an `onnxruntime.InferenceSession`, as data and (with `str`) as text.

    Raises:
        OrtMlxError: the session does not use the provider; the text says which it uses.
        TypeError: not a session.
    """
    return _ep_session(session).report


def cancel(session: Any) -> None:
    """Stop the Runs of a session that are in progress, from another thread.

    They end with an error: on the CPU backend after the kernel that is running, elsewhere after the
    evaluation or the iteration of a loop that is running. Later Runs are not affected.

    Raises:
        OrtMlxError: the session does not use the provider.
    """
    _ep_session(session).cancel_flag.request()


def warmup(session: Any, inputs: Mapping[str, Any]) -> None:
    """Run a session once ahead of the first request, so that its closures are traced.

    Args:
        session: an `onnxruntime.InferenceSession`.
        inputs: for each input its shape, filled with zeros of the input's type, or an array where
            its values steer the graph.

    Raises:
        OrtMlxError: the session does not use the provider, or has no such input.
    """
    _ep_session(session)
    if not isinstance(inputs, Mapping):
        raise TypeError(
            "ort_mlx.warmup takes the shapes of the inputs by name, such as {'x': (1, 3)}, not "
            f"{_kind(inputs)}"
        )
    declared = {i.name: i.type for i in session.get_inputs()}
    feeds = {}
    for name, given in inputs.items():
        if name not in declared:
            raise OrtMlxError(f"no input '{name}'; the inputs are {', '.join(declared)}")
        feeds[name] = zeros(declared[name], given) if isinstance(given, (tuple, list)) else given
    session.run(None, feeds)


class Everywhere:
    """`ort_mlx.everywhere`: every InferenceSession made while it is on gets the provider in front.

    For programs that make their own sessions. Works as a context manager and as a plain call with
    `stop()`. Nested uses stack, and the innermost one's options hold. A session that asks for the
    provider with options of its own keeps those.
    """

    _stack: ClassVar[list[Everywhere]] = []

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._strings = checked(options)
        register()
        self._type = compat.onnxruntime().InferenceSession
        self._original = self._type.__init__
        self._installed = self._wrap(self._original)
        self._active = True
        self._type.__init__ = self._installed
        self._stack.append(self)

    def _wrap(self, original: Any) -> Any:
        @functools.wraps(original)
        def initialize(
            session: Any,
            path_or_bytes: Any,
            sess_options: Any = None,
            providers: Any = None,
            provider_options: Any = None,
            **kwargs: Any,
        ) -> None:
            if self._active:
                pairs = _pairs(providers, provider_options)
                if not _has_chosen(sess_options, pairs):
                    sess_options, pairs = self._put_in_front(sess_options, pairs)
                providers, provider_options = pairs or None, None
            original(session, path_or_bytes, sess_options, providers, provider_options, **kwargs)

        return initialize

    def _put_in_front(self, session_options: Any, pairs: list[Any]) -> tuple[Any, list[Any]]:
        register()
        others = [pair for pair in pairs if pair[0] != EP_NAME]
        by_name = EP_NAME in compat.onnxruntime().get_available_providers()
        if by_name and (pairs or not _has_providers(session_options)):
            return session_options, [(EP_NAME, self._strings), *others]
        # Names given here replace what is in the options, and ORT 1.24 takes us by device only.
        session_options = enable(session_options, **self._options)
        available = compat.onnxruntime().get_available_providers()
        for name, options in others:
            if name not in available:
                text = f"Specified provider '{name}' is not in available provider names"
                warnings.warn(text, stacklevel=3)
            elif name != "CPUExecutionProvider":  # it comes last by itself
                session_options.add_provider(name, {k: str(v) for k, v in options.items()})
        return session_options, []

    def stop(self) -> None:
        """Leave later sessions alone; those already made keep the provider."""
        self._active = False
        while self._stack and not self._stack[-1]._active:
            last = self._stack.pop()
            if last._type.__init__ is last._installed:
                last._type.__init__ = last._original

    def __enter__(self) -> Everywhere:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _has_providers(session_options: Any) -> bool:
    return session_options is not None and bool(session_options.has_providers())


def _pairs(providers: Any, provider_options: Any) -> list[tuple[str, dict[str, Any]]]:
    """The providers with their options, from either way to give them to InferenceSession."""
    given = list(providers or ())
    options = list(provider_options or [{}] * len(given))
    if len(options) != len(given):
        raise ValueError("providers and provider_options have different lengths")
    return [
        (p[0], p[1]) if isinstance(p, (tuple, list)) else (p, o or {})
        for p, o in zip(given, options, strict=True)
    ]


def _has_chosen(session_options: Any, pairs: list[tuple[str, dict[str, Any]]]) -> bool:
    """Whether the program itself asks for us, with options."""
    if pairs:
        return any(name == EP_NAME and options for name, options in pairs)
    return _is_enabled(session_options)


def everywhere(**options: Any) -> Everywhere:
    """Put the provider in front in every InferenceSession from now on: see `Everywhere`."""
    return Everywhere(**options)
