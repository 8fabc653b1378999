"""Errors that a user of the package sees."""


class RoseError(Exception):
    """Base of all errors raised by this package."""


class ConfigError(RoseError, ValueError):
    """An option has a value that cannot be used; the message names option, limit and value."""


class ModelLoadError(RoseError):
    """A model cannot be loaded; the message names the file and what is wrong with it."""


class SelfCheckError(ModelLoadError):
    """A model gives other scores than its golden file says."""


class DeviceError(RoseError, RuntimeError):
    """The device failed for good: every later step would fail too."""


class KernelBuildError(RoseError):
    """A kernel cannot be compiled on this machine; the message says which and why."""


class BatchError(RoseError, ValueError):
    """A batch cannot be run; the message names the limit and the value."""


class ServerError(RoseError):
    """The server cannot start or stop as asked."""


class EngineFailedError(ServerError):
    """The engine of a running server has failed for good."""
