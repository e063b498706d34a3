"""A bigram model of characters: one matrix, trained by hand with .data, sampled by multinomial with a Generator."""

import torch
import torch.nn.functional as F

words = ["emma", "olivia", "ava", "isabella", "sophia", "mia"]
chars = sorted(set("".join(words)))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi["."] = 0
itos = {i: s for s, i in stoi.items()}

xs, ys = [], []
for w in words:
    chs = ["."] + list(w) + ["."]
    for ch1, ch2 in zip(chs, chs[1:]):
        xs.append(stoi[ch1])
        ys.append(stoi[ch2])
xs = torch.tensor(xs)
ys = torch.tensor(ys)
num = xs.nelement()

g = torch.Generator().manual_seed(2147483647)
W = torch.randn((len(itos), len(itos)), generator=g, requires_grad=True)
result = [num]
for k in range(10):
    xenc = F.one_hot(xs, num_classes=len(itos)).float()
    logits = xenc @ W
    counts = logits.exp()
    probs = counts / counts.sum(1, keepdims=True)
    loss = -probs[torch.arange(num), ys].log().mean() + 0.01 * (W**2).mean()
    result.append(loss.item())
    W.grad = None
    loss.backward()
    W.data += -10 * W.grad

out, ix = [], 0
while len(out) < 20:
    xenc = F.one_hot(torch.tensor([ix]), num_classes=len(itos)).float()
    counts = (xenc @ W).exp()
    p = counts / counts.sum(1, keepdims=True)
    ix = torch.multinomial(p, num_samples=1, replacement=True, generator=g).item()
    out.append(itos[ix])
    if ix == 0:
        break
result.append(len(out) > 0)
