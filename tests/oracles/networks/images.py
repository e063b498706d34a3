"""Networks that classify or segment images."""

from collections import OrderedDict

from . import classes, evenly, network, normal


@network(evenly(6, 1, 8, 8), classes(10, 6), optimizer="Adam", lr=1e-3)
def multilayer_perceptron(torch, nn, F):
    class Net(nn.Module):
        def __init__(self):
            super(Net, self).__init__()  # noqa: UP008
            self.fc1 = nn.Linear(8 * 8, 32)
            self.fc2 = nn.Linear(32, 16)
            self.fc3 = nn.Linear(16, 10)

        def forward(self, x):
            x = x.view(-1, 8 * 8)
            x = F.relu(self.fc1(x))
            x = torch.tanh(self.fc2(x))
            return F.log_softmax(self.fc3(x), dim=1)

    def step(model, data, target):
        output = model(data)
        pred = output.argmax(dim=1, keepdim=True)
        correct = pred.eq(target.view_as(pred)).sum()
        return F.nll_loss(output, target), output, correct

    return Net(), step


@network(evenly(4, 1, 28, 28), classes(10, 4))
def lenet5(torch, nn, F):
    class LeNet5(nn.Module):
        def __init__(self, n_classes=10):
            super().__init__()
            self.feature_extractor = nn.Sequential(
                nn.Conv2d(in_channels=1, out_channels=6, kernel_size=5, stride=1, padding=2),
                nn.Tanh(),
                nn.AvgPool2d(kernel_size=2),
                nn.Conv2d(in_channels=6, out_channels=16, kernel_size=5, stride=1),
                nn.Tanh(),
                nn.MaxPool2d(kernel_size=2, stride=2),
                nn.Conv2d(in_channels=16, out_channels=120, kernel_size=5, stride=1),
                nn.Tanh(),
            )
            self.classifier = nn.Sequential(
                nn.Linear(in_features=120, out_features=84), nn.Tanh(), nn.Linear(84, n_classes)
            )

        def forward(self, x):
            x = self.feature_extractor(x)
            x = torch.flatten(x, 1)
            logits = self.classifier(x)
            probs = F.softmax(logits, dim=1)
            return logits, probs

    criterion = nn.CrossEntropyLoss()

    def step(model, images, labels):
        logits, probs = model(images)
        _, predicted = torch.max(probs.detach(), 1)
        return criterion(logits, labels), logits, probs, (predicted == labels).float().mean()

    return LeNet5(), step


@network(normal(2, 3, 67, 67), classes(5, 2))
def alexnet(torch, nn, F):
    class AlexNet(nn.Module):
        def __init__(self, num_classes=5, dropout=0.0):
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2d(3, 8, kernel_size=11, stride=4, padding=2),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(kernel_size=3, stride=2),
                nn.Conv2d(8, 12, kernel_size=5, padding=2),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(kernel_size=3, stride=2),
                nn.Conv2d(12, 16, kernel_size=3, padding=1),
                nn.ReLU(inplace=True),
            )
            self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
            self.classifier = nn.Sequential(
                nn.Dropout(p=dropout),
                nn.Linear(16 * 6 * 6, 32),
                nn.ReLU(inplace=True),
                nn.Dropout(p=dropout),
                nn.Linear(32, num_classes),
            )

        def forward(self, x):
            x = self.features(x)
            x = self.avgpool(x)
            x = torch.flatten(x, 1)
            return self.classifier(x)

    def step(model, x, y):
        out = model(x)
        return nn.CrossEntropyLoss()(out, y), out

    return AlexNet(), step


@network(normal(4, 3, 16, 16), classes(5, 4))
def vgg(torch, nn, F):
    def make_layers(cfg, batch_norm=True):
        layers, in_channels = [], 3
        for v in cfg:
            if v == "M":
                layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
            else:
                conv2d = nn.Conv2d(in_channels, v, kernel_size=3, padding=1)
                layers += [conv2d, nn.BatchNorm2d(v), nn.ReLU(inplace=True)] if batch_norm else [conv2d, nn.ReLU(True)]
                in_channels = v
        return nn.Sequential(*layers)

    class VGG(nn.Module):
        def __init__(self, features, num_classes=5):
            super().__init__()
            self.features = features
            self.classifier = nn.Sequential(nn.Linear(12 * 4 * 4, 16), nn.ReLU(True), nn.Linear(16, num_classes))
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                    if m.bias is not None:
                        nn.init.constant_(m.bias, 0)
                elif isinstance(m, nn.BatchNorm2d):
                    nn.init.constant_(m.weight, 1)
                    nn.init.constant_(m.bias, 0)
                elif isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, 0, 0.1)
                    nn.init.constant_(m.bias, 0)

        def forward(self, x):
            x = self.features(x)
            x = x.view(x.size(0), -1)
            return self.classifier(x)

    def step(model, x, y):
        out = model(x)
        return F.cross_entropy(out, y, label_smoothing=0.1), out

    return VGG(make_layers([6, "M", 8, 12, "M"])), step


