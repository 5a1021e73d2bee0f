"""What is given: model, device, cluster, training. Frozen values in base units, each range-checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from costmodel.errors import InputError

NormKind = Literal["rmsnorm", "layernorm"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
AttentionKernel = Literal["flash", "standard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """Multi-head, grouped-query or latent (MLA) attention of one layer.

    Attributes:
        heads, kv_heads, head_dim: Query heads, key/value heads, width of a head.
        qkv_bias, out_bias: Whether the projections have biases.
        qk_norm: Whether queries and keys are normalised per head (2 * head_dim parameters).
        causal: Whether a token attends only to its past.
        window: Tokens a token attends to at most; None is the whole sequence.
        sinks: Whether each head has one learned attention sink (gpt-oss).
        relative_buckets: Buckets of a learned relative position bias held by this layer (T5's first layer).
        q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim: MLA widths;
            ``kv_lora_rank`` > 0 makes the attention latent (DeepSeek-V2, arXiv 2405.04434, section 2.1);
            ``q_lora_rank`` 0 means queries are not compressed.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    causal: bool = True
    window: int | None = None
    sinks: bool = False
    relative_buckets: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0

    @property
    def latent(self) -> bool:
        """Whether keys and values are compressed (MLA)."""
        return self.kv_lora_rank > 0

    @property
    def qk_width(self) -> int:
        """Width of all queries, which is that of the keys after expansion under MLA."""
        if self.latent:
            return self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        return self.heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Width of all attention outputs, the input of the output projection."""
        return self.heads * (self.v_head_dim if self.latent else self.head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpSpec:
    """Feed-forward part of one layer; with ``experts`` it is a mixture of experts.

    Attributes:
        ffn: Hidden width of the dense MLP, or of one expert.
        gated: Three matrices (SwiGLU, GeGLU) instead of two.
        bias: Whether the matrices have biases.
        experts, topk: Routed experts and how many each token visits; 0 is a dense MLP.
        shared_ffn: Summed width of the shared experts, 0 for none.
        router_bias: Whether the router has a learned or loaded bias parameter per expert.
    """

    ffn: int
    gated: bool = True
    bias: bool = False
    experts: int = 0
    topk: int = 0
    shared_ffn: int = 0
    router_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One kind of repeated block.

    Attributes:
        name: Word for reports: "block", "dense", "moe", "encoder", ..
        attention, cross_attention, mlp: The sub-layers; absent ones are None.
        norms: Number of hidden-wide norms in the block.
        frozen: Whether the weights are not trained (no gradient, no optimizer state).
    """

    name: str
    attention: AttentionSpec | None
    mlp: MlpSpec | None
    cross_attention: AttentionSpec | None = None
    norms: int = 2
    frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as a sequence of layers of few kinds, with an embedding before and a head behind.

    Attributes:
        name: Catalog name or file name.
        hidden: Width of the residual stream.
        kinds: The distinct kinds of layers.
        layers: Kind index of each layer, in order.
        vocab: Rows of the embedding as published, without padding; 0 for models on images.
        tied: Whether head and embedding share their weights.
        norm: Kind of norm; ``layernorm`` has a bias as well as a weight, unless ``norm_bias`` is off (MPT).
        positions: Learned positions, 0 for none; ``token_types`` likewise (BERT).
        rotary: Whether queries and keys are rotated; ALiBi, relative and learned positions do without.
        embedding_norm, final_norm: Norms behind the embedding and before the head.
        head_transform: Whether the head has a hidden x hidden layer and norm first (BERT's MLM head).
        head_bias: Whether the head has a bias of the size of the vocabulary.
        pooler: Whether a hidden x hidden pooler is kept (counted as parameters only).
        patch_inputs: Inputs of the patch embedding (patch^2 * channels), 0 for text (ViT).
        classes: Outputs of a classification head with bias, 0 for none; with a vocabulary it stands beside the
            logits (BERT's next-sentence head).
        mtp_layers: Multi-token-prediction layers behind the head.
        decoder_start: Index of the first decoder layer in encoder-decoder models, 0 otherwise.
        extra_parameters: Parameters in no operator above (for example the class token).
        source: Where the numbers come from.
        notes: What the reader of the model had to assume, for the user to see.
    """

    name: str
    hidden: int
    kinds: tuple[LayerSpec, ...]
    layers: tuple[int, ...]
    vocab: int
    tied: bool = False
    norm: NormKind = "rmsnorm"
    norm_bias: bool = True
    positions: int = 0
    token_types: int = 0
    rotary: bool = True
    embedding_norm: bool = False
    final_norm: bool = True
    head_transform: bool = False
    head_bias: bool = False
    pooler: bool = False
    patch_inputs: int = 0
    classes: int = 0
    mtp_layers: int = 0
    decoder_start: int = 0
    extra_parameters: int = 0
    source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise InputError("must be at least 1", key="model.hidden", value=self.hidden)
        if not self.layers:
            raise InputError("must have at least one layer", key="model.layers", value=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One accelerator.

    Attributes:
        name: Catalog name, for example ``h100-sxm``.
        architecture: Generation, for example ``hopper``: selects kernel behaviour.
        memory_bytes: Device memory as the driver reports it in total.
        usable_bytes: What a training process can hold, its context included: less the driver's share and a
            margin that no allocator fills (costmodel.catalog.usable_bytes).
        bandwidth_bytes_per_s: Memory bandwidth.
        peak_flops: Dense peak FLOP/s by precision, without sparsity.
        multiprocessors: SMs (or compute units): waves of a matmul are counted over them.
        source: Data sheet of each number.
    """

    name: str
    architecture: str
    memory_bytes: int
    usable_bytes: int
    bandwidth_bytes_per_s: float
    peak_flops: Mapping[str, float]
    multiprocessors: int
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLevel:
    """One level of the cluster's hierarchy, nearest first: NVLink island, node, network.

    Attributes:
        name: Word for reports: "nvlink", "pcie", "infiniband", ..
        gpus: GPUs that one domain of this level joins; 0 means the whole cluster.
        bandwidth_bytes_per_s: One direction, per GPU, when all GPUs of the domain send at once.
        latency_s: Time of one step of a collective beyond the bytes.
        kind: Technology, selects efficiencies: nvlink, nvswitch, pcie, infiniband, roce, ethernet, efa, omnipath.
        source: Where the numbers come from.
    """

    name: str
    gpus: int
    bandwidth_bytes_per_s: float
    latency_s: float
    kind: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """A number of equal GPUs in equal nodes."""

    device: DeviceSpec
    gpus: int
    gpus_per_node: int
    levels: tuple[LinkLevel, ...]

    @property
    def nodes(self) -> int:
        """Nodes, the last of which may be only partly used."""
        return -(-self.gpus // self.gpus_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The GPUs at hand: one group, or several of different devices.

    Attributes:
        name: Catalog name or file name.
        groups: Groups of equal GPUs, in rank order.
        price_per_gpu_hour: In the user's currency; None where no price is known.
        host_memory_bytes: Host memory of a node, for offload; 0 means unknown.
        storage_bytes_per_s: Read bandwidth of the storage, 0 means unknown.
    """

    name: str
    groups: tuple[DeviceGroup, ...]
    price_per_gpu_hour: float | None = None
    host_memory_bytes: int = 0
    storage_bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.groups or self.gpus < 1:
            raise InputError("must have at least one GPU", key="cluster.gpus", value=0, nearest=1)

    @property
    def gpus(self) -> int:
        """Number of GPUs in all groups."""
        return sum(group.gpus for group in self.groups)

    @property
    def kinds(self) -> str:
        """How many GPUs of each device there are, in words."""
        return " + ".join(f"{group.gpus} {group.device.name}" for group in self.groups)

    @property
    def slowest(self) -> DeviceGroup:
        """The group with the lowest peak: what is spread over all groups is priced like one of it."""
        return min(self.groups, key=lambda group: max(group.device.peak_flops.values()))

    @property
    def device(self) -> DeviceSpec:
        """The device of the slowest group."""
        return self.slowest.device

    @property
    def gpus_per_node(self) -> int:
        """GPUs in a node of the slowest group."""
        return self.slowest.gpus_per_node

    @property
    def levels(self) -> tuple[LinkLevel, ...]:
        """Link levels of the slowest group, nearest first."""
        return self.slowest.levels


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    """How the model is trained.

    Attributes:
        global_batch: Sequences per iteration.
        sequence: Tokens per sequence.
        framework: Name of the framework whose behaviour and rules hold (costmodel.frameworks).
        precision: Arithmetic of the matmuls.
        attention: Fused (flash) or unfused attention kernels.
        tokens: Tokens of the whole training, None if not asked for.
        decoder_sequence: Tokens of the decoder's sequence in encoder-decoder models, 0 = ``sequence``.
        options: Further named behaviours of the framework (see costmodel.frameworks), for example
            ``{"gradient_dtype": "bf16"}``.
    """

    global_batch: int
    sequence: int
    framework: str = "megatron"
    precision: Precision = "bf16"
    attention: AttentionKernel = "flash"
    tokens: float | None = None
    decoder_sequence: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
