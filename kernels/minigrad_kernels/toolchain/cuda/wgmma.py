"""wgmma, a product by four warps of operands in shared memory.

Source  NVIDIA, "Parallel Thread Execution ISA", Asynchronous Warpgroup Level Matrix Instructions
"""

from llvmlite import ir

from .intrinsics import LLVM, LONG, f32, intrinsic, types, u64


def make_wgmma(columns):
    """An intrinsic (sums, a, b): adds the product of 64 rows, 16 steps of k and so many columns, of type bf16.

    sums: a local array of columns / 2 floats; a, b: descriptors of operands in shared memory, 64-bit integers, both
    along k. It goes on while the threads do: see wgmma_commit and wgmma_wait.
    """
    count = columns // 2
    sums, last = ",".join(f"${i}" for i in range(count)), 2 * count
    shape = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16"
    text = f"{shape} {{{sums}}}, ${last}, ${last + 1}, p, 1, 1, 0, 0;"
    text = f"{{ .reg .pred p; setp.eq.u32 p, 1, 1; {text} }}"  # p: add to the sums
    letters = ",".join(["=f"] * count + [str(i) for i in range(count)] + ["l", "l", "~{memory}"])
    single = LLVM[f32]
    takes = ir.FunctionType(ir.LiteralStructType([single] * count), [single] * count + [LONG, LONG])
    code = ir.InlineAsm(takes, text, letters, side_effect=True)

    def wgmma(typing_context, sums, a, b):
        def generate(context, builder, signature, values):
            first = context.make_array(signature.args[0])(context, builder, value=values[0]).data
            places = [builder.gep(first, [LONG(i)]) for i in range(count)]
            out = builder.call(code, [*(builder.load(place) for place in places), *values[1:]])
            for i, place in enumerate(places):
                builder.store(builder.extract_value(out, i), place)
            return context.get_dummy_value()

        return types.void(sums, u64, u64), generate

    made = intrinsic(wgmma)
    made.source = repr((text, letters))  # for the keys of the kernels that use it
    return made
