"""The gradients of cross entropy from logarithms that are known, and losses added up. float32 and float64."""

from ..toolchain.cuda import cuda, i32, kernel, u32
from .cuda_parts import DOUBLE, IGNORED, NAN, SINGLE, THREADS, WRONG, place_of, record

__all__ = ["LOSS_GRAD", "LOSS_SUM"]


def _loss_grad(own):
    _, kind, real, exp, *_ = own
    arrays = f"{kind}* g, {kind}* divisor, {kind}* x, i64* target, i64 ignore_index, {kind}* logsumexp, {kind}* dx"

    @kernel(f"{arrays}, i64* wrong, i32 size, i32 classes, i32 each", threads=THREADS, variant=kind)
    def loss_grad(g, divisor, x, target, ignore_index, logsumexp, dx, wrong, size, classes, each):
        """Nothing joins the elements of a row, so threads own elements: x is read and dx written once; g, target and
        logsumexp are read for each element, nearly all from cache.

        each: whether g holds a weight for every row, and not one for all, over the divisor
        """
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if i < size:
            row = i32(u32(u32(i) // u32(classes)))
            column, place = i32(i - row * classes), place_of(target[row], ignore_index, classes)
            weight = g[row] if each else g[0] / divisor[0]
            weight = real(NAN) if place == WRONG else weight
            d = weight * (exp(x[i] - logsumexp[row]) - (real(1) if column == place else real(0)))
            dx[i] = real(0) if place == IGNORED else d  # in ignored rows whatever x is
            if place == WRONG and column == 0:
                record(wrong, row, target[row])

    return loss_grad


def _loss_sum(own):
    _, kind, real, *_ = own
    arrays = f"i64* target, i64 ignore_index, {kind}* losses, {kind}* out, {kind}* divisor"

    @kernel(f"{arrays}, i32 rows, i32 mean", threads=THREADS, variant=kind)
    def loss_sum(target, ignore_index, losses, out, divisor, rows, mean):
        """The only block reads losses and targets once: its threads take every 256th, their sums are joined pairwise.
        Of each addition a thread keeps what rounding took or gave, as Kahan does.

        It writes the sum and 1, or the mean and how many rows count.
        """
        total, lost, count = real(0), real(0), real(0)
        for n in range(i32(cuda.threadIdx.x), rows, THREADS):
            before, term = total, losses[n] - lost
            total += term
            rounded = (total - before) - term  # what the sum has too much: the next loss makes up for it
            lost = rounded if rounded == rounded else real(0)  # an infinite loss stays infinite
            count += real(0) if target[n] == ignore_index else real(1)
        sums, counts = cuda.shared.array(THREADS, real), cuda.shared.array(THREADS, real)
        thread, half = i32(cuda.threadIdx.x), i32(THREADS // 2)
        sums[thread], counts[thread] = total, count
        while half:
            cuda.syncthreads()
            if thread < half:
                sums[thread] += sums[i32(thread + half)]
                counts[thread] += counts[i32(thread + half)]
            half = i32(half >> 1)
        if thread == 0:
            over = counts[0] if mean else real(1)
            out[0] = sums[0] / over
            divisor[0] = over

    return loss_sum


LOSS_GRAD, LOSS_SUM = ({own.name: make(own) for own in (SINGLE, DOUBLE)} for make in (_loss_grad, _loss_sum))
