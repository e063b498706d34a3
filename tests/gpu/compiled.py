"""Training of whole networks as graphs beside PyTorch's compiler on the same GPU, in images a second."""

from .contenders import CONTENDERS, torch_compiled
from .networks import BATCHES, compared, lacking

BATCH, PRECISIONS = 64, ("float32", "bfloat16")


def run(found):
    found["rows"] = rows = []
    makers = {"minigrad, graph": CONTENDERS["minigrad, graph"], "torch compiled NHWC": torch_compiled("NHWC")}
    for name in BATCHES:
        for precision in PRECISIONS:
            rows.append(compared(makers, name, "train", BATCH, precision))
            print(f"  {rows[-1]}", flush=True)
    found["failed"] = any(lacking(row) for row in rows)
