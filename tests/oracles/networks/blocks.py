"""Blocks of image networks, and images in, images out."""

from . import classes, evenly, network, normal


@network(normal(2, 6, 9, 9))
def inception(torch, nn, F):
    class BasicConv2d(nn.Module):
        def __init__(self, in_channels, out_channels, **kwargs):
            super().__init__()
            self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
            self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

        def forward(self, x):
            return F.relu(self.bn(self.conv(x)), inplace=True)

    class Inception(nn.Module):
        def __init__(self, in_channels):
            super().__init__()
            self.branch1x1 = BasicConv2d(in_channels, 4, kernel_size=1)
            self.branch7x7_1 = BasicConv2d(in_channels, 3, kernel_size=(1, 7), padding=(0, 3))
            self.branch7x7_2 = BasicConv2d(3, 5, kernel_size=(7, 1), padding=(3, 0))
            self.branch_pool = BasicConv2d(in_channels, 2, kernel_size=1)

        def forward(self, x):
            branch7x7 = self.branch7x7_2(self.branch7x7_1(x))
            branch_pool = self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
            reduced = F.max_pool2d(x, 3, stride=1, padding=1)
            return torch.cat([self.branch1x1(x), branch7x7, branch_pool, reduced], dim=1)

    def step(model, x):
        out = model(x)
        return out.pow(2).mean(), out

    return Inception(6), step


@network(normal(3, 4, 8, 8), classes(6, 3), optimizer="RMSprop", lr=1e-3, momentum=0.9, eps=0.1)
def mobilenet(torch, nn, F):
    """Inverted residuals, with squeeze and excitation within."""

    class SELayer(nn.Module):
        def __init__(self, channel, reduction=4):
            super().__init__()
            self.avg_pool = nn.AdaptiveAvgPool2d(1)
            down, up = nn.Linear(channel, channel // reduction, bias=False), nn.Linear(channel // reduction, channel)
            self.fc = nn.Sequential(down, nn.ReLU(inplace=True), up, nn.Sigmoid())

        def forward(self, x):
            b, c, _, _ = x.size()
            y = self.fc(self.avg_pool(x).view(b, c)).view(b, c, 1, 1)
            return x * y.expand_as(x)

    class InvertedResidual(nn.Module):
        def __init__(self, inp, oup, stride, expand_ratio):
            super().__init__()
            hidden_dim = round(inp * expand_ratio)
            self.identity = stride == 1 and inp == oup
            self.conv = nn.Sequential(
                nn.Conv2d(inp, hidden_dim, 1, 1, 0, bias=False),
                nn.BatchNorm2d(hidden_dim),
                nn.ReLU6(inplace=True),
                nn.Conv2d(hidden_dim, hidden_dim, 3, stride, 1, groups=hidden_dim, bias=False),
                SELayer(hidden_dim),
                nn.Conv2d(hidden_dim, oup, 1, 1, 0, bias=False),
                nn.BatchNorm2d(oup),
            )

        def forward(self, x):
            return x + self.conv(x) if self.identity else self.conv(x)

    def step(model, x, y):
        out = model(x)
        scores = F.adaptive_avg_pool2d(out, (1, 1)).squeeze(-1).squeeze(-1)
        return F.cross_entropy(scores, y) + torch.sum(torch.abs(out.mean([2, 3])) ** 3) + F.relu6(3 * x).mean(), out

    return nn.Sequential(InvertedResidual(4, 4, 1, 3), InvertedResidual(4, 6, 2, 2)), step


@network(normal(1, 4, 6, 5), normal(1, 4, 6, 5), evenly(1, 3, 6, 5))
def style_transfer(torch, nn, F):
    def gram_matrix(input):
        b, c, h, w = input.size()
        features = input.view(b, c, h * w)
        return torch.bmm(features, features.transpose(1, 2)).div(c * h * w)

    class StyleLoss(nn.Module):
        def __init__(self, target_feature):
            super().__init__()
            self.target = gram_matrix(target_feature).detach()

        def forward(self, input):
            self.loss = F.mse_loss(gram_matrix(input), self.target)
            return input

    def step(model, x, style, image):
        layer = StyleLoss(style)
        layer(model(x))
        mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
        img = (image - mean) / torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
        tv = torch.sum(torch.pow(img[:, :, :, :-1] - img[:, :, :, 1:], 2))
        tv += (torch.abs(image[:, :, 1:, :] - image[:, :, :-1, :])).mean()
        return 1e3 * layer.loss + 1e-2 * tv, layer.target

    return nn.Conv2d(4, 4, 3, padding=1), step
