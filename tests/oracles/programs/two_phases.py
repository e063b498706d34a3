"""Fine-tuning: loaders by phase, gradients switched by set_grad_enabled, the best weights kept by deepcopy."""

import copy

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler

data = {x: torch.utils.data.TensorDataset(torch.randn(16, 6), torch.randint(0, 2, (16,))) for x in ["train", "val"]}
dataloaders = {x: torch.utils.data.DataLoader(data[x], batch_size=4, shuffle=True) for x in ["train", "val"]}
dataset_sizes = {x: len(data[x]) for x in ["train", "val"]}
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))
for param in model[0].parameters():
    param.requires_grad = False
model[2] = nn.Linear(model[2].in_features, 2)
model = model.to(device)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
best_model_wts = copy.deepcopy(model.state_dict())
best_acc = 0.0
result = []
for epoch in range(2):
    for phase in ["train", "val"]:
        if phase == "train":
            model.train()
        else:
            model.eval()
        running_loss = 0.0
        running_corrects = 0
        for inputs, labels in dataloaders[phase]:
            inputs = inputs.to(device)
            labels = labels.to(device)
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                outputs = model(inputs)
                _, preds = torch.max(outputs, 1)
                loss = criterion(outputs, labels)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            running_loss += loss.item() * inputs.size(0)
            running_corrects += torch.sum(preds == labels.data)
        if phase == "train":
            scheduler.step()
        epoch_acc = running_corrects.double() / dataset_sizes[phase]
        result += [running_loss / dataset_sizes[phase], float(epoch_acc)]
        if phase == "val" and epoch_acc > best_acc:
            best_acc = epoch_acc
            best_model_wts = copy.deepcopy(model.state_dict())
model.load_state_dict(best_model_wts)
