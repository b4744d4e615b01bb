"""What PyTorch warns of, and what happens here: the one table of docs/errors.md and of its test.

Every `warnings.warn` of PyTorch 2.13's Python files is in WARNED or NOT_MET, and every file of its C++ with a TORCH_WARN in WARNED or
NOT_MET_IN_CPP: tests look for them all.
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
complex() of what needs a gradient :: complex(tg.ones((), requires_grad=True)) :: UserWarning
tensor() of a tensor :: tg.tensor(tg.ones(2)) :: UserWarning
new_tensor() of a tensor :: tg.ones(1).new_tensor(tg.ones(2)) :: UserWarning
the old name of grad_tensors :: tg.autograd.backward(tg.ones(1, requires_grad=True) * 2, grad_variables=tg.ones(1)) :: FutureWarning
gradients of other leaves, too :: x = tg.ones(1, requires_grad=True); tg.autograd.grad(x * 2, x, only_inputs=False) :: raises ValueError
volatile, which is no more :: tg.autograd.Variable(tg.ones(1), volatile=True) :: UserWarning
anomaly detection switched on :: tg.autograd.detect_anomaly() :: UserWarning
no_grad around a class :: tg.no_grad()(type('C', (), {})) :: FutureWarning
gradcheck of float32 :: tg.autograd.gradcheck(lambda x: x * 2, tg.ones(1, requires_grad=True), atol=1) :: UserWarning
an instance of a Function :: tg.autograd.Function() :: no: calling it raises
mark_shared_storage :: class S(tg.autograd.Function):~    @staticmethod~    def forward(ctx, x): ctx.mark_shared_storage(); return x * 2~S.apply(tg.ones(1, requires_grad=True)) :: raises AttributeError
saved_variables :: class S(tg.autograd.Function):~    @staticmethod~    def forward(ctx, x): ctx.save_for_backward(x); return x * 2~    @staticmethod~    def backward(ctx, grad): ctx.saved_variables; return grad~S.apply(tg.ones(1, requires_grad=True)).backward() :: DeprecationWarning
a gradient of other strides :: x = tg.ones(2, 3, requires_grad=True); x.grad = tg.ones(3, 2).t(); (x * 2).sum().backward() :: no: it costs time only
a NaN that anomaly detection finds :: try:~    with tg.autograd.detect_anomaly(): (tg.zeros(1, requires_grad=True) / 0 * 0).sum().backward()~except RuntimeError: pass :: UserWarning
checkpoint without use_reentrant :: tg.utils.checkpoint.checkpoint(lambda x: x * 2, tg.ones(1, requires_grad=True)) :: UserWarning
checkpoint of what needs no gradient :: tg.utils.checkpoint.checkpoint(lambda x: x * 2, tg.ones(1), use_reentrant=True) :: UserWarning
checkpoint_sequential without use_reentrant :: tg.utils.checkpoint.checkpoint_sequential([tg.nn.Linear(2, 2)], 1, tg.ones(1, 2, requires_grad=True)) :: UserWarning
__torch_function__ that is no classmethod :: class T:~    def __torch_function__(self, func, types, args=(), kwargs=None): return 1~tg.add(T(), tg.ones(1)) :: no: it works the same, and stays
push of a mode :: mod('overrides').TorchFunctionMode.push() :: UserWarning
push of a dispatch mode :: mod('utils._python_dispatch').TorchDispatchMode.push() :: no: the name stays
impl_abstract :: mod('library').impl_abstract('x::y') :: no: the name stays
an operator without a formula for its gradient :: l = mod('library').Library('w1', 'DEF'); l.define('f(Tensor x) -> Tensor'); l.impl('f', lambda x: x.detach() * 2, 'CPU'); tg.ops.w1.f(tg.ones(2, requires_grad=True)).sum().backward() :: raises RuntimeError
a function of an operator in the place of another :: l = mod('library').Library('w2', 'DEF'); l.define('f(Tensor x) -> Tensor'); l.impl('f', lambda x: x * 2, 'CPU'); l.impl('f', lambda x: x * 3, 'CPU') :: UserWarning
a tensor with hooks written to a file :: x = tg.ones(1, requires_grad=True); x.register_hook(print); pickle.dumps(x) :: no: hooks are never part of a file
# Operators
complex numbers made real :: tg.ones(2, dtype=tg.complex64).to(tg.float32) :: UserWarning
complex numbers copied into real ones :: tg.zeros(2).copy_(tg.ones(2, dtype=tg.complex64)) :: UserWarning
out= of another shape :: tg.add(tg.ones(2), tg.ones(2), out=tg.ones(3)) :: UserWarning
arange into a tensor of another length :: tg.arange(3, out=tg.ones(5)) :: UserWarning
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
.mH of a number :: tg.ones(()).mH :: UserWarning
adjoint of a number :: tg.ones(()).adjoint() :: raises RuntimeError
stft without a window :: tg.stft(tg.ones(400), 100, return_complex=True) :: UserWarning
istft without a window :: tg.istft(tg.ones(51, 17, dtype=tg.complex64), 100) :: UserWarning
a signal shorter than it is said to be :: tg.istft(tg.ones(51, 17, dtype=tg.complex64), 100, window=tg.ones(100), length=900) :: UserWarning
range :: tg.range(0, 3) :: UserWarning
a list as several subscripts :: tg.ones(2, 3)[[0, slice(None)]] :: UserWarning
a mask of bytes :: tg.ones(3)[tg.tensor([1, 0, 1], dtype=tg.uint8)] :: UserWarning
where with a condition of bytes :: tg.where(tg.tensor([1, 0], dtype=tg.uint8), tg.ones(2), tg.zeros(2)) :: raises RuntimeError
masked_scatter with a mask of bytes :: tg.ones(2).masked_scatter(tg.tensor([1, 0], dtype=tg.uint8), tg.ones(2)) :: raises RuntimeError
random_ beyond what floats can count :: tg.ones(2).random_(0, 2**30) :: UserWarning
a complex number into a real tensor :: x = tg.ones(2); x[0] = tg.ones((), dtype=tg.complex64) :: raises RuntimeError
the old order of arguments :: tg.ones(2).add(2, tg.ones(2)) :: UserWarning
the old order of addmm's arguments :: tg.addmm(1, tg.ones(2, 2), 1, tg.ones(2, 2), tg.ones(2, 2)) :: UserWarning
writing to expanded memory :: tg.ones(1, 3).expand(2, 3).index_fill_(0, tg.tensor([0]), 2.0) :: raises RuntimeError
index_put_ on expanded memory :: tg.ones(1, 3).expand(2, 3).index_put_((tg.tensor([0]),), tg.ones(3)) :: UserWarning
a mask on expanded memory :: tg.ones(1, 3).expand(2, 3).masked_fill_(tg.ones(2, 3, dtype=tg.bool), 2.0) :: raises RuntimeError
a precision that is none :: tg.set_float32_matmul_precision('low') :: raises ValueError
resize that is not in place :: tg.ones(2).resize(2) :: UserWarning
resize_as that is not in place :: tg.ones(2).resize_as(tg.ones(2)) :: UserWarning
a read-only buffer :: tg.frombuffer(b'abcdabcd', dtype=tg.float32) :: no: writing to the tensor raises
a read-only array :: tg.as_tensor(np.frombuffer(b'abcdabcd', dtype=np.float32)) :: UserWarning, once; writing to the tensor raises
a list of arrays :: tg.tensor([np.ones(2), np.ones(2)]) :: no: arrays are copied as a whole
searchsorted in a view :: tg.searchsorted(tg.ones(4, 4)[:, 0], tg.ones(2)) :: no: it costs no more than contiguous() does
bucketize of a view :: tg.bucketize(tg.ones(4, 4)[:, 0], tg.ones(2)) :: no: it costs no more than contiguous() does
vmap of an operator without a rule :: tg.func.vmap(lambda x: tg.histc(x))(tg.ones(2, 3)) :: no: it costs time only
padding of an even kernel :: F.conv1d(tg.ones(1, 1, 4), tg.ones(1, 1, 2), padding='same') :: no: it costs time only
asarray of what needs a gradient :: tg.asarray(tg.ones(1, requires_grad=True)) :: no: the gradient is kept only where requires_grad=True says so
writing without a fixed order :: tg.use_deterministic_algorithms(True, warn_only=True); tg.zeros(3).put_(tg.tensor([0]), tg.ones(1)); tg.use_deterministic_algorithms(False) :: no: every operator gives the same bits each time
indices of sparse tensors :: tg.sparse_coo_tensor(tg.zeros(1, 1, dtype=tg.int64), tg.ones(1), (2,)) :: no: sparse tensors are always checked here
compressed sparse tensors :: tg.ones(2, 2).to_sparse_csr() :: no: nothing is provisional about it here
sparse tensors compressed by columns :: tg.ones(2, 2).to_sparse_csc() :: no: nothing is provisional about it here
sparse tensors of blocks :: tg.ones(2, 2).to_sparse_bsr((1, 1)) :: no: nothing is provisional about it here
compressed rows made blocks :: tg.ones(2, 2).to_sparse_csr().to_sparse_bsr((1, 1)) :: no: it costs time only
compressed rows made blocks by columns :: tg.ones(2, 2).to_sparse_csr().to_sparse_bsc((1, 1)) :: no: it costs time only
the gradient of log1p of a sparse tensor :: x = tg.eye(3).to_sparse().requires_grad_(); x.log1p().to_dense().sum().backward() :: no: it is made of the entries alone
nested tensors :: tg.nested.nested_tensor([tg.ones(2)]) :: raises AttributeError
the old constructors of sparse tensors :: tg.sparse.FloatTensor() :: no: the name stays
a device of oneDNN :: tg.device('mkldnn') :: no: it is a name like others, where nothing can be allocated
masked tensors :: tg.masked.masked_tensor(tg.ones(3), tg.tensor([True, False, True])) :: raises AttributeError
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
frobenius_norm :: tg.frobenius_norm(tg.ones(2, 2), [0, 1]) :: no: the name stays
nuclear_norm :: tg.nuclear_norm(tg.ones(2, 2)) :: no: the name stays
_aminmax :: tg._aminmax(tg.ones(3)) :: no: the name stays
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
a causal mask that leaves rows empty :: mod('nn.attention.bias').causal_lower_right(4, 2) :: UserWarning
return_lse of flex_attention :: mod('nn.attention.flex_attention').flex_attention(*[tg.ones(1, 1, 16, 16)] * 3, return_lse=True) :: no: it works the same, and stays
flex_attention that is not compiled :: mod('nn.attention.flex_attention').flex_attention(*[tg.ones(1, 1, 16, 16)] * 3) :: no: it is never compiled here
dropout of one recurrent layer :: tg.nn.LSTM(2, 2, dropout=0.5) :: UserWarning
projections of LSTM :: tg.nn.LSTM(4, 4, proj_size=2)(tg.ones(2, 1, 4)) :: no: there is no other implementation
a weight of rms_norm of another dtype :: F.rms_norm(tg.ones(2, 4, dtype=tg.bfloat16), (4,), tg.ones(4)) :: no: it works the same
attention by a kernel that does not take it :: a = mod('nn.attention')~with a.sdpa_kernel(a.SDPBackend.FLASH_ATTENTION): F.scaled_dot_product_attention(*[tg.ones(2, 3, 4)] * 3) :: no: attention has one way of computing, which takes it
InstanceNorm of other channels :: tg.nn.InstanceNorm1d(5)(tg.ones(2, 3, 4)) :: UserWarning
weights without elements :: tg.nn.Linear(0, 2) :: UserWarning
kaiming_normal_ without elements :: tg.nn.init.kaiming_normal_(tg.ones(0, 2)) :: UserWarning
a mean far outside of the bounds :: tg.nn.init.trunc_normal_(tg.ones(2), mean=5.0) :: UserWarning
initialisers without their _ :: tg.nn.init.uniform(tg.ones(2)) :: FutureWarning
the old names of Hardtanh's limits :: tg.nn.Hardtanh(min_value=-1) :: FutureWarning
the other old name of Hardtanh's limits :: tg.nn.Hardtanh(max_value=2) :: FutureWarning
NLLLoss2d :: tg.nn.NLLLoss2d() :: FutureWarning
Container :: tg.nn.Container() :: FutureWarning
clipping of no parameters :: tg.nn.utils.clip_grad_norm_((p for p in ()), 1.0) :: UserWarning
clip_grad_norm :: tg.nn.utils.clip_grad_norm([tg.ones(2, requires_grad=True)], 1.0) :: FutureWarning
weight_norm :: tg.nn.utils.weight_norm(tg.nn.Linear(2, 2)) :: FutureWarning
state_dict by position :: tg.nn.Linear(2, 2).state_dict({}) :: FutureWarning
values loaded into a meta module :: tg.nn.Linear(2, 2, bias=False, device='meta').load_state_dict(tg.nn.Linear(2, 2, bias=False).state_dict()) :: UserWarning
old backward hooks :: m = tg.nn.Linear(2, 2); m.register_backward_hook(lambda *a: None); m(tg.ones(2, requires_grad=True)) :: FutureWarning
old hooks of modules with nested results :: class M(tg.nn.Module):~    def forward(self, x): return ([x * 2], x)~m = M(); m.register_backward_hook(lambda *a: None); m(tg.ones(2, requires_grad=True)) :: FutureWarning
old hooks of modules with several nodes :: class M(tg.nn.Module):~    def forward(self, x): return x * 2, x * 3~m = M(); m.register_backward_hook(lambda *a: None); m(tg.ones(2, requires_grad=True)) :: FutureWarning
old hooks of modules that take a dict :: class M(tg.nn.Module):~    def forward(self, x): return x['a'] * 2~m = M(); m.register_backward_hook(lambda *a: None); m({'a': tg.ones(2, requires_grad=True)}) :: FutureWarning
hooks of a module without tensors :: class M(tg.nn.Module):~    def forward(self, x): return {'a': 1}~m = M(); m.register_full_backward_hook(lambda *a: None); m(tg.ones(2, requires_grad=True)) :: UserWarning
an error in a hook that is always called :: def bad(*a): raise ValueError('hook')~class M(tg.nn.Module):~    def forward(self, x): raise RuntimeError('x')~m = M(); m.register_forward_hook(bad, always_call=True)~try: m(1)~except RuntimeError: pass :: UserWarning
an error in a hook of all modules that is always called :: def bad(*a): raise ValueError('hook')~class M(tg.nn.Module):~    def forward(self, x): raise RuntimeError('x')~h = mod('nn.modules.module').register_module_forward_hook(bad, always_call=True)~try: M()(1)~except RuntimeError: pass~finally: h.remove() :: UserWarning
backward hooks without inputs to reach :: m = tg.nn.Linear(2, 2); m.register_full_backward_hook(lambda *a: None); m(tg.ones(2)).sum().backward() :: UserWarning
complex layers :: tg.nn.Linear(2, 2).to(tg.complex64) :: no: nothing is provisional about it here
layers of nested tensors :: tg.nn.TransformerEncoder(tg.nn.TransformerEncoderLayer(4, 2), 1) :: no: there are no nested tensors
upsample :: F.upsample(tg.ones(1, 1, 2, 2), scale_factor=2) :: no: the name stays
upsample_nearest :: F.upsample_nearest(tg.ones(1, 1, 2, 2), scale_factor=2) :: no: the name stays
upsample_bilinear :: F.upsample_bilinear(tg.ones(1, 1, 2, 2), scale_factor=2) :: no: the name stays
the default of align_corners :: F.grid_sample(tg.ones(1, 1, 2, 2), tg.zeros(1, 2, 2, 2)) :: no: it was never another one here
the same of affine_grid :: F.affine_grid(tg.ones(1, 2, 3), [1, 1, 2, 2]) :: no: it was never another one here
affine_grid of one pixel :: F.affine_grid(tg.ones(1, 2, 3), [1, 1, 1, 2], align_corners=True) :: no: it was never another one here
apply_permutation :: mod('nn.modules.rnn').apply_permutation(tg.ones(1, 2), tg.tensor([1, 0])) :: no: the name stays
is_namedtuple :: mod('nn.parallel.scatter_gather').is_namedtuple((1,)) :: raises AttributeError
a number for the CPU :: mod('nn.parallel.comm').gather([tg.ones(1)], destination=-1) :: raises ModuleNotFoundError
stateless.functional_call :: tg.nn.utils.stateless.functional_call(tg.nn.Linear(2, 2), {}, (tg.ones(2),)) :: no: the name stays
# Optimizers and data
a schedule before its optimizer :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); s = tg.optim.lr_scheduler.StepLR(o, 1); s.step() :: UserWarning
a schedule with an epoch :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); s = tg.optim.lr_scheduler.StepLR(o, 1); o.step(); s.step(3) :: UserWarning
get_lr outside of step :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); s = tg.optim.lr_scheduler.StepLR(o, 1); o.step(); s.get_lr() :: UserWarning
an optimizer whose step was replaced :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); s = tg.optim.lr_scheduler.StepLR(o, 1); o.step = lambda: None; s.step() :: UserWarning
ReduceLROnPlateau with an epoch :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); tg.optim.lr_scheduler.ReduceLROnPlateau(o).step(1.0, 3) :: UserWarning
get_lr of SWALR :: o = tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1); tg.optim.swa_utils.SWALR(o, swa_lr=0.05).get_lr() :: UserWarning
a parameter twice :: p = tg.ones(1, requires_grad=True); tg.optim.SGD([p, p], 0.1) :: UserWarning
more workers than processors :: tg.utils.data.DataLoader([1, 2], num_workers=1000) :: UserWarning
pinned memory without a GPU :: list(tg.utils.data.DataLoader([1, 2], pin_memory=True)) :: UserWarning
pin_memory_device :: list(tg.utils.data.DataLoader([1, 2], pin_memory=True, pin_memory_device='cuda')) :: UserWarning
is_pinned with a device :: tg.ones(1).is_pinned('cuda') :: no: it works the same, and stays
more samples than len() says :: class I(tg.utils.data.IterableDataset):~    def __iter__(self): return iter([1, 2])~    def __len__(self): return 1~loader = tg.utils.data.DataLoader(I()); len(loader)~for _ in loader: pass :: UserWarning
an empty part of a split :: tg.utils.data.random_split([1], [0.9, 0.1]) :: UserWarning
cummulative_sizes :: tg.utils.data.ConcatDataset([[1], [2]]).cummulative_sizes :: raises AttributeError
a distribution without constraints :: class N(tg.distributions.Distribution): pass~N(validate_args=True) :: UserWarning
a distribution without a support :: class N(tg.distributions.Distribution):~    arg_constraints = {}~N(validate_args=True)._validate_sample(tg.ones(1)) :: UserWarning
kl_divergence of two that fit equally :: D = tg.distributions~class A(D.Normal): pass~class B(D.Normal): pass~@D.register_kl(A, D.Normal)~def f(p, q): return 0~@D.register_kl(D.Normal, B)~def g(p, q): return 0~D.kl_divergence(A(0.0, 1.0), B(0.0, 1.0)) :: RuntimeWarning
sample_n :: tg.distributions.Normal(0.0, 1.0).sample_n(2) :: FutureWarning
Wishart of few degrees of freedom :: tg.distributions.Wishart(tg.tensor(1.5), tg.eye(2)) :: UserWarning
a singular sample of Wishart :: tg.manual_seed(0); tg.distributions.Wishart(tg.tensor(1.001), tg.eye(2) * 1e-30, validate_args=False).rsample() :: UserWarning
autocast of a GPU without one :: tg.autocast('cuda') :: UserWarning
autocast of another dtype :: tg.autocast('cpu', dtype=tg.float64) :: UserWarning
a scaler without a GPU :: tg.amp.GradScaler('cuda') :: UserWarning
cuda.amp.autocast :: tg.cuda.amp.autocast() :: FutureWarning
cuda.amp.GradScaler :: mod('cuda.amp').GradScaler() :: FutureWarning
cpu.amp.autocast :: mod('cpu.amp').autocast() :: FutureWarning
cpu.amp.GradScaler :: mod('cpu.amp').GradScaler() :: FutureWarning
cuda.amp.custom_fwd :: mod('cuda.amp').custom_fwd(lambda ctx, x: x) :: no: the name stays
cuda.amp.custom_bwd :: mod('cuda.amp').custom_bwd(lambda ctx, x: x) :: no: the name stays
old names of autocast's state :: tg.is_autocast_cpu_enabled() :: no: the name stays
assert_allclose :: tg.testing.assert_allclose(tg.ones(2), tg.ones(2)) :: FutureWarning
make_tensor between equal bounds :: tg.testing.make_tensor((2,), dtype=tg.float32, device='cpu', low=1, high=1) :: FutureWarning
a schedule of the profiler without warm-up :: tg.profiler.schedule(wait=1, warmup=0, active=1) :: UserWarning
several cycles of the profiler :: p = tg.profiler.profile(schedule=tg.profiler.schedule(wait=0, warmup=1, active=1, repeat=2), activities=[tg.profiler.ProfilerActivity.CPU]); p.start(); [p.step() for _ in range(5)]; p.stop() :: no: on_trace_ready is called with each
use_cuda of the profiler :: mod('autograd.profiler').profile(use_cuda=True) :: FutureWarning
use_cuda of the profiler of steps :: tg.profiler.profile(use_cuda=True) :: FutureWarning
the specification of a leaf of pytrees :: mod('utils._pytree').LeafSpec() :: no: the name stays
the parts of a specification of pytrees :: mod('utils._pytree').tree_structure([1]).children_specs :: no: the name stays
FlopCounterMode of modules :: mod('utils.flop_counter').FlopCounterMode(mods=tg.nn.Linear(1, 1)) :: no: they are left out of account
registering a node of pytrees by its old name :: class A: pass~mod('utils._pytree')._register_pytree_node(A, lambda a: ([], None), lambda v, c: A()) :: no: the name stays
jit.script :: tg.jit.script(tg.nn.Linear(2, 2)) :: UserWarning, once
jit.trace :: tg.jit.trace(tg.nn.Linear(2, 2), (tg.ones(1, 2),)) :: UserWarning, once
cuda.memory_cached :: tg.cuda.memory_cached() :: no: the name stays
cuda.max_memory_cached :: tg.cuda.max_memory_cached() :: no: the name stays
cuda.reset_max_memory_allocated :: tg.cuda.reset_max_memory_allocated() :: no: the name stays
cuda.reset_max_memory_cached :: tg.cuda.reset_max_memory_cached() :: no: the name stays
nccl without NCCL :: mod('cuda.nccl').is_available([tg.ones(1)]) :: no: the answer says it
sdp_kernel :: tg.backends.cuda.sdp_kernel() :: no: the name stays
# Files, downloads and processes
arguments for the reader of pickles :: import io~f = io.BytesIO(); tg.save(tg.ones(1), f); f.seek(0); tg.load(f, encoding='bytes') :: no: files of old Pythons are read so, and no pickle is run
a newer protocol of pickles :: import io~f = io.BytesIO(); tg.save({'a': tg.ones(1)}, f, pickle_protocol=4); f.seek(0); tg.load(f) :: no: it is read
skip_data of meta tensors :: import io~with mod('serialization').skip_data(): tg.save(tg.ones(1, device='meta'), io.BytesIO()) :: no: there is nothing to leave out
TORCH_HUB :: import os; os.environ['TORCH_HUB'] = '/tmp'; tg.hub.get_dir(); del os.environ['TORCH_HUB'] :: no: it works the same, and stays
SpawnContext :: mod('multiprocessing').SpawnContext([], []) :: no: the name stays
a checkpoint of one process :: import tempfile~with tempfile.TemporaryDirectory() as d: c = mod('distributed.checkpoint'); c.save({'a': tg.ones(1)}, checkpoint_id=d); c.load({'a': tg.ones(1)}, checkpoint_id=d) :: no: one process is a world, too
spawn with a start method :: mod('multiprocessing').spawn(print, nprocs=0, start_method='fork') :: FutureWarning
weights_only=False by the environment :: import io, os; f = io.BytesIO(); tg.save(tg.ones(1), f); f.seek(0); os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'~try: tg.load(f)~finally: del os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] :: UserWarning
TORCH_MODEL_ZOO :: import os, tempfile~with tempfile.TemporaryDirectory() as d:~    tg.save({'a': tg.ones(1)}, d + '/x.pth'); os.environ['TORCH_MODEL_ZOO'] = d~    try: tg.hub.load_state_dict_from_url('file://' + d + '/x.pth', model_dir=d + '/out')~    finally: del os.environ['TORCH_MODEL_ZOO'] :: no: it works the same, and stays
# Many processes
a group that the rank is not in :: dist.all_reduce(tg.ones(1), group=dist.GroupMember.NON_GROUP_MEMBER) :: UserWarning
a backend of unknown devices :: dist.Backend.register_backend('another', lambda *a: None) :: UserWarning
reduce_op :: dist.reduce_op.SUM :: FutureWarning
old names of collectives :: dist.all_gather_into_tensor(tg.ones(1), tg.ones(1)) :: no: the name stays
old names of scattered sums :: dist.reduce_scatter_tensor(tg.ones(1), tg.ones(1)) :: no: the name stays
several tensors at once :: dist.all_reduce_coalesced([tg.ones(1)]) :: no: the name stays
several gathered tensors at once :: dist.all_gather_coalesced([[tg.ones(1)]], [tg.ones(1)]) :: no: the name stays
collectives of distributed.nn :: mod('distributed.nn.functional').all_reduce(tg.ones(1, requires_grad=True)) :: no: the name stays
functional collectives :: mod('distributed._functional_collectives').all_gather_tensor(tg.ones(1), 0, dist.group.WORLD) :: no: the name stays
functional scattered sums :: mod('distributed._functional_collectives').reduce_scatter_tensor(tg.ones(1), 'sum', 0, dist.group.WORLD) :: no: the name stays
check_reduction :: mod('nn.parallel').DistributedDataParallel(tg.nn.Linear(1, 1), check_reduction=True) :: FutureWarning
broadcast_buffers :: mod('nn.parallel').DistributedDataParallel(tg.nn.Linear(1, 1), broadcast_buffers=False) :: no: the name stays
broadcast_buffers beside forward_sync_buffers :: mod('nn.parallel').DistributedDataParallel(tg.nn.Linear(1, 1), broadcast_buffers=True, forward_sync_buffers=True) :: FutureWarning
a graph declared static twice :: mod('nn.parallel').DistributedDataParallel(tg.nn.Linear(1, 1), static_graph=True)._set_static_graph() :: no: it is the same as once
a static graph of unused parameters :: mod('nn.parallel').DistributedDataParallel(tg.nn.Linear(1, 1), find_unused_parameters=True)._set_static_graph() :: no: both work together
an averager of period 1 :: mod('distributed.algorithms.model_averaging.averagers').PeriodicModelAverager(period=1) :: UserWarning
an averager's state without steps :: A = mod('distributed.algorithms.model_averaging.averagers').PeriodicModelAverager(period=2); o = mod('distributed.optim').PostLocalSGDOptimizer(tg.optim.SGD([tg.ones(1, requires_grad=True)], 0.1), A); s = o.state_dict(); s.pop('step'); o.load_state_dict(s) :: UserWarning
a plan for modules that are not there :: t = mod('distributed.tensor.parallel'); t.parallelize_module(tg.nn.Linear(2, 2), mod('distributed.device_mesh').init_device_mesh('cpu', (1,)), {'nothing': t.ColwiseParallel()}) :: UserWarning
parallelize_module without a plan :: mod('distributed.tensor.parallel').parallelize_module(tg.nn.Linear(2, 2), mod('distributed.device_mesh').init_device_mesh('cpu', (1,))) :: UserWarning
an input_fn of two arguments :: mod('distributed.tensor').distribute_module(tg.nn.Linear(2, 2), mod('distributed.device_mesh').init_device_mesh('cpu', (1,)), input_fn=lambda inputs, mesh: inputs) :: no: it works the same, and stays
an output_fn of two arguments :: mod('distributed.tensor').distribute_module(tg.nn.Linear(2, 2), mod('distributed.device_mesh').init_device_mesh('cpu', (1,)), output_fn=lambda outputs, mesh: outputs) :: no: it works the same, and stays
a flattened dimension of a mesh :: m = mod('distributed.device_mesh').init_device_mesh('cpu', (1, 1), mesh_dim_names=('a', 'b')); m['a', 'b']._flatten('c'); m['c'] :: no: it works the same, and stays
a tensor of one element beside a DTensor :: t = mod('distributed.tensor'); t.distribute_tensor(tg.ones(2), mod('distributed.device_mesh').init_device_mesh('cpu', (1,)), [t.Replicate()]) + tg.ones(1) :: no: it is the same on every rank
a module that FSDP is to ignore whole :: m = tg.nn.Linear(1, 1); mod('distributed.fsdp').FullyShardedDataParallel(m, ignored_modules=[m]) :: no: it does as it is told
FSDP of a list :: mod('distributed.fsdp').FullyShardedDataParallel(tg.nn.ModuleList([tg.nn.Linear(1, 1)])) :: no: its modules are gathered when they are called
states of some submodules :: m = tg.nn.Sequential(tg.nn.Linear(1, 1)); mod('distributed.checkpoint.state_dict').get_model_state_dict(m, submodules={m[0]}) :: no: it works the same, and stays
a checkpoint written over another :: import tempfile~with tempfile.TemporaryDirectory() as d: [mod('distributed.checkpoint').save({'a': tg.ones(1)}, checkpoint_id=d) for _ in range(2)] :: no: the old one stays until the new one is whole
old names of saving and loading :: import tempfile~with tempfile.TemporaryDirectory() as d: c = mod('distributed.checkpoint'); c.save_state_dict({'a': tg.ones(1)}, c.FileSystemWriter(d)); c.load_state_dict({'a': tg.ones(1)}, c.FileSystemReader(d)) :: no: the names stay
old names of functional collectives :: f = mod('distributed._functional_collectives'); f.all_gather_tensor_autograd(tg.ones(1), 0, dist.group.WORLD); f.reduce_scatter_tensor_autograd(tg.ones(1), 'sum', 0, dist.group.WORLD); f.all_gather_into_tensor_coalesced([tg.ones(1)], dist.group.WORLD); f.reduce_scatter_tensor_coalesced([tg.ones(1)], 'sum', [0], dist.group.WORLD) :: no: the names stay
the number of a rank by its old name :: dist.distributed_c10d._get_global_rank(dist.group.WORLD, 0) :: no: the name stays
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

# Files and functions of PyTorch's whose warnings no program meets here, or which are this library's own matter, and why.
NOT_MET = {
    r"(_dynamo|_inductor|_functorch|_higher_order_ops|_subclasses|_native|_export|export|fx|compiler|_library|_custom_op|_refs|_prims_common|_vmap_internals)\b": "its compilers",
    r"(__init__.py compile|_utils.py is_compiling|utils/_config_module|nn/functional.py linear_cross_entropy|nn/attention/flex_attention.py create_block_mask|__init__.py _check_is_size)": "its compilers",
    r"(jit/|_jit_internal|_tensor.py Tensor.__(iter|len)__|nn/utils/rnn.py pack_padded_sequence|distributed/optim/_deprecation)": "TorchScript and its tracer: nothing is compiled, and traced modules run as they were written",
    r"(onnx|utils/model_dump|package)\b": "its exporters and packages",
    r"(ao/|nn/attention/(_fa3|experimental))": "quantised and 8-bit tensors",
    r"(masked/|sparse/)": "masked tensors",
    r"(xpu|utils/hipify|utils/cpp_extension|_streambase|random.py|utils/checkpoint.py _infer_device_type)\b": "other devices, and C++ extensions",
    r"(cuda/|backends/cudnn|optim/optimizer.py Optimizer._accelerator|nn/parallel/(_functions|data_parallel|__init__)|nn/modules/module.py Module.zero_grad)": "what needs a GPU, or several: the driver is asked by other means",
    r"(autograd/profiler|profiler/profiler)": "profiles of other devices and of kinds of events that are not recorded",
    r"(__init__.py __getattr__|autograd/_functions|autograd/gradcheck|nn/utils/_deprecation_utils|nn/modules/conv.py|_utils.py _get_async|utils/_config)": "names that were old when PyTorch 1 came",
    r"(utils/_pytree|utils/_cxx_pytree|testing/_internal|utils/data/(datapipes|graph|backward_compatibility)|utils/file_baton|distributed/algorithms/model_averaging/hierarchical|distributed/_(tools|symmetric_memory|shard|sharded_tensor|sharding_spec))": "modules that are not here, or private",
    r"nn/attention/__init__.py _raise_kernel_warnings": "attention has one way of computing, which takes every mask",
    r"nn/attention/flex_attention.py flex_attention$": "a form of a function that only type checkers see",
    r"amp/grad_scaler.py GradScaler.step": "warned of here, too, where an optimizer takes grad_scaler=",
    r"hub.py (_get_cache_or_reload|_legacy_zip_load)": "ambiguous branches are resolved as in PyTorch, and old files are read",
    r"serialization.py (_legacy|_load|load|check_module)": "old and TorchScript archives, other byte orders: read, or refused with the reason",
    r"overrides.py handle_torch_function": "of its own functions in Python: the same question in its operators is a row above",
    r"utils/data/dataloader.py (_BaseDataLoaderIter|_MultiProcessing)": "other devices; what cannot be sent to a worker is an error that names it",
    r"nn/modules/module.py Module._maybe_warn": "one warning stands for all those of old backward hooks",
    r"distributed/(elastic|launch|optim/named_optimizer)": "agents: the launcher is this library's own (docs/distributed.md)",
    r"distributed/fsdp": "FSDP here works on the CPU and says what does not fit as an error",
    r"distributed/pipelining": "stages agree on shapes when they are built, and refuse what differs",
    r"distributed/tensor/(_random|_api.py _shard_tensor|_op_schema|_dispatch)": "random numbers of a mesh are the same on every kind of device",
    r"distributed/(distributed_c10d|device_mesh|_functional_collectives)": "private names and devices of groups; a group that ends with collectives undone is warned of here, too",
    r"distributed/checkpoint/": "old forms of plans and states: refused",
    r"distributed/algorithms/join": "ranks whose inputs end early are warned of here, too",
}

# The same of its C++ files: those whose warnings no row of WARNED comes to.
NOT_MET_IN_CPP = {
    r"torch/csrc/(jit|lazy|distributed/(autograd|rpc))/": "TorchScript, its tracer, lazy tensors, other ways of calling far processes",
    r"aten/src/ATen/(native/)?(quantized/|QuantizedLinear|nnapi/)": "quantised tensors of its kinds",
    r"torch/csrc/(profiler/|autograd/profiler)": "its profilers: kinds of events that are not recorded here",
    r"torch/csrc/api/": "its C++ modules and old files of its optimizers; docs/cpp.md says what is here",
    r"(c10/core/(AllocatorConfig|StorageImpl|impl/alloc_cpu)|aten/src/ATen/core/GeneratorForPrivateuseone|aten/src/ATen/native/(CPUFallback|ConvUtils)|torch/csrc/(Event|autograd/input_buffer))": "allocators, generators and events of other devices, cuDNN, tensors without data",
    r"(c10/util/env|aten/src/ATen/(ParallelCommon|native/DispatchStub|core/dispatch/Dispatcher))": "its variables of the environment",
    r"aten/src/ATen/(LegacyBatchedFallback|core/dispatch/OperatorEntry.h)": "an old vmap, and stubs of operators that its packages register",
    r"aten/src/ATen/native/transformers/attention": "a mask of dropout that tests give",
    r"aten/src/ATen/core/(TensorBase|ivalue)\.h": "old constructors of sparse tensors, and files of its C++ optimizers",
    r"torch/csrc/autograd/(anomaly_mode|custom_function)": "the same of programs in C++",
    r"torch/csrc/Module": "warnings that are for tests of warnings",
    r"torch/csrc/distributed/c10d/(FlightRecorder|ProcessGroup|Utils|init|logger|reducer)": "its groups' own records, options and variables; names of Work that stay; what DistributedDataParallel finds out of its buckets",
    r"torch/csrc/utils/throughput_benchmark": "a measurement of compiled modules",
    r"aten/src/ATen/native/mkl/": "indices of 64 bits, which MKL does not take",
    r"c10/mobile": "other systems",
}


def page() -> list[str]:
    """The section of docs/errors.md."""
    lines = ["## What is warned of", "",
             "What PyTorch 2.13 warns of, and what happens here. Warnings name the line of the program, not one of this package, and come once for each",
             "line where Python's filter is not told otherwise. `F` is `tg.nn.functional`, `dist` is `tg.distributed` with a group of one process, and `mod(name)`",
             "imports a module of the library."]
    section = None
    for w in WARNED:
        if w.section != section:
            section = w.section
            lines += ["", f"### Warnings: {section}", "", "| | | here |", "| --- | --- | --- |"]
        code = w.code.replace("\n", "; ").replace("|", "\\|")
        lines.append(f"| {w.title} | `{code}` | {w.said} |")
    lines += ["", "### Warnings that are not met", "", "Every other `warnings.warn` of PyTorch's Python files is decided by its place (a pattern of file and function):", "",
              "| PyTorch's | here |", "| --- | --- |"]
    lines += [f"| `{pattern.replace('|', chr(92) + '|')}` | {why} |" for pattern, why in NOT_MET.items()]
    lines += ["", "The same of its C++ files, of which every call of `c10::warn` in its libraries is looked for:", "", "| PyTorch's | here |", "| --- | --- |"]
    lines += [f"| `{pattern.replace('|', chr(92) + '|')}` | {why} |" for pattern, why in NOT_MET_IN_CPP.items()]
    return lines
