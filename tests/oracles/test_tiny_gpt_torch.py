"""The tiny GPT of the examples beside PyTorch's layers: the same weights and batches, the same losses."""

import numpy as np
import pytest

import minigrad
from minigrad import optim
from tests.examples.test_examples import example
from tests.oracles.beside_torch import torch

WIDTH, HEADS, LAYERS = 32, 4, 2


class Twin(torch.nn.Module):
    def __init__(self, characters, places):
        super().__init__()
        self.characters, self.places = torch.nn.Embedding(characters, WIDTH), torch.nn.Embedding(places, WIDTH)
        options = {"batch_first": True, "norm_first": True}
        blocks = (torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, **options) for _ in range(LAYERS))
        self.blocks = torch.nn.ModuleList(blocks)
        self.norm, self.scores = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, characters)

    def forward(self, x):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.characters(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x, mask, is_causal=True)
        return self.scores(self.norm(x))


@pytest.mark.deep
def test_twenty_steps_of_adam_have_the_same_losses():
    module, random = example("tiny_gpt"), np.random.default_rng(0)
    minigrad.manual_seed(0)
    characters, numbers = module.read()
    ours, theirs = module.TinyGPT(len(characters), WIDTH, HEADS, LAYERS), Twin(len(characters), module.CONTEXT)
    theirs.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in ours.state_dict().items()})
    optimizer, its = optim.Adam(ours.parameters(), lr=2e-3), torch.optim.Adam(theirs.parameters(), lr=2e-3)
    losses = []
    for _ in range(20):
        x, y = (one[:, :16] for one in module.batch(numbers, 8, random))
        scores = theirs(torch.from_numpy(x.numpy())).flatten(0, 1)
        wanted = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y.numpy()).flatten())
        its.zero_grad()
        wanted.backward()
        its.step()
        losses.append((module.step(ours, optimizer, x, y), wanted.item()))
    found, wanted = np.transpose(losses)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)
    assert found[-1] < found[0] - 0.5
