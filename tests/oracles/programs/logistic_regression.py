"""Logistic regression with a loader; accuracy by torch.max of .data; the model is saved at the end."""

import os
import tempfile

import torch
import torch.nn as nn

input_size, num_classes, num_epochs, batch_size, learning_rate = 20, 3, 3, 16, 0.1
features = torch.randn(64, input_size)
labels = torch.randint(0, num_classes, (64,))
train_dataset = torch.utils.data.TensorDataset(features, labels)
train_loader = torch.utils.data.DataLoader(dataset=train_dataset, batch_size=batch_size, shuffle=True)

model = nn.Linear(input_size, num_classes)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
total_step = len(train_loader)
result = [total_step]
for epoch in range(num_epochs):
    for i, (images, labels) in enumerate(train_loader):
        images = images.reshape(-1, input_size)
        outputs = model(images)
        loss = criterion(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    result.append(loss.item())

with torch.no_grad():
    correct, total = 0, 0
    for images, labels in train_loader:
        outputs = model(images)
        _, predicted = torch.max(outputs.data, 1)
        total += labels.size(0)
        correct += (predicted == labels).sum()
    result.append(100 * correct / total)

path = os.path.join(tempfile.mkdtemp(), "model.ckpt")
torch.save(model.state_dict(), path)
again = nn.Linear(input_size, num_classes)
again.load_state_dict(torch.load(path))
result.append(torch.allclose(again(features), model(features)))
