# SPDX-License-Identifier: Apache-2.0

"""What step_benchmark.cpp does, with torch: torch_step.py REPLICAS STEPS WARM_UP MODEL…

REPLICAS times the first GPU in torch.nn.DataParallel. Prints the model and the microseconds of each step.
"""

import sys
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

CHARACTERS = 256
WIDTH = 128


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def lenet():
    convolutions = [nn.Conv2d(1, 32, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(32, 64, 5), nn.MaxPool2d(2), nn.ReLU()]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))


class ResidualBlock(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if before != after or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        change = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (change + (self.downsample(x) if self.downsample else x)).relu()


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layers = nn.Sequential(ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2))
        self.fc = nn.Linear(64, 10)

    def forward(self, images):
        x = nn.functional.max_pool2d(self.bn1(self.conv1(images)).relu(), 2)
        return self.fc(self.layers(x).mean((2, 3)))


class TextLoss(nn.Module):
    def forward(self, text, following):
        return cross_entropy(self.scores(text).flatten(0, 1), following.flatten()).reshape(1, 1)


class Lstm(TextLoss):
    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2)
        self.out = nn.Linear(WIDTH, CHARACTERS)

    def scores(self, text):
        self.lstm.flatten_parameters()
        return self.out(self.lstm(self.characters(text))[0])


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        normed = self.norm1(x)
        y = x + self.attention(normed, normed, normed, attn_mask=mask, is_causal=True, need_weights=False)[0]
        return y + self.fc2(nn.functional.gelu(self.fc1(self.norm2(y))))


class Transformer(TextLoss):
    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.positions = nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList([TransformerBlock(), TransformerBlock()])
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, CHARACTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(64))

    def scores(self, text):
        x = self.characters(text) + self.positions(torch.arange(len(text), device=text.device)).unsqueeze(1)
        for block in self.blocks:
            x = block(x, self.mask)
        return self.out(self.norm(x))


MODELS = {
    "mlp": (mlp, (256, 784)),
    "lenet": (lenet, (128, 1, 28, 28)),
    "resnet": (ResNet, (128, 1, 28, 28)),
    "lstm": (Lstm, None),
    "transformer": (Transformer, None),
}


def training(name, replicas):
    make, shape = MODELS[name]
    model = nn.DataParallel(make().cuda(), device_ids=[0] * replicas, dim=0 if shape else 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if shape:
        x, y = torch.randn(shape).cuda(), (torch.arange(shape[0]) * 7 % 10).cuda()
    else:
        text = (torch.arange(64 * 32) * 7 % CHARACTERS).reshape(64, 32).cuda()

    def step():
        loss = cross_entropy(model(x), y) if shape else model(text, text).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        torch.cuda.synchronize()

    return step


def main():
    replicas, steps, warm_up = (int(text) for text in sys.argv[1:4])
    # f32 as lockstep has it: rounded to TF32 on request alone.
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    for name in sys.argv[4:]:
        step = training(name, replicas)
        for _ in range(warm_up):
            step()
        for _ in range(steps):
            start = time.perf_counter()
            step()
            print(f"{name} {(time.perf_counter() - start) * 1e6:.3f}")


if __name__ == "__main__":
    main()
