"""A stream that is entered at every step."""

from __future__ import annotations

from types import TracebackType

import torch


class OwnStream:
    """What `torch.cuda.stream` does, without its detours in Python on the host's way to the device.

    Not reentrant, and of one thread, as the steps are.
    """

    __slots__ = ("_arguments", "_before", "stream")

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._arguments = _arguments(
            self.stream.stream_id, self.stream.device_index, self.stream.device_type
        )
        self._before: dict[str, int] = {}

    def __enter__(self) -> None:
        device = torch._C._cuda_getDevice()
        self._before = _arguments(*torch._C._cuda_getCurrentStream(device))
        # Also makes the stream's device the current one.
        torch._C._cuda_setStream(**self._arguments)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        torch._C._cuda_setStream(**self._before)


def _arguments(stream_id: int, device_index: int, device_type: int) -> dict[str, int]:
    return {"stream_id": stream_id, "device_index": device_index, "device_type": device_type}
