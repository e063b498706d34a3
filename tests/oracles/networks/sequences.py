"""Networks for sequences: recurrent cells by hand, words, convolutions over time."""

from . import classes, network, normal


@network(normal(3, 5, 4), classes(2, 3))
def recurrent(torch, nn, F):
    model = nn.ModuleDict({"i2h": nn.Linear(10, 6), "i2o": nn.Sequential(nn.Linear(10, 2), nn.LogSoftmax(dim=1))})

    def step(model, line, category):
        hidden = torch.zeros(line.size(0), 6)
        for i in range(line.size(1)):
            combined = torch.cat((line[:, i], hidden), 1)
            output, hidden = model["i2o"](combined), torch.tanh(model["i2h"](combined))
        return nn.NLLLoss()(output, category), output, hidden

    return model, step


@network(normal(5, 2, 3), normal(2, 2), optimizer="Adagrad", lr=1e-2, eps=1e-6)
def lstm(torch, nn, F):
    class LSTMCell(nn.Module):
        def __init__(self, input_size, hidden_size, bias=True):
            super().__init__()
            self.x2h = nn.Linear(input_size, 4 * hidden_size, bias=bias)
            self.h2h = nn.Linear(hidden_size, 4 * hidden_size, bias=bias)

        def forward(self, x, hidden):
            hx, cx = hidden
            gates = self.x2h(x) + self.h2h(hx)
            ingate, forgetgate, cellgate, outgate = gates.chunk(4, 1)
            ingate, forgetgate = torch.sigmoid(ingate), F.sigmoid(forgetgate + 1)
            cy = torch.mul(cx, forgetgate) + torch.mul(ingate, torch.tanh(cellgate))
            return torch.mul(outgate.sigmoid(), torch.tanh(cy)), cy

    def step(model, x, y):
        h0 = torch.zeros(x.size(1), 4, dtype=x.dtype).to(x.device)
        c0, outs = torch.zeros_like(h0).requires_grad_(), []
        for seq in range(x.size(0)):
            h0, c0 = model["lstm"](x[seq, :, :], (h0, c0))
            outs.append(h0)
        outs = torch.stack(outs, dim=0)
        return F.mse_loss(model["fc"](outs[-1].squeeze()), y), outs

    return nn.ModuleDict({"lstm": LSTMCell(3, 4), "fc": nn.Linear(4, 2)}), step


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
