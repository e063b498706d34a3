"""The first tutorial: a Dataset of one's own, loops over a loader, save, load, and a prediction by name."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Points(Dataset):
    def __init__(self, count):
        self.points = torch.rand(count, 1, 4, 4)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, idx):
        return self.points[idx], int(self.points[idx].sum() > 8)


training_data, test_data = random_split(Points(40), [32, 8])
train_dataloader = DataLoader(training_data, batch_size=8)
test_dataloader = DataLoader(test_data, batch_size=8)
for X, y in test_dataloader:
    result = [X.shape[0], X.shape[1], y.dtype == torch.int64]
    break
device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(nn.Linear(4 * 4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        x = self.flatten(x)
        logits = self.linear_relu_stack(x)
        return logits


model = NeuralNetwork().to(device)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)


def train(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)
        pred = model(X)
        loss = loss_fn(pred, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch % 2 == 0:
            loss, current = loss.item(), (batch + 1) * len(X)
            result.extend([loss, current / size])


def test(dataloader, model, loss_fn):
    num_batches = len(dataloader)
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            X, y = X.to(device), y.to(device)
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(torch.float).sum().item()
    result.extend([test_loss / num_batches, correct])


for _ in range(2):
    train(train_dataloader, model, loss_fn, optimizer)
    test(test_dataloader, model, loss_fn)
path = os.path.join(tempfile.mkdtemp(), "model.pth")
torch.save(model.state_dict(), path)
model = NeuralNetwork().to(device)
model.load_state_dict(torch.load(path, weights_only=True))
model.eval()
x, y = test_data[0][0], test_data[0][1]
with torch.no_grad():
    x = x.to(device)
    pred = model(x.unsqueeze(0))
    predicted, actual = ["small", "large"][pred[0].argmax(0)], ["small", "large"][y]
    result.append(predicted == actual)
