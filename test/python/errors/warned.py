"""What PyTorch warns of, and what happens here: the one table of docs/errors.md and of its test.

Of the warnings of PyTorch 2.13 that a user of what is here can meet: every `warnings.warn` of its Python files and every TORCH_WARN of
its operators, but for those of its compilers, exporters, quantisation and other devices.
"""

from collections import namedtuple

Warned = namedtuple("Warned", "section title code said")

# title :: program, with ~ between its lines :: what happens here: the category of the warning, "raises ..." for an error, "no: ..." with the
# reason for silence
_TABLE = '''
# Losses
mse_loss of shapes that broadcast :: F.mse_loss(tg.ones(4, 1), tg.ones(4)) :: UserWarning
l1_loss of shapes that broadcast :: F.l1_loss(tg.ones(4, 1), tg.ones(4)) :: UserWarning
smooth_l1_loss of shapes that broadcast :: F.smooth_l1_loss(tg.ones(4, 1), tg.ones(4)) :: UserWarning
huber_loss of shapes that broadcast :: F.huber_loss(tg.ones(4, 1), tg.ones(4)) :: UserWarning
the same of layers :: tg.nn.MSELoss()(tg.ones(4, 1), tg.ones(4)) :: UserWarning
the mean of kl_div :: F.kl_div(tg.zeros(2, 3), tg.ones(2, 3)) :: UserWarning
the mean of KLDivLoss :: tg.nn.KLDivLoss()(tg.zeros(2, 3), tg.ones(2, 3)) :: UserWarning
the old word for the mean :: F.mse_loss(tg.ones(4), tg.ones(4), reduction='elementwise_mean') :: UserWarning
the old flags of losses :: F.mse_loss(tg.ones(4), tg.ones(4), size_average=False) :: UserWarning
the old flags of loss layers :: tg.nn.MSELoss(size_average=False) :: UserWarning
# The tape
the gradient of what is no leaf :: (tg.ones(2, requires_grad=True) * 2).grad :: UserWarning
backward that keeps its own graph :: (tg.ones(1, requires_grad=True) ** 2).backward(create_graph=True) :: UserWarning
float() of what needs a gradient :: float(tg.ones((), requires_grad=True)) :: UserWarning
tensor() of a tensor :: tg.tensor(tg.ones(2)) :: UserWarning
new_tensor() of a tensor :: tg.ones(1).new_tensor(tg.ones(2)) :: UserWarning
the old name of grad_tensors :: tg.autograd.backward(tg.ones(1, requires_grad=True) * 2, grad_variables=tg.ones(1)) :: FutureWarning
gradients of other leaves, too :: x = tg.ones(1, requires_grad=True); tg.autograd.grad(x * 2, x, only_inputs=False) :: raises ValueError
volatile, which is no more :: tg.autograd.Variable(tg.ones(1), volatile=True) :: UserWarning
anomaly detection switched on :: tg.autograd.detect_anomaly() :: UserWarning
no_grad around a class :: tg.no_grad()(type('C', (), {})) :: FutureWarning
gradcheck of float32 :: tg.autograd.gradcheck(lambda x: x * 2, tg.ones(1, requires_grad=True), atol=1) :: UserWarning
an instance of a Function :: tg.autograd.Function() :: no: calling it raises
checkpoint without use_reentrant :: tg.utils.checkpoint.checkpoint(lambda x: x * 2, tg.ones(1, requires_grad=True)) :: UserWarning
checkpoint of what needs no gradient :: tg.utils.checkpoint.checkpoint(lambda x: x * 2, tg.ones(1), use_reentrant=True) :: UserWarning
a tensor with hooks written to a file :: x = tg.ones(1, requires_grad=True); x.register_hook(print); pickle.dumps(x) :: no: hooks are never part of a file
# Operators
complex numbers made real :: tg.ones(2, dtype=tg.complex64).to(tg.float32) :: UserWarning
complex numbers copied into real ones :: tg.zeros(2).copy_(tg.ones(2, dtype=tg.complex64)) :: UserWarning
out= of another shape :: tg.add(tg.ones(2), tg.ones(2), out=tg.ones(3)) :: UserWarning
std of too few :: tg.std(tg.ones(1)) :: UserWarning
var of too few :: tg.ones(3, 1).var(1) :: UserWarning
var_mean of none :: tg.var_mean(tg.ones(0)) :: UserWarning
cov of one observation :: tg.cov(tg.ones(3, 1)) :: UserWarning
corrcoef of one observation :: tg.corrcoef(tg.ones(3, 1)) :: UserWarning
meshgrid without indexing :: tg.meshgrid(tg.ones(2), tg.ones(3)) :: UserWarning
cross without dim :: tg.cross(tg.ones(2, 3), tg.ones(2, 3)) :: UserWarning
.T of more than two dimensions :: tg.ones(2, 3, 4).T :: UserWarning
.T of a number :: tg.ones(()).T :: UserWarning
.mT of a number :: tg.ones(()).mT :: UserWarning
.H of a number :: tg.ones(()).H :: UserWarning
stft without a window :: tg.stft(tg.ones(400), 100, return_complex=True) :: UserWarning
istft without a window :: tg.istft(tg.ones(51, 17, dtype=tg.complex64), 100) :: UserWarning
range :: tg.range(0, 3) :: UserWarning
a list as several subscripts :: tg.ones(2, 3)[[0, slice(None)]] :: UserWarning
a mask of bytes :: tg.ones(3)[tg.tensor([1, 0, 1], dtype=tg.uint8)] :: UserWarning
where with a condition of bytes :: tg.where(tg.tensor([1, 0], dtype=tg.uint8), tg.ones(2), tg.zeros(2)) :: raises RuntimeError
the old order of arguments :: tg.ones(2).add(2, tg.ones(2)) :: UserWarning
writing to expanded memory :: tg.ones(1, 3).expand(2, 3).index_fill_(0, tg.tensor([0]), 2.0) :: raises RuntimeError
a mask on expanded memory :: tg.ones(1, 3).expand(2, 3).masked_fill_(tg.ones(2, 3, dtype=tg.bool), 2.0) :: raises RuntimeError
a precision that is none :: tg.set_float32_matmul_precision('low') :: raises ValueError
resize that is not in place :: tg.ones(2).resize(2) :: UserWarning
resize_as that is not in place :: tg.ones(2).resize_as(tg.ones(2)) :: UserWarning
a read-only buffer :: tg.frombuffer(b'abcdabcd', dtype=tg.float32) :: no: writing to the tensor raises
a read-only array :: tg.as_tensor(np.frombuffer(b'abcdabcd', dtype=np.float32)) :: UserWarning, once; writing to the tensor raises
a list of arrays :: tg.tensor([np.ones(2), np.ones(2)]) :: no: arrays are copied as a whole
searchsorted in a view :: tg.searchsorted(tg.ones(4, 4)[:, 0], tg.ones(2)) :: no: it costs no more than contiguous() does
padding of an even kernel :: F.conv1d(tg.ones(1, 1, 4), tg.ones(1, 1, 2), padding='same') :: no: it costs time only
asarray of what needs a gradient :: tg.asarray(tg.ones(1, requires_grad=True)) :: no: the gradient is kept only where requires_grad=True says so
writing without a fixed order :: tg.use_deterministic_algorithms(True, warn_only=True); tg.zeros(3).put_(tg.tensor([0]), tg.ones(1)); tg.use_deterministic_algorithms(False) :: no: every operator gives the same bits each time
indices of sparse tensors :: tg.sparse_coo_tensor(tg.zeros(1, 1, dtype=tg.int64), tg.ones(1), (2,)) :: no: sparse tensors are always checked here
compressed sparse tensors :: tg.ones(2, 2).to_sparse_csr() :: no: nothing is provisional about it here
index_reduce :: tg.zeros(3).index_reduce_(0, tg.tensor([0]), tg.ones(1), 'prod') :: no: nothing is provisional about it here
complex numbers of 16 bits :: tg.ones(2, dtype=tg.complex32) :: no: nothing is provisional about it here
scatter with reduce= :: tg.zeros(3).scatter_(0, tg.tensor([0]), tg.ones(1), reduce='add') :: no: it works the same, and stays
pairs of stft :: tg.stft(tg.ones(400), 100, window=tg.ones(100), return_complex=False) :: no: it works the same, and stays
lu :: tg.lu(tg.eye(2)) :: no: the name stays
lu_solve :: tg.lu_solve(tg.ones(2, 1), *tg.linalg.lu_factor(tg.eye(2))) :: no: the name stays
qr :: tg.qr(tg.eye(2)) :: no: the name stays
cholesky :: tg.cholesky(tg.eye(2)) :: no: the name stays
triangular_solve :: tg.triangular_solve(tg.ones(2, 1), tg.eye(2)) :: no: the name stays
chain_matmul :: tg.chain_matmul(tg.eye(2), tg.eye(2)) :: no: the name stays
storage :: tg.ones(2).storage() :: no: the name stays
set_default_tensor_type :: tg.set_default_tensor_type(tg.FloatTensor) :: UserWarning
# Layers
softmax without dim :: F.softmax(tg.ones(2)) :: UserWarning
Softmax without dim :: tg.nn.Softmax()(tg.ones(2)) :: UserWarning
gumbel_softmax with eps :: F.gumbel_softmax(tg.ones(2), eps=1e-3) :: UserWarning
dropout2d of three dimensions :: F.dropout2d(tg.ones(2, 3, 4)) :: UserWarning
Dropout2d of two dimensions :: tg.nn.Dropout2d()(tg.ones(2, 3)) :: UserWarning
dropout3d of two dimensions :: F.dropout3d(tg.ones(2, 3)) :: UserWarning
embedding_bag in the old order :: F.embedding_bag(tg.ones(4, 3), tg.tensor([0, 1]), tg.tensor([0])) :: UserWarning
masks of two dtypes :: tg.nn.MultiheadAttention(4, 2)(*[tg.ones(2, 1, 4)] * 3, attn_mask=tg.zeros(2, 2), key_padding_mask=tg.zeros(1, 2, dtype=tg.bool)) :: UserWarning
dropout of one recurrent layer :: tg.nn.LSTM(2, 2, dropout=0.5) :: UserWarning
InstanceNorm of other channels :: tg.nn.InstanceNorm1d(5)(tg.ones(2, 3, 4)) :: UserWarning
weights without elements :: tg.nn.Linear(0, 2) :: UserWarning
a mean far outside of the bounds :: tg.nn.init.trunc_normal_(tg.ones(2), mean=5.0) :: UserWarning
initialisers without their _ :: tg.nn.init.uniform(tg.ones(2)) :: FutureWarning
the old names of Hardtanh's limits :: tg.nn.Hardtanh(min_value=-1) :: FutureWarning
NLLLoss2d :: tg.nn.NLLLoss2d() :: FutureWarning
Container :: tg.nn.Container() :: FutureWarning
clipping of no parameters :: tg.nn.utils.clip_grad_norm_((p for p in ()), 1.0) :: UserWarning
clip_grad_norm :: tg.nn.utils.clip_grad_norm([tg.ones(2, requires_grad=True)], 1.0) :: FutureWarning
weight_norm :: tg.nn.utils.weight_norm(tg.nn.Linear(2, 2)) :: FutureWarning
state_dict by position :: tg.nn.Linear(2, 2).state_dict({}) :: FutureWarning
values loaded into a meta module :: tg.nn.Linear(2, 2, bias=False, device='meta').load_state_dict(tg.nn.Linear(2, 2, bias=False).state_dict()) :: UserWarning
old backward hooks :: m = tg.nn.Linear(2, 2); m.register_backward_hook(lambda *a: None); m(tg.ones(2, requires_grad=True)) :: FutureWarning
backward hooks without inputs to reach :: m = tg.nn.Linear(2, 2); m.register_full_backward_hook(lambda *a: None); m(tg.ones(2)).sum().backward() :: UserWarning
complex layers :: tg.nn.Linear(2, 2).to(tg.complex64) :: no: nothing is provisional about it here
layers of nested tensors :: tg.nn.TransformerEncoder(tg.nn.TransformerEncoderLayer(4, 2), 1) :: no: there are no nested tensors
upsample :: F.upsample(tg.ones(1, 1, 2, 2), scale_factor=2) :: no: the name stays
the default of align_corners :: F.grid_sample(tg.ones(1, 1, 2, 2), tg.zeros(1, 2, 2, 2)) :: no: it was never another one here
stateless.functional_call :: tg.nn.utils.stateless.functional_call(tg.nn.Linear(2, 2), {}, (tg.ones(2),)) :: no: the name stays
# Optimizers and data
a schedule before its optimizer :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); s = tg.optim.lr_scheduler.StepLR(o, 1); s.step() :: UserWarning
a schedule with an epoch :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); s = tg.optim.lr_scheduler.StepLR(o, 1); o.step(); s.step(3) :: UserWarning
get_lr outside of step :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); s = tg.optim.lr_scheduler.StepLR(o, 1); o.step(); s.get_lr() :: UserWarning
a parameter twice :: p = tg.ones(1, requires_grad=True); tg.optim.SGD([p, p], 0.1) :: UserWarning
more workers than processors :: tg.utils.data.DataLoader([1, 2], num_workers=1000) :: UserWarning
pinned memory without a GPU :: list(tg.utils.data.DataLoader([1, 2], pin_memory=True)) :: UserWarning
more samples than len() says :: class I(tg.utils.data.IterableDataset):~    def __iter__(self): return iter([1, 2])~    def __len__(self): return 1~loader = tg.utils.data.DataLoader(I()); len(loader)~for _ in loader: pass :: UserWarning
an empty part of a split :: tg.utils.data.random_split([1], [0.9, 0.1]) :: UserWarning
a distribution without constraints :: class N(tg.distributions.Distribution): pass~N() :: UserWarning
sample_n :: tg.distributions.Normal(0.0, 1.0).sample_n(2) :: FutureWarning
Wishart of few degrees of freedom :: tg.distributions.Wishart(tg.tensor(1.5), tg.eye(2)) :: UserWarning
autocast of a GPU without one :: tg.autocast('cuda') :: UserWarning
cuda.amp.autocast :: tg.cuda.amp.autocast() :: FutureWarning
assert_allclose :: tg.testing.assert_allclose(tg.ones(2), tg.ones(2)) :: FutureWarning
a schedule of the profiler without warm-up :: tg.profiler.schedule(wait=1, warmup=0, active=1) :: UserWarning
jit.script :: tg.jit.script(tg.nn.Linear(2, 2)) :: UserWarning, once
cuda.memory_cached :: tg.cuda.memory_cached() :: no: the name stays
'''


def _rows():
    section = None
    for line in _TABLE.strip().splitlines():
        if line.startswith("# "):
            section = line.removeprefix("# ")
        else:
            title, code, said = line.split(" :: ")
            yield Warned(section, title, code.replace("~", "\n"), said)


WARNED = list(_rows())


def page() -> list[str]:
    """The section of docs/errors.md."""
    lines = ["## What is warned of", "",
             "What PyTorch 2.13 warns of, and what happens here. Warnings name the line of the program, not one of this package, and come once for each",
             "line where Python's filter is not told otherwise. `F` is `tg.nn.functional`."]
    section = None
    for w in WARNED:
        if w.section != section:
            section = w.section
            lines += ["", f"### Warnings: {section}", "", "| | | here |", "| --- | --- | --- |"]
        code = w.code.replace("\n", "; ").replace("|", "\\|")
        lines.append(f"| {w.title} | `{code}` | {w.said} |")
    return lines
