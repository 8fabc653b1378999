"""Triton kernels, imported only where tensors live on a CUDA device.

Rows are packed tokens. Every kernel loads its inputs as float32, computes in float32 and rounds once
on the way out. Index pointers (`token_ids`, `positions`, `cu_seqlens`) are views into one input
buffer, so their alignment differs from batch to batch; kernels do not specialize on it, which keeps
the number of compiled variants small and known at start.
"""
