"""Networks that make images or densities: autoencoders, adversaries, flows, mixtures."""

import math

from . import classes, evenly, network, normal


def grad(torch):
    """PyTorch's torch.autograd.grad is minigrad.grad here."""
    return torch.autograd.grad if hasattr(torch, "autograd") else torch.grad


@network(normal(3, 7, 1, 1), normal(3, 3, 8, 8), optimizer="Adam", lr=2e-4, betas=(0.5, 0.999), eps=1e-3)
def dcgan(torch, nn, F):
    def weights_init(m):
        classname = m.__class__.__name__
        if classname.find("Conv") != -1:
            m.weight.data.normal_(0.0, 0.1)
        elif classname.find("BatchNorm") != -1:
            nn.init.normal_(m.weight.data, 1.0, 0.1)
            m.bias.data.fill_(0)

    generator = nn.Sequential(
        nn.ConvTranspose2d(7, 8, 4, 1, 0, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    discriminator = nn.Sequential(
        nn.Conv2d(3, 4, 4, 2, 1, bias=False),
        nn.BatchNorm2d(4),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4, 1, 4, 1, 0, bias=False),
    )
    model = nn.ModuleDict({"G": generator.apply(weights_init), "D": discriminator.apply(weights_init)})
    criterion = nn.BCEWithLogitsLoss()

    def step(model, noise, real):
        netG, netD = model["G"], model["D"]
        label = torch.full((real.size(0),), 1.0, dtype=real.dtype, device=real.device)
        output, fake = netD(real).view(-1), netG(noise)
        errD_real = criterion(output, label)
        errD_fake = criterion(netD(fake.detach()).view(-1), torch.zeros_like(label))
        errG = criterion(netD(fake).view(-1), label)
        return errD_real + errD_fake + errG, fake, torch.sigmoid(output), errG

    return model, step


@network(normal(4, 2, 6, 6), normal(4, 2, 6, 6), evenly(4, 1, 1, 1), optimizer="Adam", lr=1e-3, betas=(0.0, 0.9))
def wgan_gp(torch, nn, F):
    # GroupNorm for InstanceNorm2d(4, affine=True), whose third derivatives PyTorch gets wrong
    first = nn.Conv2d(2, 4, 3, 2, 1), nn.GroupNorm(4, 4), nn.LeakyReLU(0.2)
    model = nn.Sequential(*first, nn.Flatten(), nn.Linear(36, 8), nn.Softplus(), nn.Linear(8, 1))

    def compute_gradient_penalty(D, real_samples, fake_samples, alpha):
        interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
        d = D(interpolates)
        # only_inputs=True, deprecated and PyTorch's default, is left out
        options = {"grad_outputs": torch.ones_like(d), "create_graph": True, "retain_graph": True}
        gradients = grad(torch)(outputs=d, inputs=interpolates, **options)[0]
        gradients = gradients.view(gradients.size(0), -1)
        return ((gradients.norm(2, dim=1) - 1) ** 2).mean()

    def step(D, real, fake, alpha):
        gradient_penalty = compute_gradient_penalty(D, real.detach(), fake.detach(), alpha.detach())
        d_loss = -torch.mean(D(real)) + torch.mean(D(fake)) + 10 * gradient_penalty
        return d_loss, gradient_penalty

    return model, step


@network(normal(9, 1), normal(9, 1))
def mixture_density(torch, nn, F):
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 15), nn.Unflatten(1, (3, 5)))

    def step(model, x, y):
        z_pi, z_sigma, mu = model(x).unbind(1)
        log_pi, sigma = F.log_softmax(z_pi, -1), F.elu(z_sigma) + 1 + 1e-6
        log_prob = -0.5 * ((y.expand_as(mu) - mu) / sigma) ** 2 - torch.log(sigma) - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(log_pi + log_prob, dim=1).mean(), log_prob

    return model, step


@network(normal(6, 4), optimizer="AdamW", lr=1e-3)
def coupling_flow(torch, nn, F):
    class AffineCoupling(nn.Module):
        def __init__(self, dim, hidden):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(dim // 2, hidden), nn.SiLU(), nn.Linear(hidden, dim))
            self.log_scale = nn.Parameter(torch.zeros(1, dim // 2))

        def forward(self, x):
            x_a, x_b = x.chunk(2, dim=-1)
            log_s, t = self.net(x_a).chunk(2, dim=-1)
            log_s = torch.tanh(log_s) * self.log_scale.exp()
            return torch.cat([x_a, x_b * torch.exp(log_s) + t], dim=-1).flip(-1), log_s.sum(-1)

        def inverse(self, y):
            y_a, y_b = torch.flip(y, dims=[-1]).chunk(2, dim=-1)
            log_s, t = self.net(y_a).chunk(2, dim=-1)
            log_s = torch.tanh(log_s) * self.log_scale.exp()
            return torch.cat([y_a, (y_b - t) * torch.exp(-log_s)], dim=-1)

    model = nn.ModuleList([AffineCoupling(4, 6) for _ in range(3)])

    def step(model, x):
        z, log_det = x, 0
        for layer in model:
            z, ld = layer(z)
            log_det = log_det + ld
        log_pz = -0.5 * (z**2 + math.log(2 * math.pi)).sum(-1)
        with torch.no_grad():
            back = z
            for layer in reversed(model):
                back = layer.inverse(back)
        return -(log_pz + log_det).mean(), z, log_det, back

    return model, step


@network(evenly(2, 1, 6, 6), classes(4, 2, 6, 6))
def pixel_cnn(torch, nn, F):
    class MaskedConv2d(nn.Conv2d):
        def __init__(self, mask_type, *args, **kwargs):
            super().__init__(*args, **kwargs)
            assert mask_type in ("A", "B")
            self.register_buffer("mask", self.weight.data.clone())
            _, _, kH, kW = self.weight.size()
            self.mask.fill_(1)
            self.mask[:, :, kH // 2, kW // 2 + (mask_type == "B") :] = 0
            self.mask[:, :, kH // 2 + 1 :] = 0

        def forward(self, x):  # self.weight.data *= self.mask would be noticed where two calls come before backward
            weight = self.weight * self.mask
            return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    first, second = MaskedConv2d("A", 1, 6, 5, 1, 2, bias=False), MaskedConv2d("B", 6, 4, 3, 1, 1)

    def step(model, x, target):
        out = model(x)
        return F.cross_entropy(out, target), out

    return nn.Sequential(first, nn.BatchNorm2d(6), nn.ReLU(True), second), step
