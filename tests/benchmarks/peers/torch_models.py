# SPDX-License-Identifier: Apache-2.0
"""The models of compare_models.hpp and compare_models.cpp in torch, and their training.

What torch offers several ways for is written in the one that is fastest on a CPU: Adam and AdamW are the fused ones.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from saved_tensors import below, must_agree, read

LENGTH, CHARACTERS, WIDTH = 64, 256, 128


@dataclass
class Model:
    """loss: of the module's output and a target; without it the module, given both, returns the loss."""

    batch: int
    module: Callable
    inputs: Callable
    targets: Callable
    optimizer: Callable
    loss: Callable | None = F.cross_entropy


def numbers(shape, most):
    return (torch.arange(torch.Size(shape).numel()) * 7919 % most).reshape(shape)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn():
    convolutions = [nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))


class Residual(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = nn.Identity()
        if channels != out or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        change = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(change + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)
        self.fc = nn.Linear(64, 10)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 2)
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, **layers):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        (self.name, layer), = layers.items()
        self.add_module(self.name, layer)
        self.out = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text, following):
        scores = self.out(self.get_submodule(self.name)(self.characters(text))[0])
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False, attn_mask=mask, is_causal=True)[0]
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, CHARACTERS)
        # With is_causal only its shape is looked at.
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, text, following):
        x = self.characters(text) + self.positions(torch.arange(LENGTH)).unsqueeze(1)
        for block in self.blocks:
            x = block(x, self.mask)
        return F.cross_entropy(self.out(self.norm(x)).flatten(0, 1), following.flatten())


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10_000, 128)
        self.fc = nn.Linear(128, 10)

    def forward(self, text):
        return self.fc(self.words(text).mean(1))


def labels(rows):
    return torch.arange(rows) * 7 % 10


def images(rows):
    return torch.randn(rows, 1, 28, 28)


SGD = functools.partial(torch.optim.SGD, lr=1e-3, momentum=0.9)
Adam = functools.partial(torch.optim.Adam, lr=1e-3, fused=True)
AdamW = functools.partial(torch.optim.AdamW, lr=1e-3, fused=True)


def text_model(module):
    def text(rows):
        return numbers((LENGTH, rows), CHARACTERS)

    return Model(64, module, text, text, AdamW, None)


SMALL = {
    "tiny": Model(
        batch=30,
        module=lambda: nn.Linear(5, 2),
        inputs=lambda rows: torch.randn(rows, 5),
        targets=lambda rows: torch.randn(rows, 2),
        optimizer=functools.partial(torch.optim.SGD, lr=1e-3),
        loss=F.mse_loss,
    ),
    "mlp": Model(256, mlp, lambda rows: torch.randn(rows, 784), labels, SGD),
    "cnn": Model(128, cnn, images, labels, SGD),
}
MODELS = {
    **SMALL,
    "resnet": Model(128, ResNet, images, labels, SGD),
    "lstm": text_model(lambda: Recurrent(lstm=nn.LSTM(WIDTH, WIDTH, num_layers=2))),
    "transformer": text_model(Transformer),
    "gru": text_model(lambda: Recurrent(gru=nn.GRU(WIDTH, WIDTH, num_layers=2))),
    "embedding": Model(256, Words, lambda rows: numbers((rows, LENGTH), 10_000), labels, Adam),
}


def stepper(kind, model, x, y):
    optimizer, criterion = kind.optimizer(model.parameters()), kind.loss

    def step():
        optimizer.zero_grad()
        loss = criterion(model(x), y) if criterion else model(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def training(name, rows, wrap=lambda model: model):
    kind = MODELS[name]
    return stepper(kind, wrap(kind.module()), kind.inputs(rows), kind.targets(rows))


def check(name, path):
    """Two steps with lockstep's first state and data must have lockstep's losses."""
    saved = {key: torch.from_numpy(array) for key, array in read(path).items()}
    kind = MODELS[name]
    model = kind.module()
    model.load_state_dict({key.removeprefix("net."): tensor for key, tensor in below(saved, "state/").items()})
    step = stepper(kind, model, saved["input"], saved["target"])
    for number in ("0", "1"):
        must_agree(f"torch's {name}, loss {number}", step().detach(), saved[f"loss/{number}"])
