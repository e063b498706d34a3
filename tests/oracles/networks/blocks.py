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

    class InceptionA(nn.Module):
        def __init__(self, in_channels, pool_features):
            super().__init__()
            self.branch1x1 = BasicConv2d(in_channels, 4, kernel_size=1)
            self.branch5x5_1 = BasicConv2d(in_channels, 3, kernel_size=1)
            self.branch5x5_2 = BasicConv2d(3, 4, kernel_size=5, padding=2)
            self.branch7x7_1 = BasicConv2d(in_channels, 3, kernel_size=(1, 7), padding=(0, 3))
            self.branch7x7_2 = BasicConv2d(3, 5, kernel_size=(7, 1), padding=(3, 0))
            self.branch_pool = BasicConv2d(in_channels, pool_features, kernel_size=1)

        def forward(self, x):
            branch1x1 = self.branch1x1(x)
            branch5x5 = self.branch5x5_2(self.branch5x5_1(x))
            branch7x7 = self.branch7x7_2(self.branch7x7_1(x))
            branch_pool = self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
            reduced = F.max_pool2d(x, 3, stride=1, padding=1)
            return torch.cat([branch1x1, branch5x5, branch7x7, branch_pool, reduced], dim=1)

    def step(model, x):
        out = model(x)
        return out.pow(2).mean(), out

    return InceptionA(6, 2), step


@network(normal(3, 4, 8, 8), optimizer="RMSprop", lr=1e-3, momentum=0.9, eps=0.1)
def mobilenet_v2(torch, nn, F):
    class InvertedResidual(nn.Module):
        def __init__(self, inp, oup, stride, expand_ratio):
            super().__init__()
            assert stride in [1, 2]
            hidden_dim = round(inp * expand_ratio)
            self.identity = stride == 1 and inp == oup
            self.conv = nn.Sequential(
                nn.Conv2d(inp, hidden_dim, 1, 1, 0, bias=False),
                nn.BatchNorm2d(hidden_dim),
                nn.ReLU6(inplace=True),
                nn.Conv2d(hidden_dim, hidden_dim, 3, stride, 1, groups=hidden_dim, bias=False),
                nn.BatchNorm2d(hidden_dim),
                nn.ReLU6(inplace=True),
                nn.Conv2d(hidden_dim, oup, 1, 1, 0, bias=False),
                nn.BatchNorm2d(oup),
            )

        def forward(self, x):
            if self.identity:
                return x + self.conv(x)
            else:
                return self.conv(x)

    model = nn.Sequential(InvertedResidual(4, 4, 1, 3), InvertedResidual(4, 6, 2, 2))

    def step(model, x):
        out = model(x).mean([2, 3])
        return torch.sum(torch.abs(out) ** 3) + F.relu6(3 * x).mean(), out

    return model, step


@network(normal(3, 8, 5, 5), classes(8, 3))
def squeeze_and_excitation(torch, nn, F):
    class SELayer(nn.Module):
        def __init__(self, channel, reduction=4):
            super().__init__()
            self.avg_pool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Sequential(
                nn.Linear(channel, channel // reduction, bias=False),
                nn.ReLU(inplace=True),
                nn.Linear(channel // reduction, channel, bias=False),
                nn.Sigmoid(),
            )

        def forward(self, x):
            b, c, _, _ = x.size()
            y = self.avg_pool(x).view(b, c)
            y = self.fc(y).view(b, c, 1, 1)
            return x * y.expand_as(x)

    def step(model, x, y):
        out = model(x)
        assert F.adaptive_avg_pool2d(out, (1, 1)).shape == (3, 8, 1, 1)
        return F.cross_entropy(F.adaptive_avg_pool2d(out, (1, 1)).squeeze(-1).squeeze(-1), y), out

    return SELayer(8), step


@network(evenly(2, 1, 12, 12), classes(2, 2, 12, 12))
def unet(torch, nn, F):
    def double_conv(in_ch, out_ch):
        return nn.Sequential(
            nn.Conv2d(in_ch, out_ch, 3, padding=1),
            nn.BatchNorm2d(out_ch),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_ch, out_ch, 3, padding=1),
            nn.BatchNorm2d(out_ch),
            nn.ReLU(inplace=True),
        )

    class Up(nn.Module):
        def __init__(self, in_ch, out_ch, bilinear):
            super().__init__()
            if bilinear:
                up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
                self.up = nn.Sequential(up, nn.Conv2d(in_ch, in_ch // 2, kernel_size=1))
            else:
                self.up = nn.ConvTranspose2d(in_ch, in_ch // 2, kernel_size=2, stride=2)
            self.conv = double_conv(in_ch, out_ch)

        def forward(self, x1, x2):
            x1 = self.up(x1)
            diffY = x2.size()[2] - x1.size()[2]
            diffX = x2.size()[3] - x1.size()[3]
            x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
            return self.conv(torch.cat([x2, x1], dim=1))

    class UNet(nn.Module):
        def __init__(self, n_classes=2):
            super().__init__()
            self.inc, self.down1, self.down2 = double_conv(1, 4), double_conv(4, 8), double_conv(8, 16)
            self.pool = nn.MaxPool2d(2)
            self.up1, self.up2 = Up(16, 8, bilinear=True), Up(8, 4, bilinear=False)
            self.outc = nn.Conv2d(4, n_classes, 1)

        def forward(self, x):
            x1 = self.inc(x)
            x2 = self.down1(self.pool(x1))
            x3 = self.down2(self.pool(x2))
            return self.outc(self.up2(self.up1(x3, x2), x1))

    def step(model, x, masks_true):
        masks_pred = model(x)
        loss = F.cross_entropy(masks_pred, masks_true)
        probs = F.softmax(masks_pred, dim=1)
        onehot = F.one_hot(masks_true, 2).permute(0, 3, 1, 2).float()
        inter = 2 * (probs * onehot).sum(dim=(-1, -2))
        sets_sum = probs.sum(dim=(-1, -2)) + onehot.sum(dim=(-1, -2))
        sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
        dice = (inter + 1e-6) / (sets_sum + 1e-6)
        return loss + 1 - dice.mean(), masks_pred, dice

    return UNet(), step


@network(normal(1, 4, 6, 5), normal(1, 4, 6, 5), evenly(1, 3, 6, 5))
def style_transfer(torch, nn, F):
    def gram_matrix(input):
        b, c, h, w = input.size()
        features = input.view(b, c, h * w)
        G = torch.bmm(features, features.transpose(1, 2))
        return G.div(c * h * w)

    class StyleLoss(nn.Module):
        def __init__(self, target_feature):
            super().__init__()
            self.target = gram_matrix(target_feature).detach()

        def forward(self, input):
            self.loss = F.mse_loss(gram_matrix(input), self.target)
            return input

    def total_variation(img):
        w_variance = torch.sum(torch.pow(img[:, :, :, :-1] - img[:, :, :, 1:], 2))
        h_variance = torch.sum(torch.pow(img[:, :, :-1, :] - img[:, :, 1:, :], 2))
        return h_variance + w_variance

    def step(model, x, style, image):
        layer = StyleLoss(style)
        layer(model(x))
        mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
        std = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
        tv = (torch.abs(image[:, :, 1:, :] - image[:, :, :-1, :])).mean() + total_variation((image - mean) / std)
        return 1e3 * layer.loss + 1e-2 * tv, layer.target

    return nn.Conv2d(4, 4, 3, padding=1), step
