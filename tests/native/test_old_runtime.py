"""A runtime that is too old gets an error of its own; the entry point is called as ORT does."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import ort_mlx

GetApi = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
GetVersionString = ctypes.CFUNCTYPE(ctypes.c_void_p)  # c_char_p would leak
CreateStatus = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class ApiBase(ctypes.Structure):
    _fields_ = [("GetApi", GetApi), ("GetVersionString", GetVersionString)]


class Runtime:
    """An ORT of some version, with the oldest slot of its table only."""

    def __init__(self, version: bytes, has_table: bool = True) -> None:
        self.asked: list[int] = []
        self.errors: list[tuple[int, str]] = []
        self._create_status = CreateStatus(self._note)
        self._table = (ctypes.c_void_p * 1)(ctypes.cast(self._create_status, ctypes.c_void_p))
        address = ctypes.addressof(self._table) if has_table else None
        self._version = ctypes.create_string_buffer(version)
        self._functions = (
            GetApi(lambda n: self.asked.append(n) or address),
            GetVersionString(lambda: ctypes.addressof(self._version)),
        )
        self.base = ApiBase(*self._functions)

    def _note(self, code: int, text: bytes) -> int:
        self.errors.append((code, text.decode()))
        return 0x5EED

    def create(self) -> tuple[Any, int]:
        """What CreateEpFactories returns, and how many factories it says it made."""
        library = ctypes.CDLL(ort_mlx.get_library_path())
        library.CreateEpFactories.restype = ctypes.c_void_p
        factories = (ctypes.c_void_p * 4)()
        count = ctypes.c_size_t(77)
        status = library.CreateEpFactories(
            b"name",
            ctypes.byref(self.base),
            None,
            factories,
            ctypes.c_size_t(4),
            ctypes.byref(count),
        )
        return status, count.value


@pytest.mark.parametrize("version", ["1.23.2", "1.4.0", "1.0", "0.5", "nonsense", ""])
def test_an_old_runtime_gets_a_sentence(version: str) -> None:
    runtime = Runtime(version.encode())
    status, count = runtime.create()
    assert status == 0x5EED
    assert count == 0
    assert runtime.asked == [1]  # asking an old ORT for what it has not prints to stderr
    ((code, text),) = runtime.errors
    assert code == 1
    assert text == (
        f"ort_mlx needs ONNX Runtime 1.24 or newer, found {version}. "
        "Upgrade the onnxruntime package"
    )


def test_a_runtime_without_a_table_gets_no_factory() -> None:
    runtime = Runtime(b"1.23.2", has_table=False)
    status, count = runtime.create()
    assert (status, count) == (None, 0)
    assert runtime.errors == []
