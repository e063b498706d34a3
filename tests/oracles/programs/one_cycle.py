"""A fast training: OneCycleLR, label smoothing, parameter groups, mixed precision, gradients accumulated."""

import torch
import torch.nn as nn

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.compile(
    nn.Sequential(nn.Conv2d(3, 8, 3, padding="same"), nn.GELU(), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(512, 5))
)
decay = [p for n, p in model.named_parameters() if p.ndim > 1]
other = [p for n, p in model.named_parameters() if p.ndim <= 1]
groups = [dict(params=decay, weight_decay=0.05), dict(params=other, weight_decay=0.0)]
optimizer = torch.optim.AdamW(groups, lr=1e-2, fused=False)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=4, cycle_momentum=False)
scaler = torch.amp.GradScaler(device, enabled=False)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
x, y = torch.randn(8, 3, 8, 8, device=device), torch.randint(5, size=(8,), device=device)
result = []
for step in range(4):
    for micro in range(2):
        with torch.autocast(device_type=device, dtype=torch.bfloat16, enabled=False):
            loss = loss_fn(model(x[micro::2]), y[micro::2]) / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    scheduler.step()
    result += [loss.item(), scheduler.get_last_lr()[0]]
