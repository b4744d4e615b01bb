"""Networks for images, as their papers describe them: written once for tapegrad and for PyTorch, whose names they share.
Without dropout, so that a step is the same work and the same numbers in every library and in a graph."""

from .sizes import Sizes


def alexnet(lib, s: Sizes):
    nn = lib.nn

    def conv(a, b, k, **options):
        return [nn.Conv2d(a, b, k, **options), nn.ReLU(inplace=True)]

    a, b, c, wide = s.cut(64), s.cut(192), s.cut(256), s.cut(4096, 256)
    return nn.Sequential(*conv(3, a, 11, stride=4, padding=2), nn.MaxPool2d(3, 2), *conv(a, b, 5, padding=2), nn.MaxPool2d(3, 2), *conv(b, 2 * b, 3, padding=1),
                         *conv(2 * b, c, 3, padding=1), *conv(c, c, 3, padding=1), nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d(s.of(6, 1)), nn.Flatten(),
                         nn.Linear(c * s.of(6, 1) ** 2, wide), nn.ReLU(inplace=True), nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Linear(wide, s.of(1000, 10)))


def vgg19(lib, s: Sizes):
    nn, layers, before = lib.nn, [], 3
    for channels, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [nn.Conv2d(before, s.cut(channels), 3, padding=1), nn.ReLU(inplace=True)]
            before = s.cut(channels)
        layers.append(nn.MaxPool2d(2))
    wide = s.cut(4096, 256)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(s.of(7, 1)), nn.Flatten(), nn.Linear(before * s.of(7, 1) ** 2, wide), nn.ReLU(inplace=True),
                         nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Linear(wide, s.of(1000, 10)))


def resnet50(lib, s: Sizes):
    nn = lib.nn

    class Bottleneck(nn.Module):
        def __init__(self, before, inner, after, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(before, inner, 1, bias=False), nn.BatchNorm2d(inner)
            self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(inner)
            self.conv3, self.bn3 = nn.Conv2d(inner, after, 1, bias=False), nn.BatchNorm2d(after)
            self.relu = nn.ReLU(inplace=True)
            self.other = None
            if stride != 1 or before != after:
                self.other = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            return self.relu(y + (x if self.other is None else self.other(x)))

    before = s.cut(64)
    layers = [nn.Conv2d(3, before, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(before), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    for number, (inner, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for i in range(count):
            layers.append(Bottleneck(before, s.cut(inner), 4 * s.cut(inner), 2 if number and i == 0 else 1))
            before = 4 * s.cut(inner)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, s.of(1000, 10)))


def _conv_norm(nn, a, b, k, stride=1, groups=1, relu="ReLU6"):
    return [nn.Conv2d(a, b, k, stride=stride, padding=k // 2, groups=groups, bias=False), nn.BatchNorm2d(b), getattr(nn, relu)(inplace=True)]


def mobilenet_v1(lib, s: Sizes):
    nn, before = lib.nn, s.cut(32)
    layers = _conv_norm(nn, 3, before, 3, 2, relu="ReLU")
    for channels, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)):
        layers += _conv_norm(nn, before, before, 3, stride, before, "ReLU") + _conv_norm(nn, before, s.cut(channels), 1, relu="ReLU")
        before = s.cut(channels)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, s.of(1000, 10)))


