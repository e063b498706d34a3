"""Ways to learn: from pairs, from teachers, from equations, from few examples, on graphs and sets."""

from . import classes, evenly, network, normal
from .generative import grad


@network(normal(5, 1, 6, 6), normal(5, 1, 6, 6), classes(2, 5))
def siamese(torch, nn, F):
    def contrastive(output1, output2, label, margin=2.0):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean(
            (1 - label) * torch.pow(euclidean_distance, 2)
            + label * torch.pow(torch.clamp(margin - euclidean_distance, min=0.0), 2)
        )

    def step(model, a, b, label):
        output1, output2 = (model(x).view(5, -1) for x in (a, b))
        similarity = nn.CosineSimilarity(dim=1, eps=1e-6)(output1, output2)
        loss = contrastive(output1, output2, label.float().unsqueeze(1))
        return loss + F.cosine_similarity(output1, output2).sum(), similarity

    model = nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(1, 2, kernel_size=3), nn.ReLU(inplace=True), nn.BatchNorm2d(2)
    )
    return model, step


@network(normal(9, 4), classes(3, 9))
def metric_learning(torch, nn, F):
    """Hardest triplets of a batch."""

    def pdist(e):
        prod = torch.mm(e, e.t())
        norm = prod.diagonal().unsqueeze(1).expand_as(prod)
        return (norm + norm.t() - 2 * prod).clamp(min=1e-12).sqrt()

    def step(model, x, labels):
        embeddings = F.normalize(model(x), p=2, dim=1)
        dist = pdist(embeddings)
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        other = ~torch.eye(labels.size(0)).bool()
        hardest_positive = (dist * (same & other).float()).max(1, keepdim=True)[0]
        max_anchor_negative_dist, _ = dist.max(1, keepdim=True)
        hardest_negative, _ = (dist + max_anchor_negative_dist * same.float()).min(1, keepdim=True)
        loss = F.relu(hardest_positive - hardest_negative + 0.3).mean()
        soft = F.softplus(hardest_positive - hardest_negative).mean()
        triplet = F.triplet_margin_loss(embeddings[:3], embeddings[3:6], embeddings[6:], margin=1.0, p=2)
        return loss + soft + triplet, dist, hardest_negative

    return nn.Linear(4, 3), step


@network(normal(6, 4), classes(3, 6))
def knowledge_distillation(torch, nn, F):
    teacher = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    for param in teacher.parameters():
        param.requires_grad = False

    def step(model, x, labels, T=4.0, alpha=0.9):
        model["teacher"].eval()
        with torch.no_grad():
            teacher_scores = model["teacher"](x)
        scores = model["student"](x)
        distill = nn.KLDivLoss(reduction="batchmean")(
            F.log_softmax(scores / T, dim=1), F.softmax(teacher_scores / T, dim=1)
        )
        return distill * (T * T * 2.0 * alpha) + F.cross_entropy(scores, labels) * (1.0 - alpha), teacher_scores

    return nn.ModuleDict({"teacher": teacher, "student": nn.Linear(4, 3)}), step


@network(evenly(10, 1), evenly(10, 1), optimizer="Adam", lr=1e-3)
def physics_informed(torch, nn, F):
    """Burgers' equation."""

    def step(net, x, t):
        u = net(torch.cat([x, t], dim=1))
        u_t = grad(torch)(u, t, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_x = grad(torch)(u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_xx = grad(torch)(u_x, x, grad_outputs=torch.ones_like(u_x), retain_graph=True, create_graph=True)[0]
        f = u_t + u * u_x - (0.01 / torch.pi) * u_xx
        return torch.mean(f**2) + ((u + torch.sin(torch.pi * x)) ** 2).mean(), u_xx

    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), step


@network(normal(5, 1), normal(5, 1), normal(5, 1), normal(5, 1))
def meta_learning(torch, nn, F):
    """MAML: through a step of gradient descent."""

    def net(x, vars):
        return F.linear(F.silu(F.linear(x, vars[0], vars[1])), vars[2], vars[3])

    def step(model, x_spt, y_spt, x_qry, y_qry, update_lr=0.4):
        fast_weights = list(model.parameters())
        for _ in range(2):
            gradients = grad(torch)(F.mse_loss(net(x_spt, fast_weights), y_spt), fast_weights, create_graph=True)
            fast_weights = [p - update_lr * g for g, p in zip(gradients, fast_weights, strict=True)]
        return F.mse_loss(net(x_qry, fast_weights), y_qry), *fast_weights

    weights = [nn.init.xavier_uniform_(torch.empty(8, 1)), torch.zeros(8)]
    weights += [nn.init.xavier_uniform_(torch.empty(1, 8)), torch.zeros(1)]
    return nn.ParameterList([nn.Parameter(w) for w in weights]), step


@network(normal(6, 4), evenly(6, 6), classes(3, 6), lr=0.01, weight_decay=5e-4)
def graph_convolution(torch, nn, F):
    class GraphConvolution(nn.Module):
        def __init__(self, in_features, out_features, bias=True):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(in_features, out_features))
            self.bias = nn.Parameter(torch.zeros(out_features)) if bias else self.register_parameter("bias", None)
            nn.init.xavier_normal_(self.weight)

        def forward(self, input, adj):
            output = torch.matmul(adj, torch.mm(input, self.weight))
            return output if self.bias is None else output + self.bias

    def step(model, x, probabilities, labels):
        adj = (probabilities > 0.5).double() + torch.eye(6)
        adj = torch.max(adj, adj.T)
        deg_inv_sqrt = adj.sum(1).pow(-0.5)
        adj = deg_inv_sqrt[:, None] * adj * deg_inv_sqrt[None, :]
        output = F.log_softmax(model[1](F.relu(model[0](x, adj)), adj), dim=1)
        idx_train = torch.tensor([0, 2, 5])
        return F.nll_loss(output[idx_train], labels[idx_train]), output

    return nn.ModuleList([GraphConvolution(4, 5), GraphConvolution(5, 3, bias=False)]), step


