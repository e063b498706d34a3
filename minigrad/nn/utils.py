"""What PyTorch has in torch.nn.utils: gradients within bounds."""

from ..optim.clip import clip_grad_norm_, clip_grad_value_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]
