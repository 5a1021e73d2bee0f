"""Why an event has no price: it does not fit, or no kernel takes it. What breaks the device is no such reason."""

import torch

OUT_OF_MEMORY = "out of memory"
_LONGEST = 200


def reason(error: Exception) -> str | None:
    """Return why one event failed, None if the error is none of that event alone.

    A CPU's allocator raises no type of its own. After an error of the CUDA runtime other than memory the device is
    lost to this process: every further event would fail.
    """
    text = str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return OUT_OF_MEMORY
    if not isinstance(error, RuntimeError | NotImplementedError):
        return None
    if "alloc" in text.lower() or "memory" in text.lower():
        return OUT_OF_MEMORY if "illegal memory access" not in text else None
    if "CUDA error" in text:
        return None
    return text.strip().split("\n")[0][:_LONGEST] or type(error).__name__
