"""Two LSTM cells that go on with waves: a loop over time in float64, with predictions fed back."""

import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 9)
        self.lstm2 = nn.LSTMCell(9, 9)
        self.linear = nn.Linear(9, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 9, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 9, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 9, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 9, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        outputs = torch.cat(outputs, dim=1)
        return outputs


data = torch.sin(torch.arange(20).double()[None, :] / 3 + torch.arange(4)[:, None])
input, target = data[:, :-1], data[:, 1:]
seq = Sequence()
seq.double()
criterion = nn.MSELoss()
optimizer = optim.Adam(seq.parameters(), lr=0.05)
result = []
for i in range(3):
    optimizer.zero_grad()
    out = seq(input)
    loss = criterion(out, target)
    loss.backward()
    optimizer.step()
    result.append(loss.item())
with torch.no_grad():
    pred = seq(input, future=5)
    result.append(criterion(pred[:, :-5], target).item())
    result.append(pred.detach().numpy().shape[1])
