"""Work lists of FlashInfer's persistent FlashAttention 3 kernel, made on the device.

The library plans on the host: 80 to 970 µs a step, and a copy from a staging buffer that must not be
overwritten while it is in flight. The lists depend on `cu_seqlens` alone, so one small kernel at the
head of the captured graph makes them: no host plan, no staging, no race.

A piece of work is (query tile, head). Pieces are ranked by cost, most expensive first, and dealt to
the blocks of the persistent grid in serpentine order (0, 1, … B-1, B-1, … 1, 0, 0, …), which
balances sorted costs about as well as the greedy heap does. Heads of one tile are neighbours in the
order, so that blocks running at the same time share keys and values in the L2 cache.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize_on_alignment=["cu_seqlens_ptr"], do_not_specialize=["num_sequences"])
def schedule_kernel(
    cu_seqlens_ptr,
    work_indptr_ptr,
    head_ptr,
    tile_ptr,
    start_ptr,
    kv_start_ptr,
    length_ptr,
    kv_length_ptr,
    sequence_ptr,
    num_sequences,
    tile_rows: tl.constexpr,
    num_heads: tl.constexpr,
    head_block: tl.constexpr,
    num_blocks: tl.constexpr,
    block_blocks: tl.constexpr,
    sequence_block: tl.constexpr,
    causal: tl.constexpr,
):
    """Program w writes the pieces of the w-th query tile; program 0 also the list boundaries."""
    slots = tl.arange(0, sequence_block)
    in_batch = slots < num_sequences
    starts = tl.load(cu_seqlens_ptr + slots, mask=in_batch, other=0)
    lengths = tl.load(cu_seqlens_ptr + slots + 1, mask=in_batch, other=0) - starts
    lengths = tl.where(in_batch, lengths, 0)
    tiles = (lengths + tile_rows - 1) // tile_rows
    tile_ends = tl.cumsum(tiles, 0)
    num_tiles = tl.sum(tiles, 0)
    num_pieces = num_tiles * num_heads
    rounds = num_pieces // num_blocks
    left_over = num_pieces - rounds * num_blocks
    # In the last, partial round an even round starts from block 0, an odd one from the other end.
    forward = rounds % 2 == 0

    program = tl.program_id(0)
    if program == 0:
        blocks = tl.arange(0, block_blocks)
        extra_before = tl.where(
            forward,
            tl.minimum(blocks, left_over),
            tl.maximum(blocks - (num_blocks - left_over), 0),
        )
        tl.store(
            work_indptr_ptr + blocks, rounds * blocks + extra_before, mask=blocks <= num_blocks
        )

    if program < num_tiles:
        sequence = tl.sum(tl.where(in_batch & (tile_ends <= program), 1, 0), 0)
        mine = slots == sequence
        start = tl.sum(tl.where(mine, starts, 0), 0)
        length = tl.sum(tl.where(mine, lengths, 0), 0)
        tile = program - tl.sum(tl.where(mine, tile_ends - tiles, 0), 0)
        if causal:
            # A tile's cost is its last key: count tiles that end later, ties by slot.
            end = tl.minimum(length, (tile + 1) * tile_rows)
            later = tl.where(lengths > end, tiles - end // tile_rows, 0)
            same = (lengths == end) | ((end % tile_rows == 0) & (lengths > end))
            rank = tl.sum(later, 0) + tl.sum(tl.where(same & (slots < sequence), 1, 0), 0)
        else:
            before = (lengths > length) | ((lengths == length) & (slots < sequence))
            rank = tl.sum(tl.where(before, tiles, 0), 0) + tile

        heads = tl.arange(0, head_block)
        is_head = heads < num_heads
        piece = rank * num_heads + heads
        turn = piece // num_blocks
        place = piece - turn * num_blocks
        block = tl.where(turn % 2 == 0, place, num_blocks - 1 - place)
        extra_before = tl.where(
            forward,
            tl.minimum(block, left_over),
            tl.maximum(block - (num_blocks - left_over), 0),
        )
        at = rounds * block + extra_before + turn
        zeros = tl.zeros([head_block], tl.int32)
        tl.store(head_ptr + at, heads, mask=is_head)
        tl.store(tile_ptr + at, zeros + tile, mask=is_head)
        tl.store(start_ptr + at, zeros + start, mask=is_head)
        tl.store(kv_start_ptr + at, zeros + start, mask=is_head)
        tl.store(length_ptr + at, zeros + length, mask=is_head)
        tl.store(kv_length_ptr + at, zeros + length, mask=is_head)
        tl.store(sequence_ptr + at, zeros + sequence, mask=is_head)
