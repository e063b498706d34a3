"""Deep Q-learning: a replay memory of namedtuples, gather, a target network, clipping by value."""

import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_observations, 16)
        self.layer3 = nn.Linear(16, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        return self.layer3(x)


random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
memory = deque([], maxlen=100)
policy_net = DQN(4, 2).to(device)
target_net = DQN(4, 2).to(device)
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
target_net.load_state_dict(policy_net.state_dict())
for k in range(30):
    state = torch.tensor([random.random() for _ in range(4)], dtype=torch.float32, device=device).unsqueeze(0)
    following = None if k % 5 == 0 else state * 0.5
    action = torch.tensor([[random.randrange(2)]], device=device, dtype=torch.long)
    memory.append(Transition(state, action, following, torch.tensor([float(k % 3)], device=device)))
result = []
for step in range(5):
    batch = Transition(*zip(*random.sample(memory, 16)))
    non_final_mask = torch.tensor(
        tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=torch.bool
    )
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch = torch.cat(batch.state)
    action_batch = torch.cat(batch.action)
    reward_batch = torch.cat(batch.reward)
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(16, device=device)
    with torch.no_grad():
        next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected_state_action_values = (next_state_values * 0.99) + reward_batch
    criterion = nn.SmoothL1Loss()
    loss = criterion(state_action_values, expected_state_action_values.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    target_net_state_dict = target_net.state_dict()
    policy_net_state_dict = policy_net.state_dict()
    for key in policy_net_state_dict:
        target_net_state_dict[key] = policy_net_state_dict[key] * 0.005 + target_net_state_dict[key] * (1 - 0.005)
    target_net.load_state_dict(target_net_state_dict)
    result.append(loss.item())
