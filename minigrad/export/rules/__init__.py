"""What each primitive becomes: {primitive: rule}.

A rule is called as rule(graph, results, *arguments): the arguments of the primitive, a Value for each Tensor and plain
ones for the rest, in which a Size stands for what follows the batch; results has a Value without a name for each
output. It adds nodes and returns the name of the result, or names, of which the last may be missing.
"""

from . import arrange, elementwise, layers, losses, reductions
from .table import RULES

__all__ = ["RULES", "arrange", "elementwise", "layers", "losses", "reductions"]
