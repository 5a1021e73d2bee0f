"""A U-Net as a module tree (Ronneberger et al., arXiv 1505.04597): channels, pixels and costs by arithmetic."""

from planner.module_tree import Module

FLOPS_PER_S = 60e12
"""What convolutions of this size reach on an A100; only ratios between modules matter here."""
STATE_BYTES = 16
"""Per parameter: fp16 weight and gradient, fp32 master copy and two moments."""


def convolution(name: str, inputs: int, outputs: int, side: int, samples: int) -> Module:
    weights = 9 * inputs * outputs
    pixels = samples * side * side
    forward = 2.0 * weights * pixels / FLOPS_PER_S
    return Module(
        name=name,
        forward_s=forward,
        backward_s=2 * forward,
        weights={name: float(STATE_BYTES * weights)},
        activation_bytes=2.0 * pixels * (inputs + outputs),
        output_bytes=2.0 * pixels * outputs,
    )


def double(name: str, inputs: int, outputs: int, side: int, samples: int) -> Module:
    first = convolution(f"{name}.0", inputs, outputs, side, samples)
    second = convolution(f"{name}.1", outputs, outputs, side, samples)
    return Module(name=name, children=(first, second))


def unet(*, width: int = 64, depth: int = 4, side: int = 256, samples: int = 4) -> Module:
    """Return encoder, bottom and decoder; a decoder level reads the encoder's output of its level too."""
    down = tuple(
        double(
            f"down.{level}",
            3 if level == 0 else width << (level - 1),
            width << level,
            side >> level,
            samples,
        )
        for level in range(depth)
    )
    bottom = double("bottom", width << (depth - 1), width << depth, side >> depth, samples)
    up = tuple(
        double(f"up.{level}", 3 * (width << level), width << level, side >> level, samples)
        for level in reversed(range(depth))
    )
    return Module(
        name="unet",
        children=(
            Module(name="encoder", children=down),
            bottom,
            Module(name="decoder", children=up),
        ),
    )
