"""A program as somebody who knows PyTorch types it runs, also where PyTorch is not installed to compare with."""

import minigrad as torch
import minigrad.nn as nn


def test_a_network_is_trained_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(42)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.linspace(-3, 3, 200).unsqueeze(1).to(device)
    y = torch.sin(x) + 0.1 * torch.randn_like(x)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.5)
    for _epoch in range(200):
        optimizer.zero_grad()
        loss = nn.MSELoss()(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    assert loss.item() < 0.05 and scheduler.get_last_lr() == [0.0025]
    torch.save(model.state_dict(), "net.pt")
    other = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    other.load_state_dict(torch.load("net.pt", map_location=device, weights_only=True))
    with torch.no_grad():
        assert torch.allclose(model(x), other(x))