def mobilenet_v2(lib, s: Sizes):
    nn = lib.nn

    class Inverted(nn.Module):
        def __init__(self, before, after, stride, expand):
            super().__init__()
            inner = before * expand
            self.body = nn.Sequential(*(_conv_norm(nn, before, inner, 1) if expand > 1 else []), *_conv_norm(nn, inner, inner, 3, stride, inner),
                                      nn.Conv2d(inner, after, 1, bias=False), nn.BatchNorm2d(after))
            self.through = stride == 1 and before == after

        def forward(self, x):
            return x + self.body(x) if self.through else self.body(x)

    before = s.cut(32)
    layers = _conv_norm(nn, 3, before, 3, 2)
    for expand, channels, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            layers.append(Inverted(before, s.cut(channels), stride if i == 0 else 1, expand))
            before = s.cut(channels)
    return nn.Sequential(*layers, *_conv_norm(nn, before, s.cut(1280), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(s.cut(1280), s.of(1000, 10)))


def vit_small(lib, s: Sizes):
    """ViT-S/16: twelve blocks of width 384 with six heads on patches of 16 x 16."""
    from .sequences import Block

    nn, width, heads, side = lib.nn, s.of(384, 16), s.of(6, 2), s.of(224, 32)

    class VisionTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, 16, stride=16)
            self.first, self.places = nn.Parameter(lib.zeros(1, 1, width)), nn.Parameter(lib.randn(1, (side // 16) ** 2 + 1, width) * 0.02)
            self.blocks = nn.Sequential(*[Block(lib, width, heads) for _ in range(12)])
            self.ln, self.out = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, s.of(1000, 10))

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = lib.cat([self.first.expand(len(x), 1, width), x], 1) + self.places
            return self.out(self.ln(self.blocks(x))[:, 0])

    return VisionTransformer()


def diffusion_unet(lib, s: Sizes):
    """A U-Net that says which noise is in an image of 32 x 32 (Ho et al., 2020), two scales and attention in the middle."""
    nn, F = lib.nn, lib.nn.functional
    width, groups = s.of(64, 8), s.of(8, 2)
    known = 4 * width

    class Residual(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.norm1, self.conv1 = nn.GroupNorm(groups, before), nn.Conv2d(before, after, 3, padding=1)
            self.norm2, self.conv2 = nn.GroupNorm(groups, after), nn.Conv2d(after, after, 3, padding=1)
            self.known, self.past = nn.Linear(known, after), nn.Conv2d(before, after, 1) if before != after else nn.Identity()

        def forward(self, x, t):
            h = self.conv1(F.silu(self.norm1(x))) + self.known(t)[:, :, None, None]
            return self.past(x) + self.conv2(F.silu(self.norm2(h)))

    class Attention(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.norm, self.qkv, self.out = nn.GroupNorm(groups, channels), nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

        def forward(self, x):
            n, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x)).view(n, 3, 4, c // 4, h * w).transpose(3, 4).unbind(1)
            return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(n, c, h, w))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            w = width
            self.register_buffer("frequencies", lib.exp(lib.linspace(0.0, -9.0, w // 2)), persistent=False)
            self.time = nn.Sequential(nn.Linear(w, known), nn.SiLU(), nn.Linear(known, known), nn.SiLU())
            self.start, self.end = nn.Conv2d(3, w, 3, padding=1), nn.Sequential(nn.GroupNorm(groups, w), nn.SiLU(), nn.Conv2d(w, 3, 3, padding=1))
            self.down1, self.smaller1, self.down2, self.smaller2 = Residual(w, w), nn.Conv2d(w, w, 3, 2, 1), Residual(w, 2 * w), nn.Conv2d(2 * w, 2 * w, 3, 2, 1)
            self.middle1, self.attention, self.middle2 = Residual(2 * w, 2 * w), Attention(2 * w), Residual(2 * w, 2 * w)
            self.up2, self.up1 = Residual(4 * w, w), Residual(2 * w, w)

        def forward(self, x, time):
            angles = time[:, None] * self.frequencies
            t = self.time(lib.cat([angles.sin(), angles.cos()], 1))
            first = self.down1(self.start(x), t)
            second = self.down2(self.smaller1(first), t)
            x = self.middle2(self.attention(self.middle1(self.smaller2(second), t)), t)
            x = self.up2(lib.cat([F.interpolate(x, scale_factor=2.0), second], 1), t)
            return self.end(self.up1(lib.cat([F.interpolate(x, scale_factor=2.0), first], 1), t))

    return UNet()