@network(normal(2, 4, 3), classes(3, 2))
def capsules(torch, nn, F):
    def squash(input_tensor, dim=-1):
        squared_norm = (input_tensor**2).sum(dim, keepdim=True)
        return squared_norm * input_tensor / ((1.0 + squared_norm) * torch.sqrt(squared_norm))

    def digit_caps(x, W, num_routes=4, num_capsules=3):
        x = torch.stack([x] * num_capsules, dim=2).unsqueeze(4)
        u_hat = torch.matmul(torch.cat([W] * x.size(0), dim=0), x)
        b_ij = torch.zeros(1, num_routes, num_capsules, 1)
        for _ in range(2):
            c_ij = torch.cat([F.softmax(b_ij, dim=1)] * x.size(0), dim=0).unsqueeze(4)
            v_j = squash((c_ij * u_hat).sum(dim=1, keepdim=True), dim=-2)
            a_ij = torch.matmul(u_hat.transpose(3, 4), torch.cat([v_j] * num_routes, dim=1))
            b_ij = b_ij + a_ij.squeeze(4).mean(dim=0, keepdim=True)
        return v_j.squeeze(1)

    def step(model, x, labels):
        v_c = torch.sqrt((digit_caps(x, model[0]) ** 2).sum(dim=2)).squeeze(-1)
        left, right = F.relu(0.9 - v_c), F.relu(v_c - 0.1)
        onehot = torch.eye(3).index_select(dim=0, index=labels)
        return (onehot * left**2 + 0.5 * (1.0 - onehot) * right**2).sum(dim=1).mean(), v_c

    return nn.ParameterList([nn.Parameter(torch.randn(1, 4, 3, 5, 3))]), step


@network(normal(3, 5, 2), classes(6, 3), normal(3, 1))
def deep_sets(torch, nn, F):
    phi = nn.Sequential(nn.Linear(2, 8), nn.ELU(inplace=True), nn.Linear(8, 8))

    def step(model, x, lengths, y):
        mask = (torch.arange(x.shape[1])[None, :] < lengths[:, None]).unsqueeze(-1)
        h = model["phi"](x)
        total = (h * mask).sum(dim=1)
        mean = total / mask.sum(dim=1).clamp(min=1)
        most = h.masked_fill(~mask, -1e30).amax(dim=1) * (lengths > 0).unsqueeze(1)
        out = model["rho"](torch.cat([total, mean, most], dim=-1))
        return nn.HuberLoss(delta=0.5)(out, y), out

    return nn.ModuleDict({"phi": phi, "rho": nn.Linear(24, 1)}), step


@network(normal(4, 2), normal(4, 2))
def neural_ode(torch, nn, F):
    class ODEFunc(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 2))
            nn.init.normal_(self.net[0].weight, mean=0, std=0.1)
            nn.init.constant_(self.net[0].bias, val=0)

        def forward(self, t, y):
            return self.net(y**3) * torch.cos(t)

    def odeint(func, y0, t):
        solution = [y0]
        for t0, t1 in zip(t[:-1], t[1:], strict=True):
            solution.append(solution[-1] + (t1 - t0) * func(t0, solution[-1]))
        return torch.stack(solution)

    def step(func, y0, y1):
        pred_y = odeint(func, y0, torch.linspace(0.0, 1.0, 6))
        return torch.mean(torch.abs(pred_y[-1] - y1)), pred_y

    return ODEFunc(), step
