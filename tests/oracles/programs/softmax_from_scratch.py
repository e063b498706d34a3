"""Softmax regression from scratch: parameters by torch.normal, sums with keepdims, updates inside no_grad."""

import torch

num_inputs, num_outputs, lr = 8, 3, 0.1
X = torch.normal(0, 1, (32, num_inputs))
y = torch.randint(0, num_outputs, (32,))
W = torch.normal(0, 0.01, size=(num_inputs, num_outputs), requires_grad=True)
b = torch.zeros(num_outputs, requires_grad=True)


def softmax(X):
    X_exp = torch.exp(X)
    partition = X_exp.sum(1, keepdims=True)
    return X_exp / partition


def net(X):
    return softmax(torch.matmul(X.reshape((-1, W.shape[0])), W) + b)


def cross_entropy(y_hat, y):
    return -torch.log(y_hat[range(len(y_hat)), y])


def accuracy(y_hat, y):
    if len(y_hat.shape) > 1 and y_hat.shape[1] > 1:
        y_hat = y_hat.argmax(axis=1)
    cmp = y_hat.type(y.dtype) == y
    return float(cmp.type(y.dtype).sum())


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


result = []
for epoch in range(5):
    l = cross_entropy(net(X), y)
    l.sum().backward()
    sgd([W, b], lr, X.shape[0])
    result += [float(l.mean()), accuracy(net(X), y)]
