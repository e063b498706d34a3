"""The names of the ops, which the launcher checks before it compiles anything."""

ONES = frozenset(
    "add_number mul_number div_number exp expm1 log log1p sqrt tanh sigmoid elu silu softplus gelu gelu_tanh".split()
)
TWOS = frozenset(
    "add sub mul div maximum minimum".split()
    + [f"{name}_grad" for name in "tanh sigmoid elu silu softplus gelu gelu_tanh".split()]
)