def resnet(torch, nn, F, block, layers):
    class ResNet(nn.Module):
        def __init__(self, num_classes=5):
            super().__init__()
            self.inplanes = 6
            self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=3, stride=1, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(self.inplanes)
            self.relu = nn.ReLU(inplace=True)
            self.layer1 = self._make_layer(6, layers[0])
            self.layer2 = self._make_layer(8, layers[1], stride=2)
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(8 * block.expansion, num_classes)

        def _make_layer(self, planes, blocks, stride=1):
            downsample = None
            if stride != 1 or self.inplanes != planes * block.expansion:
                downsample = nn.Sequential(
                    nn.Conv2d(self.inplanes, planes * block.expansion, kernel_size=1, stride=stride, bias=False),
                    nn.BatchNorm2d(planes * block.expansion),
                )
            layers = [block(self.inplanes, planes, stride, downsample)]
            self.inplanes = planes * block.expansion
            layers += [block(self.inplanes, planes) for _ in range(1, blocks)]
            return nn.Sequential(*layers)

        def forward(self, x):
            x = self.relu(self.bn1(self.conv1(x)))
            x = self.layer2(self.layer1(x))
            x = torch.flatten(self.avgpool(x), 1)
            return self.fc(x)

    def step(model, x, y):
        out = model(x)
        return F.cross_entropy(out, y), out

    return ResNet(), step


@network(normal(3, 3, 12, 12), classes(5, 3))
def resnet_basic_block(torch, nn, F):
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

    return resnet(torch, nn, F, BasicBlock, [1, 2])


@network(normal(3, 3, 12, 12), classes(5, 3), lr=0.002)
def resnet_bottleneck(torch, nn, F):
    class Bottleneck(nn.Module):
        expansion = 4

        def __init__(self, inplanes, planes, stride=1, downsample=None, groups=2):
            super().__init__()
            self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, groups=groups, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.conv3 = nn.Conv2d(planes, planes * self.expansion, kernel_size=1, bias=False)
            self.bn3 = nn.BatchNorm2d(planes * self.expansion)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = downsample

        def forward(self, x):
            residual = x
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.relu(self.bn2(self.conv2(out)))
            out = self.bn3(self.conv3(out))
            if self.downsample is not None:
                residual = self.downsample(x)
            return self.relu(out + residual)

    return resnet(torch, nn, F, Bottleneck, [1, 1])


@network(normal(3, 4, 8, 8), normal(3, 5, 4, 4))
def densenet(torch, nn, F):
    class _DenseLayer(nn.Sequential):
        def __init__(self, num_input_features, growth_rate, bn_size):
            super().__init__()
            self.add_module("norm1", nn.BatchNorm2d(num_input_features))
            self.add_module("relu1", nn.ReLU(inplace=True))
            self.add_module("conv1", nn.Conv2d(num_input_features, bn_size * growth_rate, kernel_size=1, bias=False))
            self.add_module("norm2", nn.BatchNorm2d(bn_size * growth_rate))
            self.add_module("relu2", nn.ReLU(inplace=True))
            self.add_module("conv2", nn.Conv2d(bn_size * growth_rate, growth_rate, 3, padding=1, bias=False))

        def forward(self, x):
            new_features = super().forward(x)
            new_features = F.dropout(new_features, p=0.0, training=self.training)
            return torch.cat([x, new_features], 1)

    block = [(f"denselayer{i + 1}", _DenseLayer(4 + 3 * i, 3, 2)) for i in range(3)]
    transition = [("norm", nn.BatchNorm2d(13)), ("conv", nn.Conv2d(13, 5, 1)), ("pool", nn.AvgPool2d(2, stride=2))]
    model = nn.Sequential(OrderedDict([("block", nn.Sequential(OrderedDict(block))), *transition]))

    def step(model, x, y):
        out = model(x)
        return ((out - y) ** 2).mean(), out

    return model, step
