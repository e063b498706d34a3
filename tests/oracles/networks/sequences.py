"""Networks for sequences: recurrent cells by hand, words, convolutions over time."""

from . import classes, network, normal


@network(classes(11, 6), classes(11, 6), classes(11, 6, 4))
def word2vec(torch, nn, F):
    """Skip-grams with negative samples."""
    model = nn.ModuleList([nn.Embedding(11, 5), nn.Embedding(11, 5)])
    nn.init.uniform_(model[0].weight, -1, 1)

    def step(model, center, context, negatives):
        in_embed, out_embed = model
        v, u = in_embed(center), out_embed(context)
        pos = F.logsigmoid(torch.sum(v * u, dim=1))
        neg = F.logsigmoid(-torch.bmm(out_embed(negatives), v.unsqueeze(2)).squeeze(2)).sum(1)
        embeds = in_embed.weight.detach()
        norm = embeds / embeds.norm(dim=1, keepdim=True)
        return -(pos + neg).mean(), *torch.mm(norm, norm.t()).topk(3, dim=1)

    return model, step


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


@network(normal(2, 3, 16))
def causal_dilated_convolutions(torch, nn, F):
    class TemporalBlock(nn.Module):
        def __init__(self, n_inputs, n_outputs, kernel_size, dilation):
            super().__init__()
            self.chomp_size = (kernel_size - 1) * dilation
            self.conv = nn.Conv1d(n_inputs, n_outputs, kernel_size, padding=self.chomp_size, dilation=dilation)
            self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None

        def forward(self, x):
            out = F.gelu(self.conv(x)[:, :, : -self.chomp_size].contiguous())
            res = x if self.downsample is None else self.downsample(x)
            return F.relu(out + res)

    def step(model, x):
        y = model(x)
        return F.l1_loss(y[:, :, :-1], torch.roll(y, -1, 2)[..., :-1].detach()), y

    return nn.Sequential(*[TemporalBlock(3 if not i else 4, 4, 3, 2**i) for i in range(3)]), step
