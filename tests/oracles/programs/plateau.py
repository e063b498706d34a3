"""Regression with a Dataset from NumPy, weighted samples, a schedule that waits for a plateau, early stopping."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler


class Table(Dataset):
    def __init__(self, x, y):
        self.x = torch.from_numpy(x).float()
        self.y = torch.from_numpy(y).float().unsqueeze(1)

    def __len__(self):
        return self.x.shape[0]

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}


rng = np.random.default_rng(0)
x = rng.normal(size=(40, 3))
table = Table(x, x @ np.array([1.0, -2.0, 0.5]))
train = DataLoader(table, batch_size=10, sampler=SubsetRandomSampler(list(range(30))))
valid = DataLoader(table, batch_size=10, sampler=SubsetRandomSampler(list(range(30, 40))))
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.05, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="min", factor=0.5, patience=1)
criterion = torch.nn.MSELoss()
best, waited, result = float("inf"), 0, []
for epoch in range(6):
    net.train()
    for batch in train:
        opt.zero_grad()
        criterion(net(batch["x"]), batch["y"]).backward()
        opt.step()
    net.eval()
    with torch.inference_mode():
        loss = np.mean([criterion(net(b["x"]), b["y"]).item() for b in valid])
    sched.step(loss)
    result += [loss, opt.param_groups[0]["lr"]]
    if loss < best:
        best, waited = loss, 0
    else:
        waited += 1
        if waited > 3:
            break
