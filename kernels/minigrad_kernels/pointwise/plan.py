"""The names of the ops, which the launcher checks before it compiles anything."""

ONES = frozenset(
    "add_number mul_number div_number abs neg exp expm1 log log1p sqrt tanh".split()
    + "sigmoid elu silu softplus gelu gelu_tanh limit".split()
)
TWOS = frozenset(
    "add sub mul div maximum minimum squared_error scaled_difference absolute_error absolute_error_grad".split()
    + "huber huber_grad logistic_loss logistic_loss_grad divergence limit_grad abs_grad".split()
    + [f"{name}_grad" for name in "tanh sigmoid elu silu softplus gelu gelu_tanh".split()]
)
