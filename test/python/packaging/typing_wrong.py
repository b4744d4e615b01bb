"""Every line with a comment at its end is wrong, and mypy and pyright say so, for each and for no other (test_types.py)."""

import tapegrad as tg
import tapegrad.nn.functional as F
from tapegrad import Tensor, nn
from tapegrad.utils.data import DataLoader, Dataset, TensorDataset

x = tg.rand(3, 4)
net = nn.Linear(4, 2)

tg.rand("3")  # wrong
tg.rand(3.5, 2)  # wrong
tg.rnd(3)  # wrong
tg.zeros(2, dtype="float32")  # wrong
tg.zeros(2, requires_grad="yes")  # wrong
tg.arange("10")  # wrong
tg.full((2, 2))  # wrong
tg.eye()  # wrong
tg.cat(x, x)  # wrong
tg.cat([1, 2])  # wrong
tg.stack(3)  # wrong
tg.relu("x")  # wrong
tg.relu(x, 1, 2)  # wrong
tg.matmul(x)  # wrong
tg.softmax(x, dim="last")  # wrong
tg.manual_seed("zero")  # wrong
tg.einsum(3, x)  # wrong
tg.where(x > 0, x)  # wrong
tg.linalg.nrom(x)  # wrong
tg.linalg.inv(3)  # wrong
tg.fft.rfft("x")  # wrong
tg.tensor()  # wrong
tg.tensr([1])  # wrong
tg.no_grad(1, 2)  # wrong
tg.topk(x)  # wrong
x + "1"  # wrong
"1" - x  # wrong
x @ 2  # wrong
x.sume()  # wrong
x.sum(dim="0")  # wrong
x.view("3")  # wrong
x.reshape(2.5)  # wrong
x.permute("a", "b")  # wrong
x.transpose(0)  # wrong
x.backward(retain_graph="yes")  # wrong
x.shape = (4, 3)  # wrong
x.requires_grad_("no")  # wrong
x.topk()  # wrong
x.add(1, 2, 3, 4)  # wrong
x.item(1, 2)  # wrong
print(x.max(dim=1).vals)  # wrong
x.to(3.5)  # wrong
x.clone(1, 2)  # wrong
x.size("0")  # wrong
x.masked_fill(True)  # wrong
a: int = x.sum()  # wrong
b: str = x.shape  # wrong
c: Tensor = x.tolist  # wrong
nn.Linear(4)  # wrong
nn.Linear("4", 2)  # wrong
nn.Linear(4, 2, bais=False)  # wrong
nn.Liner(4, 2)  # wrong
nn.Conv2d(1, 2)  # wrong
nn.Dropout("0.5")  # wrong
F.relu()  # wrong
F.cross_entropy(x)  # wrong
F.rleu(x)  # wrong
F.conv2d(x)  # wrong
tg.optim.Adam()  # wrong
tg.optim.Adam(net.parameters(), betas=0.9)  # wrong
tg.optim.Adm(net.parameters())  # wrong
tg.optim.SGD(net.parameters(), momentum="0.9")  # wrong
DataLoader(TensorDataset(x), batch_size="2")  # wrong
DataLoader()  # wrong


class Numbers(Dataset[int]):
    def __getitem__(self, index: int) -> str:  # wrong
        return "1"
