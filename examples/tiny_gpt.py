"""A small GPT that learns to write from 13 kB of text, character by character.

python examples/tiny_gpt.py [--steps 500] [--seed 0]

Prints what it writes before, during and after training, in about half a minute. The loss is in nats (natural
logarithms) a character. Who knows only how often each letter comes has 3.01; the GPT begins near ln 60 = 4.1, since it
knows nothing. A text this small is soon known by heart, so the last tenth is kept for the test: its loss falls to 2.2.
"""

import argparse
from pathlib import Path

import numpy as np

import minigrad
from minigrad import Tensor, nn, optim
from minigrad.nn import functional as F

# The United States Declaration of Independence (1776), and Abraham Lincoln's Gettysburg Address (1863) and Second
# Inaugural Address (1865), in the public domain.
TEXT = Path(__file__).parent / "data" / "speeches.txt"
CONTEXT = 64  # the characters that it sees


class TinyGPT(nn.Module):
    """Numbers of characters (N, L) -> scores of the character that follows each, (N, L, characters)."""

    def __init__(self, characters, width=64, heads=4, layers=2, dropout=0.0):
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, characters)
        for table in (self.characters, self.places):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, x):
        x = self.characters(x) + self.places(minigrad.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x, is_causal=True)  # a character sees itself and those before it
        return self.scores(self.norm(x))


def read(path=TEXT):
    """(the characters that occur, the text as their numbers)."""
    text = path.read_text(encoding="ascii")
    characters = sorted(set(text))
    return characters, np.array([characters.index(one) for one in text])


def batch(numbers, size, random):
    """Pieces of the text from places drawn at random, and the characters that follow: two (size, CONTEXT)."""
    at = random.integers(0, len(numbers) - CONTEXT, (size, 1)) + np.arange(CONTEXT + 1)
    return Tensor(numbers[at[:, :-1]]), Tensor(numbers[at[:, 1:]])


def loss_of(model, x, y):
    """Cross entropy of all characters of a batch."""
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def step(model, optimizer, x, y):
    """One update of the weights; the loss before it."""
    loss = loss_of(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def write(model, characters, count, random, begin="\n"):
    """The text that the model writes, each character drawn with the probability that it gives to it."""
    seen = [characters.index(one) for one in begin]
    model.eval()
    with minigrad.no_grad():
        for _ in range(count):
            scores = model(Tensor(np.array([seen[-CONTEXT:]])))[0, -1]
            p = F.softmax(scores.double(), 0).numpy()
            seen.append(random.choice(len(characters), p=p / p.sum()))
    model.train()
    return "".join(characters[one] for one in seen[len(begin) :])


def test_loss(model, numbers):
    """The loss on a text that was not learned from, in pieces of CONTEXT."""
    at = np.arange(0, len(numbers) - CONTEXT, CONTEXT)[:, None] + np.arange(CONTEXT + 1)
    model.eval()
    with minigrad.no_grad():
        loss = loss_of(model, Tensor(numbers[at[:, :-1]]), Tensor(numbers[at[:, 1:]])).item()
    model.train()
    return loss


def main(steps=500, seed=0):
    minigrad.manual_seed(seed)
    random = np.random.default_rng(seed)
    characters, numbers = read()
    learned, kept = np.split(numbers, [len(numbers) * 9 // 10])
    shares = np.bincount(numbers) / len(numbers)
    print(f"{len(numbers):,} characters, {len(characters)} different; entropy {-(shares * np.log(shares)).sum():.2f}")
    model = TinyGPT(len(characters))
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for number in range(1, steps + 1):
        loss = step(model, optimizer, *batch(learned, 16, random))
        schedule.step()
        if number in (1, steps) or number % 100 == 0:
            print(f"step {number}: loss {loss:.3f}, test loss {test_loss(model, kept):.3f}")
        if number in (1, steps // 2, steps):
            print(f"\n{write(model, characters, 150, random)}\n")
    return test_loss(model, kept)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A small GPT that learns to write.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
