"""Networks that are no plain transformers, as a user would write them; sizes are the published ones."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head self-attention with one matrix for queries, keys and values."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        found: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return found


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln_1(x))
        found: Tensor = x + self.down(functional.gelu(self.up(self.ln_2(x))))
        return found


class Gpt2(nn.Module):
    """GPT-2 with its head tied to the embedding (Radford et al. 2019)."""

    def __init__(self, width: int, heads: int, layers: int, vocab: int, positions: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(Block(width, heads, causal=True) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        found: Tensor = self.lm_head(self.ln_f(x))
        return found


class Bottleneck(nn.Module):
    """Residual block of three convolutions (He et al. 2015, arXiv 1512.03385)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        found: Tensor = self.relu(x)
        return found


class ResNet50(nn.Module):
    """ResNet-50 with strides in the 3x3 convolutions, 25,557,032 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, 2, 1)
        inputs, stages = 64, []
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            first = Bottleneck(inputs, width, stride)
            rest = [Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)]
            stages.append(nn.Sequential(first, *rest))
            inputs = 4 * width
        self.stages = nn.Sequential(*stages)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        found: Tensor = self.fc(torch.flatten(self.average(self.stages(x)), 1))
        return found


class Vgg16(nn.Module):
    """VGG-16 (Simonyan and Zisserman 2014, arXiv 1409.1556, configuration D), 138,357,544 parameters."""

    def __init__(self) -> None:
        super().__init__()
        modules: list[nn.Module] = []
        inputs = 3
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                modules += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            modules.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*modules)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 49, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 1000),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.classifier(torch.flatten(self.features(x), 1))
        return found


class DoubleConvolution(nn.Module):
    """Two 3x3 convolutions with ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x)
        return found


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015, arXiv 1505.04597) with padded convolutions."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512, 1024)) -> None:
        super().__init__()
        pairs = list(zip((1, *widths), widths, strict=False))
        self.down = nn.ModuleList(DoubleConvolution(*pair) for pair in pairs)
        back = list(reversed(pairs[1:]))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(wide, thin, 2, 2) for thin, wide in back)
        self.up = nn.ModuleList(DoubleConvolution(wide, thin) for thin, wide in back)
        self.pool = nn.MaxPool2d(2)
        self.classes = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            skips.append(x)
        skips.pop()
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([skips.pop(), grow(x)], dim=1))
        found: Tensor = self.classes(x)
        return found


class Tower(nn.Module):
    """Transformer blocks between two norms."""

    def __init__(self, width: int, heads: int, layers: int, causal: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads, causal) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(self.blocks(x))
        return found


class Clip(nn.Module):
    """Two towers, images and text (Radford et al. 2021, arXiv 2103.00020), ViT-B/32: 151,277,313 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 32, 32, bias=False)
        self.class_token = nn.Parameter(torch.empty(768))
        self.image_positions = nn.Parameter(torch.empty(50, 768))
        self.norm = nn.LayerNorm(768)
        self.image = Tower(768, 12, 12, causal=False)
        self.tokens = nn.Embedding(49408, 512)
        self.text_positions = nn.Parameter(torch.empty(77, 512))
        self.text = Tower(512, 8, 12, causal=True)
        self.image_out = nn.Linear(768, 512, bias=False)
        self.text_out = nn.Linear(512, 512, bias=False)
        self.scale = nn.Parameter(torch.empty(()))

    def forward(self, images: Tensor, text: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        first = self.class_token.expand(patches.shape[0], 1, -1)
        seen = self.norm(torch.cat([first, patches], dim=1) + self.image_positions)
        picture = self.image_out(self.image(seen)[:, 0])
        caption = self.text_out(self.text(self.tokens(text) + self.text_positions)[:, -1])
        return self.scale.exp() * functional.normalize(picture) @ functional.normalize(caption).T


class Mixture(nn.Module):
    """A convolutional stem before transformer blocks of two widths."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 4, 4), nn.ReLU(), nn.Conv2d(32, 64, 2, 2))
        self.thin = nn.ModuleList(Block(64, 4, causal=False) for _ in range(3))
        self.widen = nn.Linear(64, 128)
        self.wide = nn.ModuleList(Block(128, 4, causal=False) for _ in range(2))
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        for block in self.thin:
            x = block(x)
        x = self.widen(x)
        for block in self.wide:
            x = block(x)
        found: Tensor = self.head(x.mean(1))
        return found


def gpt2_medium() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """GPT2-medium on one sequence of 1024 tokens."""
    return Gpt2(1024, 16, 24, 50257, 1024), (torch.zeros(1, 1024, dtype=torch.long),)


def vgg16() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """VGG-16 on two images."""
    return Vgg16(), (torch.zeros(2, 3, 224, 224),)


def resnet50() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """ResNet-50 on two images."""
    return ResNet50(), (torch.zeros(2, 3, 224, 224),)


def unet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """U-Net on one image of 512 pixels."""
    return UNet(), (torch.zeros(1, 1, 512, 512),)


def clip() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """CLIP ViT-B/32 on two pairs."""
    return Clip(), (torch.zeros(2, 3, 224, 224), torch.zeros(2, 77, dtype=torch.long))


def mixture() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The mixture on two small images."""
    return Mixture(), (torch.zeros(2, 3, 64, 64),)
