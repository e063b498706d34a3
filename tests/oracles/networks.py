"""Small networks and training snippets as PyTorch's users write them, each one source for both libraries.

A source is a function of torch, nn and F: PyTorch and its two modules, or minigrad and its two. It returns a model and
step(model, *inputs), which returns the loss, then whatever else is to be compared. tests/oracles/test_networks_torch.py
runs each source with both. Where a source cannot be PyTorch's word for word, a comment in it says so.
"""

import math

import numpy as np

__all__ = ["NETWORKS"]

rng = np.random.default_rng(0)
normal, evenly = (lambda *shape: rng.standard_normal(shape)), (lambda *shape: rng.random(shape))
classes = lambda count, *shape: rng.integers(count, size=shape)
NETWORKS = {}  # by name: the source, the arrays that its step takes, the optimiser that trains it and its options


def network(*inputs, optimizer="SGD", **options):
    """Register a source under its name."""

    def register(build):
        usual = {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-3} if optimizer == "SGD" else {}
        NETWORKS[build.__name__] = build, inputs, optimizer, options or usual
        return build

    return register


@network(normal(3, 3, 12, 12), classes(5, 3))
def resnet(torch, nn, F):
    class BasicBlock(nn.Module):
        expansion = 1

        def __init__(self, inplanes, planes, stride=1, downsample=None):
            super().__init__()
            self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.downsample = downsample

        def forward(self, x):
            identity = x
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            if self.downsample is not None:
                identity = self.downsample(x)
            out += identity
            return self.relu(out)

    class ResNet(nn.Module):
        def __init__(self, block, layers, num_classes=5):
            super().__init__()
            self.inplanes = 3
            self.layer1 = self._make_layer(block, 6, layers[0])
            self.layer2 = self._make_layer(block, 8, layers[1], stride=2)
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(8 * block.expansion, num_classes)

        def _make_layer(self, block, planes, blocks, stride=1):
            conv = nn.Conv2d(self.inplanes, planes * block.expansion, kernel_size=1, stride=stride, bias=False)
            downsample = nn.Sequential(conv, nn.BatchNorm2d(planes * block.expansion))
            layers = [block(self.inplanes, planes, stride, downsample)]
            self.inplanes = planes * block.expansion
            layers += [block(self.inplanes, planes) for _ in range(1, blocks)]
            return nn.Sequential(*layers)

        def forward(self, x):
            return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))

    def step(model, x, y):
        out = model(x)
        return F.cross_entropy(out, y), out

    return ResNet(BasicBlock, [1, 2]), step


