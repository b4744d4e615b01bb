"""Vision transformers (Dosovitskiy et al., 2020)."""

import math
from collections import OrderedDict
from functools import partial

from ... import cat, empty, nn, zeros
from ..ops.misc import MLP
from ._registry import variant

__all__ = ["VisionTransformer", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32"]


class EncoderBlock(nn.Module):
    """Attention among the patches, then two linear layers, each with a way around it."""

    def __init__(self, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLP(hidden_dim, [mlp_dim, hidden_dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for m in self.mlp.modules():
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                nn.init.normal_(m.bias, std=1e-6)

    def forward(self, input):  # noqa: A002
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Positions and the blocks."""

    def __init__(self, seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(OrderedDict(
            (f"encoder_layer_{i}", EncoderBlock(num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer))
            for i in range(num_layers)))
        self.ln = norm_layer(hidden_dim)

    def forward(self, input):  # noqa: A002
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """Images (N, 3, image_size, image_size) to scores (N, num_classes), by patches of patch_size."""

    def __init__(self, image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, dropout=0.0, attention_dropout=0.0,
                 num_classes=1000, representation_size=None, norm_layer=partial(nn.LayerNorm, eps=1e-6)) -> None:
        super().__init__()
        if image_size % patch_size:
            raise AssertionError("Input shape indivisible by patch size!")
        self.image_size, self.patch_size, self.hidden_dim, self.num_classes = image_size, patch_size, hidden_dim, num_classes
        self.conv_proj = nn.Conv2d(3, hidden_dim, kernel_size=patch_size, stride=patch_size)
        self.class_token = nn.Parameter(zeros(1, 1, hidden_dim))
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        heads = OrderedDict()
        if representation_size is not None:
            heads["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            heads["act"] = nn.Tanh()
        heads["head"] = nn.Linear(representation_size or hidden_dim, num_classes)
        self.heads = nn.Sequential(heads)
        nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / (3 * patch_size**2)))
        nn.init.zeros_(self.conv_proj.bias)
        if representation_size is not None:
            nn.init.trunc_normal_(self.heads.pre_logits.weight, std=math.sqrt(1 / hidden_dim))
            nn.init.zeros_(self.heads.pre_logits.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def _process_input(self, x):
        if x.shape[-2:] != (self.image_size, self.image_size):
            raise AssertionError(f"Wrong image height or width! Expected {self.image_size} but got {tuple(x.shape[-2:])}!")
        return self.conv_proj(x).flatten(2).transpose(1, 2)

    def forward(self, x):
        x = self._process_input(x)
        x = self.encoder(cat([self.class_token.expand(len(x), -1, -1), x], dim=1))
        return self.heads(x[:, 0])


def _function(name: str, patch: int, layers: int, heads: int, width: int):
    return variant(name, VisionTransformer, f"A vision transformer of {layers} layers of width {width} on patches of {patch} pixels.",
                   image_size=224, patch_size=patch, num_layers=layers, num_heads=heads, hidden_dim=width, mlp_dim=4 * width)


vit_b_16, vit_b_32 = _function("vit_b_16", 16, 12, 12, 768), _function("vit_b_32", 32, 12, 12, 768)
vit_l_16, vit_l_32 = _function("vit_l_16", 16, 24, 16, 1024), _function("vit_l_32", 32, 24, 16, 1024)
vit_h_14 = _function("vit_h_14", 14, 32, 16, 1280)
