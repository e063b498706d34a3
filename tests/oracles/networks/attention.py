"""Attention and transformers by hand."""

import math

from . import classes, network, normal


@network(normal(2, 5, 8))
def multi_head_attention(torch, nn, F):
    """Of the annotated transformer: equal layers in a list, heads by view and transpose, a mask of numbers."""

    class MultiHeadedAttention(nn.Module):
        def __init__(self, h, d_model):
            super().__init__()
            self.d_k, self.h = d_model // h, h
            self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
            self.attn = None

        def forward(self, query, key, value, mask):
            nbatches = query.size(0)
            query, key, value = (
                lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
                for lin, x in zip(self.linears, (query, key, value), strict=False)
            )
            scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
            self.attn = F.softmax(scores.masked_fill(mask == 0, -1e9), dim=-1)
            x = torch.matmul(self.attn, value).transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
            return self.linears[-1](x)

    def step(model, x):
        subsequent_mask = torch.triu(torch.ones(1, 5, 5), diagonal=1).to(torch.uint8) == 0
        out = model(x, x, x, subsequent_mask.unsqueeze(1))
        return out.std(dim=-1).sum(), out, model.attn

    return MultiHeadedAttention(2, 8), step


@network(normal(2, 5, 8), normal(2, 5, 8))
def vision_transformer(torch, nn, F):
    """A table of places in a buffer; query, key and value of one map, and products by einsum."""

    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, max_len=10):
            super().__init__()
            position = torch.arange(max_len).unsqueeze(1)
            div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
            pe = torch.zeros(max_len, d_model)
            pe[:, 0::2] = torch.sin(position * div_term)
            pe[:, 1::2] = torch.cos(position * div_term)
            self.register_buffer("pe", pe.unsqueeze(0))

        def forward(self, x):
            return x + self.pe[:, : x.size(1)].requires_grad_(False)

    class Attention(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads, self.scale = heads, (dim // heads) ** -0.5
            self.norm, self.proj = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, dim)
            self.qkv = nn.Linear(dim, dim * 3, bias=False)

        def forward(self, x):
            B, N, C = x.shape
            qkv = self.qkv(self.norm(x)).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
            q, k, v = qkv[0], qkv[1], qkv[2]
            attn = (torch.einsum("bhid,bhjd->bhij", q, k) * self.scale).softmax(dim=-1)
            return x + self.proj(torch.einsum("bhij,bhjd->bihd", attn, v).reshape(B, N, C))

    def step(model, x, y):
        out = model(x)
        return F.mse_loss(out, y), out

    return nn.Sequential(PositionalEncoding(8), Attention(8, 2)), step


@network(classes(13, 2, 6), classes(13, 2, 6), optimizer="AdamW", lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
def gpt(torch, nn, F):
    class Block(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            self.n_head, self.n_embd = n_head, n_embd
            self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd, bias=False)
            self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
            mask = torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)
            self.register_buffer("bias", mask)
            self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU("tanh"), nn.Linear(4 * n_embd, n_embd))

        def attn(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = F.softmax(att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf")), dim=-1)
            return self.c_proj((att @ v).transpose(1, 2).contiguous().view(B, T, C))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, vocab_size=13, block_size=8, n_embd=8, n_head=2):
            super().__init__()
            self.transformer = nn.ModuleDict(
                dict(
                    wte=nn.Embedding(vocab_size, n_embd),
                    wpe=nn.Embedding(block_size, n_embd),
                    h=nn.ModuleList([Block(n_embd, n_head, block_size) for _ in range(2)]),
                    ln_f=nn.LayerNorm(n_embd),
                )
            )
            self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
            self.transformer.wte.weight = self.lm_head.weight

        def forward(self, idx, targets=None):
            pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
            x = self.transformer.wte(idx) + self.transformer.wpe(pos)
            for block in self.transformer.h:
                x = block(x)
            x = self.transformer.ln_f(x)
            if targets is None:
                return self.lm_head(x[:, [-1], :]), None
            logits = self.lm_head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

        @torch.no_grad()
        def generate(self, idx, new_tokens):
            for _ in range(new_tokens):
                logits, _ = self(idx)
                logits = logits[:, -1, :] / 0.8
                v, _ = torch.topk(logits, min(5, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("inf")
                _, idx_next = torch.topk(F.softmax(logits, dim=-1), k=1, dim=-1)
                idx = torch.cat((idx, idx_next), dim=1)
            return idx

    def step(model, x, y):
        logits, loss = model(x, y)
        return loss, logits, model.generate(x[:, :3], 2)

    return GPT(), step
