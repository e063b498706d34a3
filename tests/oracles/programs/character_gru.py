"""A GRU over characters: embeddings, states carried on and detached, gradients clipped, text sampled by softmax."""

import torch
import torch.nn as nn

text = "to be or not to be that is the question whether "
chars = sorted(set(text))
encode = {ch: i for i, ch in enumerate(chars)}
ids = torch.tensor([encode[ch] for ch in text], dtype=torch.long).view(2, -1)


class CharRNN(nn.Module):
    def __init__(self, vocab, embed=8, hidden=16):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embed)
        self.gru = nn.GRU(embed, hidden, num_layers=2, batch_first=True, dropout=0.0)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, x, h=None):
        out, h = self.gru(self.embedding(x), h)
        return self.decoder(out.contiguous().view(-1, out.size(2))), h


model = CharRNN(len(chars))
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
result = []
h = None
for i in range(0, ids.size(1) - 8, 8):
    inputs, targets = ids[:, i : i + 8], ids[:, i + 1 : i + 9]
    if h is not None:
        h = h.detach()
    outputs, h = model(inputs, h)
    loss = criterion(outputs, targets.reshape(-1))
    model.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    result.append(loss.item())
with torch.no_grad():
    out, h = model(torch.tensor([[0]]))
    p = nn.functional.softmax(out / 0.8, dim=-1)
    index = torch.multinomial(p, 1)[0].item()
    result.append(0 <= index < len(chars))
