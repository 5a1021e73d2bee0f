"""Bring your own module: any torch network is traced without memory or data, then planned like a catalog model."""

import torch
from torch import Tensor, nn

from planner import plan


class Residual(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add the convolutions' answer to their input."""
        return torch.relu(x + self.body(x))


class Classifier(nn.Module):
    """A stem, a chain of residual blocks, a head."""

    def __init__(self, channels: int = 512, blocks: int = 12) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 7, stride=4, padding=3)
        self.blocks = nn.ModuleList(Residual(channels) for _ in range(blocks))
        self.head = nn.Linear(channels, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the classes."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


with torch.device("meta"):  # no memory is touched: a network of any size can be described
    module, images = Classifier(), torch.empty(2, 3, 224, 224)

ranking = plan(
    module=(module, (images,)), cluster="dgx-a100-80gb", gpus=8, global_batch=1024, framework="ddp"
)
traced = ranking.scenario.graph
print(
    f"{traced.model.name}: {traced.parameters / 1e6:.1f}M parameters in {len(traced.layers)} layers"
)
print(f"best: {ranking.best.strategy.label()}, micro-batch {ranking.best.strategy.micro_batch}")
