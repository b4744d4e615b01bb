"""Lines that mypy and pyright take as right: an installed wheel is checked with this file (test_types.py)."""

from collections.abc import Iterator

import numpy
import tapegrad as tg
import tapegrad.nn.functional as F
from tapegrad import Tensor, nn
from tapegrad.utils.data import DataLoader, Dataset, TensorDataset

# Creation.
a: Tensor = tg.rand(3, 4)
b: Tensor = tg.rand((3, 4), dtype=tg.float64, requires_grad=True)
c = tg.zeros(2, 3, device="cpu")
d = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
e = tg.arange(0, 10, 2)
f = tg.full((2, 2), 7)
g = tg.from_numpy(numpy.zeros(3))
h = tg.randint(0, 5, (3,))
i = tg.eye(3, dtype=tg.float32)
j = tg.zeros_like(a)

# Operators and methods.
k: Tensor = a + 1
m: Tensor = 2 * a - b / 3
n: Tensor = a @ b.T
o: Tensor = -a
p: Tensor = a[0, 1:]
q: Tensor = a > 0
a += 1
r: tuple[int, ...] = a.shape
s: int = a.shape[0]
t: int = a.size(0)
u: Tensor = a.view(4, 3)
v: Tensor = a.reshape((12,))
w: Tensor = a.permute(1, 0)
x: float = float(a.sum())
y: Tensor = a.sum(dim=1, keepdim=True)
z: Tensor = a.max(dim=1).values
aa: Tensor = a.max()
values, indices = a.topk(2)
ab: Tensor = a.to("cpu")
ac: Tensor = a.to(tg.float64)
ad: numpy.ndarray = a.numpy()
ae: int = a.numel()
af: bool = a.requires_grad
ag: Tensor | None = a.grad
ah: tg.dtype = a.dtype
ai: Tensor = tg.cat([a, b], dim=0)
aj: Tensor = tg.where(a > 0, a, 0.0)
ak: Tensor = tg.einsum("ij,jk->ik", a, b)
al: Tensor = tg.stack((a, b))
am: Tensor = a.add_(1).mul_(2)
an: Tensor = tg.linalg.norm(a)
ao: Tensor = tg.fft.rfft(a)
a.backward(retain_graph=True)
for row in a:
    ap: Tensor = row.float()


# Networks.
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.norm(self.first(x))))


net = Net()
aq: Tensor = net(a)
ar: Tensor = net.first.weight
layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5))
loss: Tensor = F.cross_entropy(net(a), h, label_smoothing=0.1)
criterion = nn.CrossEntropyLoss()
as_: Tensor = F.conv2d(a, b, padding=1)
at: Tensor = F.softmax(a, dim=-1)
optimizer = tg.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
optimizer.zero_grad()
optimizer.step()
schedule = tg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
au: dict = net.state_dict()
av: Net = net.eval()
aw: Net = net.to("cpu")
with tg.no_grad():
    ax = net(a)


@tg.no_grad()
def evaluate(model: nn.Module, x: Tensor) -> float:
    return model(x).mean().item()


ay: float = evaluate(net, a)


# Data.
class Squares(Dataset[tuple[int, Tensor]]):
    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        return index, tg.tensor(index * index)

    def __len__(self) -> int:
        return 10


number, square = Squares()[3]
loader: DataLoader[tuple[int, Tensor]] = DataLoader(Squares(), batch_size=4, shuffle=True)
for _batch in loader:
    pass
pairs = DataLoader(TensorDataset(a, h), batch_size=2)


def steps() -> Iterator[Tensor]:
    yield from a


tg.save(net.state_dict(), "net.pt")
az = tg.load("net.pt")
tg.manual_seed(0)
ba: tg.device = tg.device("cpu")