@network(classes(13, 2, 6), classes(13, 2, 6), optimizer="AdamW", lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
def gpt(torch, nn, F):
    class Block(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            self.n_head, self.n_embd = n_head, n_embd
            self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd, bias=False)
            self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
            mask = torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)
            self.register_buffer("bias", mask)
            self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU("tanh"), nn.Linear(4 * n_embd, n_embd))

        def attn(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = F.softmax(att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf")), dim=-1)
            return self.c_proj((att @ v).transpose(1, 2).contiguous().view(B, T, C))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, vocab_size=13, block_size=8, n_embd=8, n_head=2):
            super().__init__()
            self.transformer = nn.ModuleDict(
                dict(
                    wte=nn.Embedding(vocab_size, n_embd),
                    wpe=nn.Embedding(block_size, n_embd),
                    h=nn.ModuleList([Block(n_embd, n_head, block_size) for _ in range(2)]),
                    ln_f=nn.LayerNorm(n_embd),
                )
            )
            self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
            self.transformer.wte.weight = self.lm_head.weight

        def forward(self, idx, targets=None):
            pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
            x = self.transformer.wte(idx) + self.transformer.wpe(pos)
            for block in self.transformer.h:
                x = block(x)
            x = self.transformer.ln_f(x)
            if targets is None:
                return self.lm_head(x[:, [-1], :]), None
            logits = self.lm_head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

        @torch.no_grad()
        def generate(self, idx, new_tokens):
            for _ in range(new_tokens):
                logits, _ = self(idx)
                logits = logits[:, -1, :] / 0.8
                v, _ = torch.topk(logits, min(5, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("inf")
                _, idx_next = torch.topk(F.softmax(logits, dim=-1), k=1, dim=-1)
                idx = torch.cat((idx, idx_next), dim=1)
            return idx

    def step(model, x, y):
        logits, loss = model(x, y)
        return loss, logits, model.generate(x[:, :3], 2)

    return GPT(), step


@network(normal(4, 2, 6, 6), normal(4, 2, 6, 6), evenly(4, 1, 1, 1), optimizer="Adam", lr=1e-3, betas=(0.0, 0.9))
def wgan_gp(torch, nn, F):
    # GroupNorm for InstanceNorm2d(4, affine=True), whose third derivatives PyTorch gets wrong
    first = nn.Conv2d(2, 4, 3, 2, 1), nn.GroupNorm(4, 4), nn.LeakyReLU(0.2)
    model = nn.Sequential(*first, nn.Flatten(), nn.Linear(36, 8), nn.Softplus(), nn.Linear(8, 1))

    def compute_gradient_penalty(D, real_samples, fake_samples, alpha):
        interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
        d = D(interpolates)
        options = {"grad_outputs": torch.ones_like(d), "create_graph": True, "retain_graph": True, "only_inputs": True}
        gradients = torch.autograd.grad(outputs=d, inputs=interpolates, **options)[0]
        gradients = gradients.view(gradients.size(0), -1)
        return ((gradients.norm(2, dim=1) - 1) ** 2).mean()

    def step(D, real, fake, alpha):
        gradient_penalty = compute_gradient_penalty(D, real.detach(), fake.detach(), alpha.detach())
        d_loss = -torch.mean(D(real)) + torch.mean(D(fake)) + 10 * gradient_penalty
        return d_loss, gradient_penalty

    return model, step


@network(normal(9, 1), normal(9, 1))
def mixture_density(torch, nn, F):
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 15), nn.Unflatten(1, (3, 5)))

    def step(model, x, y):
        z_pi, z_sigma, mu = model(x).unbind(1)
        log_pi, sigma = F.log_softmax(z_pi, -1), F.elu(z_sigma) + 1 + 1e-6
        log_prob = -0.5 * ((y.expand_as(mu) - mu) / sigma) ** 2 - torch.log(sigma) - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(log_pi + log_prob, dim=1).mean(), log_prob

    return model, step


@network(evenly(2, 1, 6, 6), classes(4, 2, 6, 6))
def pixel_cnn(torch, nn, F):
    class MaskedConv2d(nn.Conv2d):
        def __init__(self, mask_type, *args, **kwargs):
            super().__init__(*args, **kwargs)
            assert mask_type in ("A", "B")
            self.register_buffer("mask", self.weight.data.clone())
            _, _, kH, kW = self.weight.size()
            self.mask.fill_(1)
            self.mask[:, :, kH // 2, kW // 2 + (mask_type == "B") :] = 0
            self.mask[:, :, kH // 2 + 1 :] = 0

        def forward(self, x):  # self.weight.data *= self.mask would be noticed where two calls come before backward
            weight = self.weight * self.mask
            return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    first, second = MaskedConv2d("A", 1, 6, 5, 1, 2, bias=False), MaskedConv2d("B", 6, 4, 3, 1, 1)

    def step(model, x, target):
        out = model(x)
        return F.cross_entropy(out, target), out

    return nn.Sequential(first, nn.BatchNorm2d(6), nn.ReLU(True), second), step


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


@network(evenly(10, 1), evenly(10, 1), optimizer="Adam", lr=1e-3)
def physics_informed(torch, nn, F):
    """Burgers' equation."""

    def step(net, x, t):
        u = net(torch.cat([x, t], dim=1))
        u_t = torch.autograd.grad(u, t, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_x = torch.autograd.grad(u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, grad_outputs=torch.ones_like(u_x), retain_graph=True, create_graph=True)[0]
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
            gradients = torch.autograd.grad(
                F.mse_loss(net(x_spt, fast_weights), y_spt), fast_weights, create_graph=True
            )
            fast_weights = [p - update_lr * g for g, p in zip(gradients, fast_weights, strict=True)]
        return F.mse_loss(net(x_qry, fast_weights), y_qry), *fast_weights

    weights = [nn.init.xavier_uniform_(torch.empty(8, 1)), torch.zeros(8)]
    weights += [nn.init.xavier_uniform_(torch.empty(1, 8)), torch.zeros(1)]
    return nn.ParameterList([nn.Parameter(w) for w in weights]), step


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


@network(classes(9, 3, 7), classes(2, 3))
def text_cnn(torch, nn, F):
    class TextCNN(nn.Module):
        def __init__(self, V=9, D=4, C=2, Co=3, Ks=(2, 3, 4)):
            super().__init__()
            self.embed = nn.Embedding(V, D, padding_idx=0)
            self.convs = nn.ModuleList([nn.Conv1d(D, Co, K, padding=1) for K in Ks])
            self.dropout = nn.Dropout(0.0)
            self.fc1 = nn.Linear(len(Ks) * Co, C)

        def forward(self, x):
            x = self.embed(x).permute(0, 2, 1)
            x = [F.relu(conv(x)) for conv in self.convs]
            x = [F.max_pool1d(i, i.size(2)).squeeze(2) for i in x]
            first, _ = x[0].max(dim=1)
            return self.fc1(self.dropout(torch.cat(x, 1))), first

    def step(model, text, target):
        logit, first = model(text)
        return F.cross_entropy(logit, target) + first.mean(), logit

    return TextCNN(), step
