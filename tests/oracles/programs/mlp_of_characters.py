"""Embeddings, a hidden layer and batch norm by hand, trained on batches drawn by randint, with p.data += -lr * p.grad."""

import torch
import torch.nn.functional as F

vocab_size, block_size, n_embd, n_hidden = 12, 3, 4, 16
Xtr = torch.randint(0, vocab_size, (60, block_size))
Ytr = torch.randint(0, vocab_size, (60,))

g = torch.Generator().manual_seed(2147483647)
C = torch.randn((vocab_size, n_embd), generator=g)
W1 = torch.randn((n_embd * block_size, n_hidden), generator=g) * (5 / 3) / ((n_embd * block_size) ** 0.5)
W2 = torch.randn((n_hidden, vocab_size), generator=g) * 0.01
b2 = torch.randn(vocab_size, generator=g) * 0
bngain = torch.ones((1, n_hidden))
bnbias = torch.zeros((1, n_hidden))
bnmean_running = torch.zeros((1, n_hidden))
parameters = [C, W1, W2, b2, bngain, bnbias]
result = [sum(p.nelement() for p in parameters)]
for p in parameters:
    p.requires_grad = True

for i in range(10):
    ix = torch.randint(0, Xtr.shape[0], (16,), generator=g)
    Xb, Yb = Xtr[ix], Ytr[ix]
    emb = C[Xb]
    embcat = emb.view(emb.shape[0], -1)
    hpreact = embcat @ W1
    bnmeani = hpreact.mean(0, keepdim=True)
    bnstdi = hpreact.std(0, keepdim=True)
    hpreact = bngain * (hpreact - bnmeani) / bnstdi + bnbias
    with torch.no_grad():
        bnmean_running = 0.999 * bnmean_running + 0.001 * bnmeani
    h = torch.tanh(hpreact)
    logits = h @ W2 + b2
    loss = F.cross_entropy(logits, Yb)
    for p in parameters:
        p.grad = None
    loss.backward()
    lr = 0.1 if i < 5 else 0.01
    for p in parameters:
        p.data += -lr * p.grad
    result.append(loss.log10().item())
result.append(bnmean_running.abs().mean().item())
