"""Programmatic dependent launch: the next kernel starts while this one still runs.

A kernel launched so must call `wait_for_previous` before it touches anything that an earlier kernel
wrote; what it reads before that (weights, which nobody writes) is on its way meanwhile. All its
programs must call it, also those without work: the kernel after the next relies on it.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait_for_previous(dependent: tl.constexpr):
    """Lets the next kernel start, and waits for the end of the one before."""
    if dependent:
        gdc_launch_dependents()
        gdc_wait()
