"""Loops of training, as courses write them."""

import copy

from . import classes, network, normal


@network(normal(10, 4), classes(3, 10), second=False)
def epochs(torch, nn, F):
    # PyTorch keeps its clipping in torch.nn.utils, minigrad in minigrad.optim.
    clip_grad_norm_ = nn.utils.clip_grad_norm_ if hasattr(nn, "utils") else torch.optim.clip_grad_norm_

    def train_one_epoch(model, criterion, optimizer, inputs, labels):
        model.train()
        running_loss = 0.0
        for i in range(0, len(inputs), 4):
            x, y = inputs[i : i + 4], labels[i : i + 4]
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            running_loss += loss.item() * x.size(0)
        return running_loss / len(inputs)

    @torch.no_grad()
    def evaluate(model, inputs, labels):
        output = model.eval()(inputs)
        pred = output.argmax(dim=1)
        return F.cross_entropy(output, labels, reduction="sum").item(), pred.eq(labels.view_as(pred)).sum().item()

    def step(model, inputs, labels):
        inputs, model = inputs.detach(), model.to(inputs.device)
        criterion = nn.CrossEntropyLoss().to(inputs.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
        best_loss, history = float("inf"), []
        for _epoch in range(4):
            history.append(train_one_epoch(model, criterion, optimizer, inputs, labels.to(inputs.device)))
            val_loss, correct = evaluate(model, inputs, labels)
            scheduler.step()
            history += [val_loss, float(correct), scheduler.get_last_lr()[0]]
            if val_loss < best_loss:
                best_loss, best_model_wts = val_loss, copy.deepcopy(model.state_dict())
        model.load_state_dict(best_model_wts)
        return criterion(model(inputs), labels), torch.tensor(history, dtype=inputs.dtype)

    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 3)), step


@network(normal(10, 2), normal(10, 1), second=False)
def regression_from_scratch(torch, nn, F):
    """Without a layer or an optimiser: the model is there for the test alone."""

    def squared_loss(X, y, w, b):
        return (torch.matmul(X, w) + b - y) ** 2 / 2

    def sgd(params, lr, batch_size):
        with torch.no_grad():
            for param in params:
                param -= lr * param.grad / batch_size
                param.grad.zero_()

    def step(model, features, labels):
        w, b = torch.full((2, 1), 0.01, dtype=features.dtype), torch.zeros(1, dtype=features.dtype)
        params = [w.requires_grad_(), b.requires_grad_()]
        for _ in range(5):
            squared_loss(features.detach(), labels.detach(), *params).sum().backward()
            sgd(params, 0.3, len(features))
        return squared_loss(features, labels, *params).mean(), *params

    return nn.Identity(), step


@network(normal(12, 3), normal(12, 3), optimizer="Adam", lr=1e-3)
def frozen_layers(torch, nn, F):
    """Fine-tuning: some parameters held, the others in the optimiser, a hook on what lies between, norms counted."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    for name, param in model.named_parameters():
        if name.startswith("0."):
            param.requires_grad = False
    model[1].eval()
    for p in filter(lambda p: p.requires_grad, model.parameters()):
        nn.init.uniform_(p, -0.5, 0.5) if p.dim() > 1 else nn.init.zeros_(p)

    def step(model, x, y):
        seen = []
        handle = model[2].register_forward_hook(lambda module, inputs, output: seen.append(output))
        out = model(x)
        handle.remove()
        l2_reg = sum(p.pow(2.0).sum() for p in model.parameters() if p.requires_grad)
        count = torch.tensor(sum(p.numel() for p in model.parameters() if p.requires_grad))
        return nn.L1Loss()(out, y) + 1e-3 * l2_reg + 1e-2 * seen[0].abs().mean(), seen[0], count

    return model, step
