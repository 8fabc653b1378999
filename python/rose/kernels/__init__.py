"""Fused operations between the GEMMs: on CUDA one Triton kernel each, on CPU their torch definition.

The torch code is the definition that the kernels are tested against. `bad_rows`, an int32 vector of
one entry a token, is set where a row holds NaN or infinity; such rows leave a norm as zeros, so that
attention kernels which read past a sequence's end cannot spread them, and `mark_bad_sequences` turns
the sequences they belong to into NaN at the end.
"""
