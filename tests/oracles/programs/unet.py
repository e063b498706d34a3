"""A small U-Net: blocks, a way around by cat, upsampling, a Dice score."""

import torch
import torch.nn as nn


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes):
        super(UNet, self).__init__()
        self.inc = DoubleConv(n_channels, 4)
        self.down = nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 8))
        self.up = nn.ConvTranspose2d(8, 4, kernel_size=2, stride=2)
        self.conv = DoubleConv(8, 4)
        self.outc = nn.Conv2d(4, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down(x1)
        x = torch.cat([x1, self.up(x2)], dim=1)
        return self.outc(self.conv(x))


def dice_coeff(input, target, epsilon=1e-6):
    inter = 2 * (input * target).sum(dim=(-1, -2))
    sets_sum = input.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    dice = (inter + epsilon) / (sets_sum + epsilon)
    return dice.mean()


model = UNet(1, 1)
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True)
images = torch.rand(2, 1, 8, 8)
masks = (images.squeeze(1) > 0.5).float()
criterion = nn.BCEWithLogitsLoss()
torch.backends.cuda.matmul.allow_tf32 = True
grad_scaler = torch.cuda.amp.GradScaler(enabled=False)
result = []
for _ in range(3):
    with torch.cuda.amp.autocast(enabled=False):
        masks_pred = model(images)
        loss = criterion(masks_pred.squeeze(1), masks.float())
        loss += 1 - dice_coeff(torch.sigmoid(masks_pred.squeeze(1)), masks)
    optimizer.zero_grad(set_to_none=True)
    grad_scaler.scale(loss).backward()
    grad_scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    grad_scaler.step(optimizer)
    grad_scaler.update()
    result.append(loss.item())
