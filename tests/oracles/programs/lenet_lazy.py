"""LeNet of layers that find the sizes of their inputs themselves, with weights set by apply after a first pass."""

import torch
from torch import nn


def init_cnn(module):
    if type(module) == nn.Linear or type(module) == nn.Conv2d:
        nn.init.xavier_uniform_(module.weight)


class LeNet(nn.Module):
    def __init__(self, lr=0.1, num_classes=10):
        super().__init__()
        self.net = nn.Sequential(
            nn.LazyConv2d(6, kernel_size=5, padding=2), nn.Sigmoid(),
            nn.AvgPool2d(kernel_size=2, stride=2),
            nn.LazyConv2d(16, kernel_size=5), nn.Sigmoid(),
            nn.AvgPool2d(kernel_size=2, stride=2),
            nn.Flatten(),
            nn.LazyLinear(120), nn.LazyBatchNorm1d(), nn.Sigmoid(),
            nn.LazyLinear(num_classes))  # fmt: skip

    def forward(self, X):
        return self.net(X)


model = LeNet()
X, y = torch.rand(8, 1, 16, 16), torch.randint(10, size=(8,))
model(X)
model.apply(init_cnn)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
result = []
for _ in range(3):
    loss = nn.functional.cross_entropy(model(X), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(float(loss))
