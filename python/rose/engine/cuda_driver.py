"""The few functions of the CUDA driver that a replayed step needs, called without torch in between.

After milliseconds of waiting nothing of torch's way to the device is in the caches any more: a copy
that takes 20 µs in a loop then takes 150, and the device idles meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any

from rose.errors import DeviceError

logger = logging.getLogger(__name__)

_OUT_OF_MEMORY = 2
_FUNCTIONS: dict[str, list[Any]] = {
    "cuCtxGetCurrent": [ctypes.POINTER(ctypes.c_void_p)],
    "cuCtxSetCurrent": [ctypes.c_void_p],
    "cuMemcpyHtoDAsync_v2": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
    "cuMemcpyDtoHAsync_v2": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
    "cuGraphLaunch": [ctypes.c_void_p, ctypes.c_void_p],
    "cuEventRecord": [ctypes.c_void_p, ctypes.c_void_p],
    "cuGetErrorName": [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
}


def open_driver() -> Any:  # noqa: ANN401 - a library, or what stands in for one
    """The driver's library.

    Raises:
        OSError: there is none.
        AttributeError: it lacks a function.
    """
    library = ctypes.CDLL("libcuda.so.1")
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return library


def driver_of(stream: int) -> CudaDriver | None:
    """What enqueues on a stream of this thread's context; None where only torch can."""
    try:
        return CudaDriver(open_driver(), stream)
    except (OSError, AttributeError, DeviceError) as error:
        logger.info("replayed steps are launched by torch: %s", error)
        return None


class CudaDriver:
    """Enqueues on one stream, from any thread. Addresses and handles are integers."""

    def __init__(self, library: Any, stream: int) -> None:  # noqa: ANN401
        """Takes the calling thread's context, which torch has made.

        Raises:
            DeviceError: the thread has none.
        """
        self._stream = stream
        self._copy_in = library.cuMemcpyHtoDAsync_v2
        self._copy_out = library.cuMemcpyDtoHAsync_v2
        self._launch = library.cuGraphLaunch
        self._record = library.cuEventRecord
        self._set_context = library.cuCtxSetCurrent
        self._error_name = library.cuGetErrorName
        context = ctypes.c_void_p()
        self._check("cuCtxGetCurrent", library.cuCtxGetCurrent(ctypes.byref(context)))
        if not context.value:
            raise DeviceError("the CUDA driver has no context on this thread")
        self._context = context.value

    def replay(
        self,
        graph: int,
        copy_in: tuple[int, int, int],
        copy_out: tuple[int, int, int],
        start: int,
        end: int,
    ) -> None:
        """Copies in, runs a captured graph, copies out, between two events. Waits for nothing.

        Args:
            graph: handle of a `cudaGraphExec_t`.
            copy_in: device address, page-locked address, bytes.
            copy_out: page-locked address, device address, bytes.
            start: event recorded before everything.
            end: event recorded behind everything.

        Raises:
            DeviceError: the device failed for good.
            RuntimeError: it is out of memory.
        """
        stream = self._stream
        # A thread that has never run anything has no context.
        self._check("cuCtxSetCurrent", self._set_context(self._context))
        self._check("cuEventRecord", self._record(start, stream))
        self._check("cuMemcpyHtoDAsync", self._copy_in(*copy_in, stream))
        self._check("cuGraphLaunch", self._launch(graph, stream))
        self._check("cuMemcpyDtoHAsync", self._copy_out(*copy_out, stream))
        self._check("cuEventRecord", self._record(end, stream))

    def _check(self, function: str, code: int) -> None:
        if code == 0:
            return
        name = ctypes.c_char_p()
        known = self._error_name(code, ctypes.byref(name)) == 0 and name.value
        message = f"{function}: {name.value.decode() if known and name.value else f'error {code}'}"
        if code == _OUT_OF_MEMORY:
            raise RuntimeError(message)
        raise DeviceError(message)
