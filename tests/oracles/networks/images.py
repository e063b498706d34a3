"""Networks that classify images."""

from collections import OrderedDict

from . import classes, network, normal


@network(normal(2, 3, 8, 8), classes(5, 2))
def vgg(torch, nn, F):
    def make_layers(cfg):
        layers, in_channels = [], 3
        for v in cfg:
            if v == "M":
                layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
            else:
                conv2d = nn.Conv2d(in_channels, v, kernel_size=3, padding=1)
                layers += [conv2d, nn.BatchNorm2d(v), nn.ReLU(inplace=True)]
                in_channels = v
        return nn.Sequential(*layers)

    class VGG(nn.Module):
        def __init__(self, features, num_classes=5):
            super().__init__()
            self.features = features
            self.classifier = nn.Linear(12 * 2 * 2, num_classes)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                    if m.bias is not None:
                        nn.init.constant_(m.bias, 0)
                elif isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, 0, 0.1)

        def forward(self, x):
            x = self.features(x)
            x = x.view(x.size(0), -1)
            return self.classifier(x)

    def step(model, x, y):
        out = model(x)
        return F.cross_entropy(out, y, label_smoothing=0.1), out

    return VGG(make_layers([6, "M", 8, 12, "M"])), step


@network(normal(3, 3, 12, 12), classes(5, 3))
def resnet(torch, nn, F):
    class BasicBlock(nn.Module):
        expansion = 1

        def __init__(self, inplanes, planes, stride=1, downsample=None):
            super().__init__()
            self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.downsample = downsample

        def forward(self, x):
            identity = x
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            if self.downsample is not None:
                identity = self.downsample(x)
            out += identity
            return self.relu(out)

    class ResNet(nn.Module):
        def __init__(self, block, layers, num_classes=5):
            super().__init__()
            self.inplanes = 3
            self.layer1 = self._make_layer(block, 6, layers[0])
            self.layer2 = self._make_layer(block, 8, layers[1], stride=2)
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(8 * block.expansion, num_classes)

        def _make_layer(self, block, planes, blocks, stride=1):
            conv = nn.Conv2d(self.inplanes, planes * block.expansion, kernel_size=1, stride=stride, bias=False)
            downsample = nn.Sequential(conv, nn.BatchNorm2d(planes * block.expansion))
            layers = [block(self.inplanes, planes, stride, downsample)]
            self.inplanes = planes * block.expansion
            layers += [block(self.inplanes, planes) for _ in range(1, blocks)]
            return nn.Sequential(*layers)

        def forward(self, x):
            return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))

    def step(model, x, y):
        out = model(x)
        return F.cross_entropy(out, y), out

    return ResNet(BasicBlock, [1, 2]), step


@network(normal(3, 4, 8, 8), normal(3, 5, 4, 4))
def densenet(torch, nn, F):
    class _DenseLayer(nn.Sequential):
        def __init__(self, num_input_features, growth_rate):
            super().__init__()
            self.add_module("norm1", nn.BatchNorm2d(num_input_features))
            self.add_module("relu1", nn.ReLU(inplace=True))
            self.add_module("conv1", nn.Conv2d(num_input_features, growth_rate, 3, padding=1, bias=False))

        def forward(self, x):
            new_features = F.dropout(super().forward(x), p=0.0, training=self.training)
            return torch.cat([x, new_features], 1)

    block = [(f"denselayer{i + 1}", _DenseLayer(4 + 3 * i, 3)) for i in range(3)]
    transition = [("norm", nn.BatchNorm2d(13)), ("conv", nn.Conv2d(13, 5, 1)), ("pool", nn.AvgPool2d(2, stride=2))]
    model = nn.Sequential(OrderedDict([("block", nn.Sequential(OrderedDict(block))), *transition]))

    def step(model, x, y):
        out = model(x)
        return ((out - y) ** 2).mean(), out

    return model, step
