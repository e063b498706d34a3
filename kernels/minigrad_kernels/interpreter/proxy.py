"""What the asynchronous proxy does to shared memory: products of warpgroups read it, bulk copies write it.

Neither is ordered with what threads do but by waits: a warp waits for its products (wgmma.wait_group), and for the
phase of an mbarrier that copies complete. So each warp has a row of what it has seen: how many products of each warp of
its block are over, and how many phases of each mbarrier. A row spreads to others by bar.sync, and by an mbarrier: those
that wait for a phase take over the rows of those that arrived for it.

A product counts as reading all of both operands from its start until the wait of the warp; registers that it writes
are not watched until then. Reads by threads are not held against bulk copies that come later.
"""

import numpy as np

from .lanes import Lanes, Repeated
from .memory import READ, words_of

MOST = 64  # mbarriers of a block


class Proxy:
    """Products and bulk copies of a batch of blocks; `warpgroup` and `bulk` start what arrives here."""

    def __init__(self, machine, stride):
        """stride: bytes of shared memory of each block."""
        self.machine, self.geometry, self.words = machine, machine.geometry, stride // 4
        warps, own = self.geometry.warps, self.geometry.warps_per_block
        self.seen = np.zeros((warps, own + MOST), np.int32)
        self.fenced = np.zeros(warps, np.bool_)  # whether a warp has executed wgmma.fence
        self.begun = np.zeros(warps, np.int32)  # products
        self.groups = [[] for _ in range(warps)]  # of those, how many at each commit that nobody has waited for
        self.reads = {}  # by warp, for each word of its block: the number of the last product that reads it
        self.brought = np.zeros(self.words * self.geometry.blocks, np.int32)  # by word: the number of the bulk copy
        self.copies = [None]  # by number
        self.barriers = {}  # bulk.Barrier by their places
        self.maps = set()  # (lane, address) of tensor maps that a fence has acquired

    # ---- products ------------------------------------------------------------------------------------------------

    def read(self, instruction, warps, addresses, offsets):
        """Products of these warps read chunks of 16 bytes: (warps, chunks); gives whether all may be read."""
        shared, geometry, words = self.machine.shared, self.geometry, words_of(offsets.reshape(-1), 16)
        first = np.searchsorted(geometry.warp, warps)  # the first lane of each warp
        lanes, places = Repeated(Lanes(geometry, first), addresses.shape), addresses.reshape(-1)
        if shared.good(instruction, lanes, places, 16, READ) is not None:
            return False
        access = instruction, lanes, places, offsets.reshape(-1), 16, READ
        self.machine.copies.check(*access)
        self.check(*access)
        shared.check_written(*access[:5])
        unordered, unfenced = shared.races.before_proxy(shared.races.units(access[3], 16), lanes.index[:, None])
        for kind, bad, why in (
            ("shared race", unordered, "which another thread wrote, with no barrier between"),
            ("proxy fence", unfenced, "whose writer has executed no fence.proxy.async since"),
        ):
            shared.tell(kind, instruction, lanes, places, bad.any(axis=1), READ, f", {why}")
        self.begun[warps] += 1
        for warp, row in zip(warps.tolist(), words.reshape(len(warps), -1) % self.words, strict=True):
            self.reads.setdefault(warp, np.zeros(self.words, np.int32))[row] = self.begun[warp]
        return True

    def commit(self, warps):
        for warp in warps.tolist():
            self.groups[warp].append(self.begun[warp])

    def wait(self, warps, pending):
        """All but the last `pending` groups of products of these warps are over."""
        for warp in warps.tolist():
            groups = self.groups[warp]
            while len(groups) > pending:
                self.seen[warp, warp % self.geometry.warps_per_block] = groups.pop(0)

    # ---- order ---------------------------------------------------------------------------------------------------

    def join(self, lanes):
        """Lanes pass a barrier together: their warps tell each other what they have seen."""
        warps = np.unique(self.geometry.warp[lanes.at])
        block = warps // self.geometry.warps_per_block
        for here in np.unique(block):
            some = warps[block == here]
            self.seen[some] = self.seen[some].max(axis=0)

    def unseen(self, warps, words):
        """Which words bulk copies brought that their warps, along the first axis, have not waited for."""
        brought, bad = self.brought[words], np.zeros(words.shape, np.bool_)
        for number in np.unique(brought[brought > 0]).tolist():
            copy = self.copies[number]
            late = self.seen[warps, copy.column] < copy.phase
            bad |= (brought == number) & late.reshape(-1, *(1,) * (words.ndim - 1))
        return bad

    def still_read(self, warps, words):
        """For each row of words that a warp will write, whether a product may still read one of them."""
        found, own = np.zeros(len(warps), np.bool_), self.geometry.warps_per_block
        for reader, reads in self.reads.items():
            here = np.flatnonzero(warps // own == reader // own)
            if len(here):
                last = reads[words[here] % self.words].max(axis=1)
                found[here] |= last > self.seen[warps[here], reader % own]
        return found

    def check(self, instruction, lanes, addresses, offsets, size, access):
        """An access by threads."""
        words, warps = words_of(offsets, size), self.geometry.warp[lanes.at]
        held = np.zeros(0, np.bool_) if access == READ else self.still_read(warps, words)
        for kind, bad, why in (
            ("bulk wait", self.unseen(warps, words).any(axis=1), "whose mbarrier it has not waited for"),
            ("wgmma wait", held, "which a product may still read"),
        ):
            self.machine.shared.tell(kind, instruction, lanes, addresses, bad, access, f", {why}")
        if access != READ:
            self.brought[words] = 0

    def arrive(self, copy, barrier):
        """What a bulk copy brings is there: for those who wait for the phase of its mbarrier that is under way."""
        copy.phase, races = barrier.phases + 1, self.machine.shared.races
        self.machine.copies.arrive(copy.words)
        races.writers[2][races.units(copy.words * 4, 4)] = 0
        self.brought[copy.words] = copy.number
        barrier.missing -= copy.size
        barrier.settle()
