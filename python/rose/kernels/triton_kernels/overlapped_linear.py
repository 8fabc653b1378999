"""A linear layer whose epilogue has warps of its own, so that the tensor cores go on with the next tile.

Written in Gluon, Triton's lower level: which warps do what, and how they wait for each other, is what
it is about. Three parts of a program pass tiles along:

    one warp loads x and weight       → `full`, `empty`: barriers of the stages in shared memory
    eight warps multiply              → `staged`, `drained`: barriers of the product in shared memory
    four warps compute the epilogue and store
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Renamed between Triton 3.6 and 3.9.
async_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared

# Bytes of a value.
VALUE_BYTES = gl.constexpr(2)
# Of the activation; see `activation.gelu` for the polynomial.
LOG2_E = gl.constexpr(1.4426950408889634)
HEAD_DIM = gl.constexpr(128)


@gluon.jit
def _reciprocal(x):
    """1 / x to 1 unit in the last place; the division of the language takes many times longer."""
    return gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def _gelu(x, tanh: gl.constexpr):
    if tanh:
        exponent = (-1.5957691216057308 * LOG2_E) * (x + 0.044715 * x * x * x)
    else:
        square = gl.minimum(x * x, 25.0)
        poly = 2.901862829e-08 * square - 2.052821137e-06
        poly = poly * square + 3.931264765e-05
        poly = poly * square + 8.479524703e-04
        poly = poly * square - 1.068731334e-01
        exponent = x * (poly * square - 2.300630319e00)
    return x * _reciprocal(1.0 + gl.exp2(exponent))


@gluon.jit
def _corner(
    tile,
    row_tiles,
    column_tiles: gl.constexpr,
    block_rows: gl.constexpr,
    block_columns: gl.constexpr,
):
    """First row and column of a tile; those that run together share x and weight in the L2 cache."""
    group: gl.constexpr = 8
    first = tile // (group * column_tiles) * group
    rows_in_group = gl.minimum(row_tiles - first, group)
    in_group = tile % (group * column_tiles)
    row = (first + in_group % rows_in_group) * block_rows
    return row, in_group // rows_in_group * block_columns


@gluon.jit
def _next(slot, parity, stages: gl.constexpr):
    """The stage behind `slot`; barriers change their parity with each round."""
    wraps = slot == stages - 1
    return gl.where(wraps, 0, slot + 1), gl.where(wraps, parity ^ 1, parity)


@gluon.jit
def _load(
    x_desc,
    weight_desc,
    x_stages,
    weight_stages,
    full,
    empty,
    row_tiles,
    column_tiles: gl.constexpr,
    steps: gl.constexpr,
    num_programs: gl.constexpr,
):
    stages: gl.constexpr = x_stages.shape[0]
    block_rows: gl.constexpr = x_stages.shape[1]
    block_columns: gl.constexpr = weight_stages.shape[1]
    block_depth: gl.constexpr = x_stages.shape[2]
    slot = 0
    # A barrier that nobody has arrived at yet counts as past its odd phase.
    parity = 1
    for tile in range(gl.program_id(0), row_tiles * column_tiles, num_programs):
        row, column = _corner(tile, row_tiles, column_tiles, block_rows, block_columns)
        for step in range(steps):
            mbarrier.wait(empty.index(slot), parity)
            ready = full.index(slot)
            mbarrier.expect(ready, (block_rows + block_columns) * block_depth * VALUE_BYTES)
            depth = step * block_depth
            async_load(x_desc, [row, depth], ready, x_stages.index(slot))
            async_load(weight_desc, [column, depth], ready, weight_stages.index(slot))
            slot, parity = _next(slot, parity, stages)


@gluon.jit
def _multiply(
    x_stages,
    weight_stages,
    product,
    full,
    empty,
    staged,
    drained,
    row_tiles,
    column_tiles: gl.constexpr,
    steps: gl.constexpr,
    num_programs: gl.constexpr,
):
    stages: gl.constexpr = x_stages.shape[0]
    block_rows: gl.constexpr = x_stages.shape[1]
    block_columns: gl.constexpr = weight_stages.shape[1]
    # Instructions of 128 columns: wider ones need more registers than 16 warps can have each.
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, 128, 16]
    )
    slot = 0
    parity = 0
    turn = 0
    for _ in range(gl.program_id(0), row_tiles * column_tiles, num_programs):
        total = gl.zeros((block_rows, block_columns), gl.float32, layout)
        for step in range(steps):
            mbarrier.wait(full.index(slot), parity)
            running = warpgroup_mma(
                x_stages.index(slot),
                weight_stages.index(slot).permute((1, 0)),
                total,
                is_async=True,
            )
            # The one before has ended: its stage may be filled again.
            total = warpgroup_mma_wait(1, deps=(running,))
            before = gl.where(slot == 0, stages - 1, slot - 1)
            mbarrier.arrive(empty.index(before), pred=step > 0)
            slot, parity = _next(slot, parity, stages)
        total = warpgroup_mma_wait(0, deps=(total,))
        mbarrier.arrive(empty.index(gl.where(slot == 0, stages - 1, slot - 1)))
        mbarrier.wait(drained, turn ^ 1)
        product.store(total.to(product.dtype))
        mbarrier.arrive(staged)
        turn ^= 1


@gluon.jit
def _activate(
    product,
    staged,
    drained,
    out_ptr,
    bias_ptr,
    num_rows,
    row_tiles,
    column_tiles: gl.constexpr,
    num_programs: gl.constexpr,
    tanh: gl.constexpr,
):
    """out = GELU(product + bias)."""
    block_rows: gl.constexpr = product.shape[0]
    block_columns: gl.constexpr = product.shape[1]
    width: gl.constexpr = column_tiles * block_columns
    warps: gl.constexpr = gl.num_warps()
    # A warp has a row, of which a thread loads and stores 16 bytes.
    rows_at_once: gl.constexpr = 4 * warps
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [warps, 1], [1, 0])
    columns = gl.arange(0, block_columns, layout=gl.SliceLayout(0, layout))
    rows = gl.arange(0, rows_at_once, layout=gl.SliceLayout(1, layout))
    turn = 0
    for tile in range(gl.program_id(0), row_tiles * column_tiles, num_programs):
        row, column = _corner(tile, row_tiles, column_tiles, block_rows, block_columns)
        bias = gl.load(bias_ptr + column + columns).to(gl.float32)
        mbarrier.wait(staged, turn)
        for part in gl.static_range(block_rows // rows_at_once):
            x = product.slice(part * rows_at_once, rows_at_once, 0).load(layout)
            if part == block_rows // rows_at_once - 1:
                mbarrier.arrive(drained)
            out = _gelu(x.to(gl.float32) + bias[None, :], tanh)
            at = row + part * rows_at_once + rows
            pointers = out_ptr + at.to(gl.int64)[:, None] * width + column + columns[None, :]
            gl.store(pointers, out.to(product.dtype), mask=(at < num_rows)[:, None])
        turn ^= 1


@gluon.jit
def _rotate(
    product,
    staged,
    drained,
    out_ptr,
    positions_ptr,
    q_weight_ptr,
    k_weight_ptr,
    cos_ptr,
    sin_ptr,
    eps,
    num_rows,
    row_tiles,
    column_tiles: gl.constexpr,
    num_programs: gl.constexpr,
    num_heads: gl.constexpr,
    num_qk_heads: gl.constexpr,
    has_norm: gl.constexpr,
):
    """out = product, its query and key heads normed and rotated; as `qk_norm_rope_kernel` does."""
    block_rows: gl.constexpr = product.shape[0]
    block_columns: gl.constexpr = product.shape[1]
    width: gl.constexpr = column_tiles * block_columns
    heads_a_tile: gl.constexpr = block_columns // HEAD_DIM
    half: gl.constexpr = HEAD_DIM // 2
    warps: gl.constexpr = gl.num_warps()
    rows_at_once: gl.constexpr = 4 * warps
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [warps, 1], [1, 0])
    columns = gl.arange(0, half, layout=gl.SliceLayout(0, layout))
    rows = gl.arange(0, rows_at_once, layout=gl.SliceLayout(1, layout))
    turn = 0
    for tile in range(gl.program_id(0), row_tiles * column_tiles, num_programs):
        row, column = _corner(tile, row_tiles, column_tiles, block_rows, block_columns)
        # All heads of a tile are of one kind.
        is_rotated = column < num_qk_heads * HEAD_DIM
        weight_ptr = k_weight_ptr
        if column < num_heads * HEAD_DIM:
            weight_ptr = q_weight_ptr
        if has_norm:
            first_weight = gl.load(weight_ptr + columns).to(gl.float32)
            second_weight = gl.load(weight_ptr + half + columns).to(gl.float32)
        mbarrier.wait(staged, turn)
        for part in gl.static_range(block_rows // rows_at_once):
            at = row + part * rows_at_once + rows
            inside = at < num_rows
            position = gl.load(positions_ptr + at, mask=inside, other=0).to(gl.int64)
            angles = position[:, None] * half + columns[None, :]
            cos = gl.load(cos_ptr + angles, mask=is_rotated, other=1.0)
            sin = gl.load(sin_ptr + angles, mask=is_rotated, other=0.0)
            for head in gl.static_range(heads_a_tile):
                heads = product.slice(part * rows_at_once, rows_at_once, 0)
                first = heads.slice(head * HEAD_DIM, half, 1).load(layout).to(gl.float32)
                second = heads.slice(head * HEAD_DIM + half, half, 1).load(layout).to(gl.float32)
                if part == block_rows // rows_at_once - 1 and head == heads_a_tile - 1:
                    mbarrier.arrive(drained)
                if has_norm:
                    squares = gl.sum(first * first + second * second, 1) / HEAD_DIM
                    scale = gl.where(is_rotated, gl.rsqrt(squares + eps), 1.0)[:, None]
                    first *= scale * gl.where(is_rotated, first_weight, 1.0)[None, :]
                    second *= scale * gl.where(is_rotated, second_weight, 1.0)[None, :]
                pointers = out_ptr + at.to(gl.int64)[:, None] * width + columns[None, :]
                pointers += column + head * HEAD_DIM
                rotated = first * cos - second * sin
                gl.store(pointers, rotated.to(product.dtype), mask=inside[:, None])
                rotated = second * cos + first * sin
                gl.store(pointers + half, rotated.to(product.dtype), mask=inside[:, None])
        turn ^= 1


@gluon.jit
def _make_stages(x_desc, weight_desc, stages: gl.constexpr):
    """Shared memory of the tiles and of the product, and their barriers."""
    block_rows: gl.constexpr = x_desc.block_type.shape[0]
    block_columns: gl.constexpr = weight_desc.block_type.shape[0]
    block_depth: gl.constexpr = x_desc.block_type.shape[1]
    dtype: gl.constexpr = x_desc.dtype
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([block_rows, block_columns], dtype)
    barrier: gl.constexpr = mbarrier.MBarrierLayout()
    x_stages = gl.allocate_shared_memory(dtype, [stages, block_rows, block_depth], x_desc.layout)
    weight_stages = gl.allocate_shared_memory(
        dtype, [stages, block_columns, block_depth], weight_desc.layout
    )
    product = gl.allocate_shared_memory(dtype, [block_rows, block_columns], layout)
    full = gl.allocate_shared_memory(gl.int64, [stages, 1], barrier)
    empty = gl.allocate_shared_memory(gl.int64, [stages, 1], barrier)
    staged = gl.allocate_shared_memory(gl.int64, [1], barrier)
    drained = gl.allocate_shared_memory(gl.int64, [1], barrier)
    for slot in gl.static_range(stages):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
    mbarrier.init(staged, count=1)
    mbarrier.init(drained, count=1)
    fence_async_shared()
    return x_stages, weight_stages, product, full, empty, staged, drained


@gluon.jit(do_not_specialize=["num_rows"])
def overlapped_gelu_kernel(
    x_desc,
    weight_desc,
    out_ptr,
    bias_ptr,
    num_rows,
    width: gl.constexpr,
    depth: gl.constexpr,
    num_programs: gl.constexpr,
    stages: gl.constexpr,
    epilogue_warps: gl.constexpr,
    epilogue_registers: gl.constexpr,
    load_registers: gl.constexpr,
    tanh: gl.constexpr,
):
    """out = GELU(x @ weight.T + bias), x [num_rows, depth], weight [width, depth]."""
    x_stages, weight_stages, product, full, empty, staged, drained = _make_stages(
        x_desc, weight_desc, stages
    )
    row_tiles = gl.cdiv(num_rows, x_stages.shape[1])
    column_tiles: gl.constexpr = width // weight_stages.shape[1]
    steps: gl.constexpr = depth // x_stages.shape[2]
    gl.warp_specialize(
        [
            (
                _multiply,
                (x_stages, weight_stages, product, full, empty, staged, drained, row_tiles,
                 column_tiles, steps, num_programs),
            ),
            (
                _activate,
                (product, staged, drained, out_ptr, bias_ptr, num_rows, row_tiles, column_tiles,
                 num_programs, tanh),
            ),
            (
                _load,
                (x_desc, weight_desc, x_stages, weight_stages, full, empty, row_tiles,
                 column_tiles, steps, num_programs),
            ),
        ],
        [epilogue_warps, 1],
        [epilogue_registers, load_registers],
    )  # fmt: skip


@gluon.jit(do_not_specialize=["num_rows"], do_not_specialize_on_alignment=["positions_ptr"])
def overlapped_rotation_kernel(
    x_desc,
    weight_desc,
    out_ptr,
    positions_ptr,
    q_weight_ptr,
    k_weight_ptr,
    cos_ptr,
    sin_ptr,
    eps,
    num_rows,
    width: gl.constexpr,
    depth: gl.constexpr,
    num_programs: gl.constexpr,
    stages: gl.constexpr,
    epilogue_warps: gl.constexpr,
    epilogue_registers: gl.constexpr,
    load_registers: gl.constexpr,
    num_heads: gl.constexpr,
    num_qk_heads: gl.constexpr,
    has_norm: gl.constexpr,
):
    """out = x @ weight.T with its query and key heads normed and rotated.

    `weight` [width, depth] holds heads of 128 rows: queries, then keys, then values.
    """
    x_stages, weight_stages, product, full, empty, staged, drained = _make_stages(
        x_desc, weight_desc, stages
    )
    row_tiles = gl.cdiv(num_rows, x_stages.shape[1])
    column_tiles: gl.constexpr = width // weight_stages.shape[1]
    steps: gl.constexpr = depth // x_stages.shape[2]
    gl.warp_specialize(
        [
            (
                _multiply,
                (x_stages, weight_stages, product, full, empty, staged, drained, row_tiles,
                 column_tiles, steps, num_programs),
            ),
            (
                _rotate,
                (product, staged, drained, out_ptr, positions_ptr, q_weight_ptr, k_weight_ptr,
                 cos_ptr, sin_ptr, eps, num_rows, row_tiles, column_tiles, num_programs,
                 num_heads, num_qk_heads, has_norm),
            ),
            (
                _load,
                (x_desc, weight_desc, x_stages, weight_stages, full, empty, row_tiles,
                 column_tiles, steps, num_programs),
            ),
        ],
        [epilogue_warps, 1],
        [epilogue_registers, load_registers],
    )  # fmt: skip
