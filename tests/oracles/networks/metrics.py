"""Losses of detection and segmentation, accuracies, neighbours."""

from . import classes, evenly, network, normal


@network(normal(7, 4), classes(4, 7))
def focal_loss(torch, nn, F):
    def focal_loss(inputs, targets, gamma=2.0, alpha=0.25):
        ce = F.cross_entropy(inputs, targets, reduction="none")
        pt = torch.exp(-ce)
        return (alpha * (1 - pt) ** gamma * ce).mean()

    def sigmoid_focal_loss(inputs, targets, gamma=2):
        p = torch.sigmoid(inputs)
        ce_loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        p_t = p * targets + (1 - p) * (1 - targets)
        return (ce_loss * ((1 - p_t) ** gamma)).sum()

    def step(model, x, y):
        scores = model(x)
        return focal_loss(scores, y) + sigmoid_focal_loss(scores, F.one_hot(y, 4).to(scores.dtype)), scores

    return nn.Linear(4, 4), step


@network(normal(2, 3, 5, 5), classes(3, 2, 5, 5))
def dice_loss(torch, nn, F):
    def dice_loss(true, logits, eps=1e-7):
        true_1_hot = torch.eye(logits.shape[1])[true.squeeze(1)].permute(0, 3, 1, 2).float().to(logits.dtype)
        probas = F.softmax(logits, dim=1)
        dims = (0,) + tuple(range(2, true.dim() + 1))
        intersection = torch.sum(probas * true_1_hot, dims)
        cardinality = torch.sum(probas + true_1_hot, dims)
        cardinality = torch.where(cardinality == 0, intersection, cardinality)
        return 1 - (2.0 * intersection / (cardinality + eps)).mean()

    def iou(pred, label):
        intersection = ((label == 1) & (pred == 1)).sum()
        union = ((label == 1) | (pred == 1)).sum()
        return intersection.float() / union if union > 0 else torch.zeros(())

    def step(model, x, y):
        logits = model(x)
        return dice_loss(y.view(2, 5, 5), logits), iou(logits.argmax(1), y)

    return nn.Conv2d(3, 3, 1), step


@network(normal(8, 3), classes(4, 8), normal(5, 3))
def nearest_neighbours(torch, nn, F):
    def step(model, train, labels, queries, k=3):
        distance = ((queries[:, None, :] - train[None, :, :]) ** 2).sum(-1).sqrt()
        values, indices = distance.topk(k, largest=False)
        votes = F.one_hot(labels[indices], num_classes=4).sum(dim=1)
        order = torch.argsort(distance, dim=1)
        return distance.mean(), values, indices, votes.argmax(1), order, torch.sort(distance, descending=True)[0]

    return nn.Identity(), step


@network(normal(12, 5), classes(5, 12))
def accuracies(torch, nn, F):
    def accuracy(output, target, topk=(1,)):
        with torch.no_grad():
            _, pred = output.topk(max(topk), 1, True, True)
            pred = pred.t()
            correct = pred.eq(target.view(1, -1).expand_as(pred))
            return [correct[:k].reshape(-1).float().sum(0, keepdim=True) * (100.0 / target.size(0)) for k in topk]

    def step(model, x, y):
        output = model(x)
        pred = output.argmax(1)
        confusion = F.one_hot(y, 5).t() @ F.one_hot(pred, 5)
        counts = torch.zeros(5, 5, dtype=torch.int64)
        for t, p in zip(y.view(-1), pred.view(-1), strict=True):
            counts[t.long(), p.long()] += 1
        precision = confusion.diagonal() / confusion.sum(0).clamp(min=1)
        total = y.new_ones(1) * ((pred == y).sum().item() / len(y))
        return F.cross_entropy(output, y), *accuracy(output, y, (1, 3)), confusion, counts, precision, total

    return nn.Linear(5, 5), step


@network(evenly(4, 3, 4), evenly(4, 3))
def ranking(torch, nn, F):
    """Attention pooling, margins between scores, and standard scores."""
    model = nn.ParameterList([nn.Parameter(torch.ones(4) / 4), nn.Parameter(torch.tensor(0.5))])

    def step(model, x, relevance):
        query, temperature = model
        scores = torch.matmul(x, query) / temperature.clamp(min=0.1)
        pooled = torch.sum(torch.softmax(scores, dim=1).unsqueeze(-1) * x, dim=1)
        standard = (scores - scores.mean(dim=1, keepdim=True)) / (scores.std(dim=1, keepdim=True) + 1e-5)
        margins = (scores.unsqueeze(2) - scores.unsqueeze(1))[:, *torch.triu(torch.ones(3, 3), 1).nonzero().unbind(1)]
        log_likelihood = torch.cumsum(F.log_softmax(scores, dim=1), dim=1)
        listwise = -(F.softmax(relevance, dim=1) * F.log_softmax(scores, dim=1)).sum(1).mean()
        return listwise + F.relu(1 - margins).mean() + standard.var() + pooled.prod(1).sum(), log_likelihood

    return model, step
