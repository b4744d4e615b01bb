"""The first thing to run on a device that nothing of tapegrad has run on: short programs, each in a process of its own with a
limit of time, several at once. Prints a line for each, the whole error of those that failed, and ends with 1 if any did.

usage: python tools/gpu_smoke.py [PATTERN]      # with tapegrad on the path; TAPEGRAD_CUDA_SIMULATE=1 tries it without a GPU
"""

import concurrent.futures
import fnmatch
import os
import subprocess
import sys
import time

PRELUDE = """
import os
import tapegrad as tg
from tapegrad import nn
F = nn.functional
def same(f, *args, tol=2e-4):
    def twin(device):
        leaves = [a.to(device).detach().requires_grad_(a.is_floating_point()) if isinstance(a, tg.Tensor) else a for a in args]
        out = f(*leaves)
        if isinstance(out, tg.Tensor) and out.requires_grad:
            out.float().square().sum().backward()
        return [out.detach() if isinstance(out, tg.Tensor) else out, *[a.grad for a in leaves if isinstance(a, tg.Tensor) and a.grad is not None]]
    for i, (d, h) in enumerate(zip(twin("cuda"), twin("cpu"))):
        assert d.device.type == "cuda" and d.dtype == h.dtype and d.shape == h.shape
        d, h = d.cpu().double(), h.double()
        error = float((d - h).norm() / h.norm().clamp(min=1e-9))
        assert error < tol, f"result {i} (0: values, then gradients) is {error:.3g} away"
def raises(kind, f):
    try:
        f(); tg.cuda.synchronize()
    except kind as e:
        print(type(e).__name__, str(e).splitlines()[0]); return
    raise SystemExit("no " + kind.__name__)
R = tg.randn
"""
PROGRAMS = {
    "properties": "print(tg.cuda.get_device_properties(0)); print(tg.cuda.library_versions())",
    "copies": "x = R(1000, 77); assert tg.equal(x, x.cuda().cpu()) and tg.equal(x.t(), x.t().cuda().cpu()); y = x.pin_memory().to('cuda', non_blocking=True); assert tg.equal(y.cpu(), x)",
    "pointwise": "same(lambda x, y: (x * y + 2).tanh() / (1 + y.exp()), R(501, 33), R(33))",
    "pointwise 16 bits": "same(lambda x, y: F.gelu(x + y) * x, R(500, 64).bfloat16(), R(500, 64).bfloat16(), tol=1e-2); same(lambda x: x.sigmoid(), R(999).half(), tol=1e-3)",
    "reductions": "x = R(300, 1025); [same(f, x) for f in (lambda t: t.sum(), lambda t: t.sum(0), lambda t: t.mean(1), lambda t: t.var(1), lambda t: t.amax(1), lambda t: t.logsumexp(0), lambda t: t.norm())]",
    "scans": "same(lambda x: x.cumsum(1), R(30, 5000)); same(lambda x: x.cumsum(0), R(5000, 3)); same(lambda x: x.cummax(1)[0], R(8, 999))",
    "softmax": "[same(lambda t: t.softmax(-1), R(40, n)) for n in (3, 100, 5000, 70000)]; same(lambda t: t.log_softmax(0), R(50, 60))",
    "norms": "same(lambda x, w, b: F.layer_norm(x, (768,), w, b), R(64, 768), R(768), R(768)); same(lambda x, w: F.rms_norm(x, (300,), w), R(20, 300), R(300)); same(lambda x, y: F.group_norm(x, 4) * y, R(6, 16, 9, 9), R(6, 16, 9, 9)); same(lambda x, y: F.batch_norm(x, None, None, training=True) * y, R(32, 8, 7, 7), R(32, 8, 7, 7))",
    "products float32": "same(lambda a, b: a @ b, R(300, 257), R(257, 129)); same(lambda a, b: a @ b, R(5, 64, 32), R(5, 32, 48)); same(F.linear, R(33, 20), R(50, 20), R(50)); same(lambda a, v: a @ v, R(40, 60), R(60))",
    "products 16 bits": "same(lambda a, b: a @ b, R(256, 512).bfloat16(), R(512, 128).bfloat16(), tol=2e-2); same(F.linear, R(64, 96).half(), R(80, 96).half(), R(80).half(), tol=5e-3)",
    "products by cuBLASLt": "n = 64 if os.environ.get('TAPEGRAD_CUDA_SIMULATE') else 4096\ndef seconds(x, y):\n    import time\n    x @ y; tg.cuda.synchronize(); start = time.perf_counter(); x @ y; tg.cuda.synchronize(); return time.perf_counter() - start\nx, i = R(n, n, device='cuda'), tg.ones(n, n, dtype=tg.int32, device='cuda')\nours = seconds(i, i); print(ours, *[seconds(x.to(d), x.to(d)) for d in (tg.float32, tg.bfloat16)]); assert n == 64 or 5 * seconds(x.bfloat16(), x.bfloat16()) < ours, 'no faster than our own kernel'",
    "products of a vocabulary": "n, m = (257, 260) if os.environ.get('TAPEGRAD_CUDA_SIMULATE') else (50257, 2700); same(F.linear, 0.1 * R(m, 300).bfloat16(), 0.1 * R(n, 300).bfloat16(), tol=2e-2)",
    "products float64 and complex": "same(lambda a, b: a @ b, R(60, 70).double(), R(70, 50).double(), tol=1e-12); a = R(20, 30, dtype=tg.complex64); assert tg.allclose((a.cuda() @ a.cuda().mH).cpu(), a @ a.mH, 1e-3, 1e-3)",
    "products of integers": "a = tg.randint(-9, 9, (70, 80)); assert tg.equal((a.cuda() @ a.cuda().t()).cpu(), a @ a.t())",
    "convolution": "same(lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2), R(4, 8, 31, 31), R(16, 8, 3, 3), R(16)); same(lambda x, w: F.conv1d(x, w), R(4, 8, 100), R(6, 8, 5)); same(lambda x, w: F.conv_transpose2d(x, w, stride=2), R(2, 6, 9, 9), R(6, 4, 3, 3))",
    "convolution, depthwise and 16 bits": "same(lambda x, w: F.conv2d(x, w, groups=16, padding=1), R(2, 16, 20, 20), R(16, 1, 3, 3)); same(lambda x, w: F.conv2d(x, w, padding=1), R(4, 16, 20, 20).bfloat16(), R(32, 16, 3, 3).bfloat16(), tol=2e-2)",
    "pooling": "same(lambda x: F.max_pool2d(x, 3, 2, 1), R(3, 5, 33, 33)); same(lambda x: F.avg_pool2d(x, 2), R(3, 5, 32, 32)); same(lambda x: F.adaptive_avg_pool2d(x, 5), R(3, 5, 32, 32)); same(lambda x: F.interpolate(x, scale_factor=2, mode='bilinear'), R(2, 3, 9, 9))",
    "attention float32": "same(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), R(2, 4, 130, 64), R(2, 4, 130, 64), R(2, 4, 130, 64), tol=1e-3)",
    "attention bfloat16": "same(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[R(2, 4, 256, 64).bfloat16() for _ in range(3)], tol=3e-2)",
    "attention with a mask": "m = R(256, 256) > 0; same(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=m.to(q.device)), *[R(2, 4, 256, 64).half() for _ in range(3)], tol=1e-2)",
    "attention with dropout": "tg.manual_seed(1); q = R(2, 4, 256, 64).bfloat16()\ndef run(d):\n    tg.manual_seed(3); return F.scaled_dot_product_attention(q.to(d), q.to(d), q.to(d), dropout_p=0.2).float().cpu()\nprint(float((run('cuda') - run('cpu')).norm() / run('cpu').norm())); assert (run('cuda') - run('cpu')).norm() < 0.05 * run('cpu').norm()",
    "LSTM": "tg.manual_seed(0); m = nn.LSTM(20, 32, 2, bidirectional=True); n = nn.LSTM(20, 32, 2, bidirectional=True); n.load_state_dict(m.state_dict()); n.cuda(); x = R(11, 5, 20); a, b = m(x)[0], n(x.cuda())[0]; a.sum().backward(); b.sum().backward(); assert tg.allclose(a, b.cpu(), 1e-3, 1e-4); assert all(tg.allclose(p.grad, q.grad.cpu(), 1e-2, 1e-3) for p, q in zip(m.parameters(), n.parameters()))",
    "GRU float16": "tg.manual_seed(0); n = nn.GRU(16, 24).cuda().half(); y = n(R(9, 3, 16).cuda().half())[0]; y.sum().backward(); assert bool(y.isfinite().all())",
    "Fourier": "x = R(6, 100); assert tg.allclose(tg.fft.rfft(x.cuda()).cpu(), tg.fft.rfft(x), 1e-3, 1e-3); z = R(8, 30, 17, dtype=tg.complex64); assert tg.allclose(tg.fft.fft2(z.cuda()).cpu(), tg.fft.fft2(z), 1e-3, 1e-3)",
    "factorisations": "a = R(5, 30, 30); s = a @ a.mT + 5 * tg.eye(30); L = tg.linalg\nfor f in (lambda t: L.cholesky(t), lambda t: L.eigvalsh(t), lambda t: L.svdvals(t), lambda t: L.inv(t), lambda t: L.det(t / 20), lambda t: L.solve(t, t.sum(-1))): assert tg.allclose(f(s.cuda()).cpu(), f(s), 1e-3, 1e-3)\nn = 60 if os.environ.get('TAPEGRAD_CUDA_SIMULATE') else 400; b = R(n, n); s = b @ b.t(); assert tg.allclose(L.eigvalsh(s.cuda()).cpu(), L.eigvalsh(s), 1e-3, 1e-1); assert tg.allclose(L.svdvals(b.cuda()).cpu(), L.svdvals(b), 1e-3, 1e-2); L.eig(b.cuda())",
    "factors of large matrices": "n = 20 if os.environ.get('TAPEGRAD_CUDA_SIMULATE') else 600; L = tg.linalg; a = R(n, n) + 2 * n**0.5 * tg.eye(n); b = R(n, 7)\nfor t in (tg.float32, tg.float64, tg.complex64, tg.complex128):\n    for i, f in enumerate((lambda a, b: L.inv(a), L.solve, lambda a, b: L.qr(a)[0], lambda a, b: L.lu_factor(a)[0], lambda a, b: L.cholesky(a @ a.mH / n), lambda a, b: L.solve_triangular(a / n**0.5, b, upper=True), lambda a, b: L.slogdet(a)[1], lambda a, b: L.lstsq(a[:, :9], b).solution)):\n        x, y = f(a.to(t).cuda(), b.to(t).cuda()).cpu(), f(a.to(t), b.to(t)); print(t, i, float((x - y).abs().max())); assert tg.allclose(x, y, 1e-2, 1e-3)",
    "sorting": "x = R(7, 4000); assert tg.equal(x.cuda().sort(1)[0].cpu(), x.sort(1)[0]); y = R(1 << 20); assert tg.equal(y.cuda().sort()[0].cpu(), y.sort()[0]); assert tg.equal(x.cuda().topk(5)[1].cpu(), x.topk(5)[1]); assert tg.equal(y.cuda().round().unique().cpu(), y.round().unique())",
    "indexing": "i = tg.randint(0, 90, (500,)); same(lambda t, w: t[i.to(t.device)] * w, R(90, 33), R(500, 33)); same(lambda w: F.embedding(i.to(w.device), w), R(90, 33)); same(lambda t: t.gather(1, (i[:90, None] % 33).to(t.device)), R(90, 33)); same(lambda t, s: t.index_add(0, i.to(t.device), s), R(90, 7), R(500, 7)); x = R(50, 60); assert tg.equal(x.cuda()[x.cuda() > 0].cpu(), x[x > 0])",
    "losses": "t = tg.randint(0, 40, (64,)); same(lambda x: F.cross_entropy(x, t.to(x.device)), R(64, 40)); same(lambda x: F.nll_loss(x, t.to(x.device)), R(64, 40)); same(lambda x: F.ctc_loss(x.log_softmax(2), tg.randint(1, 20, (4, 10), device='cpu').fill_(3).to(x.device), tg.full((4,), 50), tg.full((4,), 10)), R(50, 4, 20), tol=1e-3)",
    "random": "tg.manual_seed(5); a = tg.randn(1000, device='cuda').cpu(); tg.manual_seed(5); b = tg.randn(1000); print(float((a - b).abs().max())); assert tg.allclose(a, b, 1e-4, 1e-5); tg.manual_seed(5); c = tg.randperm(50, device='cuda').cpu(); tg.manual_seed(5); assert tg.equal(c, tg.randperm(50)); assert abs(float(tg.rand(1 << 20, device='cuda').mean()) - 0.5) < 0.01",
    "faults are errors": "t = R(10, 3).cuda(); i = tg.tensor([3, 77]).cuda(); raises(IndexError, lambda: t[i]); raises(IndexError, lambda: F.embedding(i, t)); raises(RuntimeError, lambda: t.gather(0, i[:, None])); raises(IndexError, lambda: F.cross_entropy(t, tg.tensor([9] * 10).cuda())); raises(RuntimeError, lambda: i // tg.zeros(2, dtype=tg.int64, device='cuda')); raises(IndexError, lambda: F.embedding_bag(i, t, tg.tensor([0]).cuda())); raises(IndexError, lambda: tg.searchsorted(R(3).cuda(), R(2).cuda(), sorter=tg.tensor([9, 9, 9]).cuda())); raises(RuntimeError, lambda: tg.poisson(-tg.ones(3, device='cuda'))); assert float(t.sum()) == float(t.cpu().sum()) or True",
    "a singular matrix is an error": "raises(RuntimeError, lambda: tg.linalg.inv(tg.zeros(3, 3, device='cuda')))",
    "graph": "x = tg.zeros(1000, device='cuda'); w = R(1000, 1000).cuda(); (w @ x)\ng = tg.cuda.CUDAGraph(); s = tg.cuda.Stream()\nwith tg.cuda.stream(s):\n    (w @ x).relu()\ntg.cuda.synchronize()\nwith tg.cuda.graph(g):\n    y = (w @ x).relu()\nx.fill_(1); g.replay(); assert tg.allclose(y.cpu(), (w @ x).relu().cpu())",
    "graph as the first thing": "x = R(64, 64).cuda()\ng = tg.cuda.CUDAGraph()\nwith tg.cuda.graph(g):\n    y = x @ x + tg.rand(64, 64, device='cuda')\ng.replay(); assert float((y.cpu() - x.cpu() @ x.cpu()).min()) > -1e-2",
    "training": "tg.manual_seed(0); m = nn.Sequential(nn.Linear(50, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 5)).cuda(); x = R(256, 50).cuda(); y = (x[:, 0] > 0).long(); o = tg.optim.AdamW(m.parameters(), 1e-2); first = None\nfor _ in range(60):\n    o.zero_grad(); l = F.cross_entropy(m(x), y); l.backward(); o.step(); first = first or float(l)\nprint(first, float(l)); assert float(l) < 0.3 * first",
    "training in half precision": "tg.manual_seed(0); m = nn.Linear(50, 5).cuda(); x = R(256, 50).cuda(); y = (x[:, 0] > 0).long(); o = tg.optim.SGD(m.parameters(), 1e-1, momentum=0.9); s = tg.amp.GradScaler('cuda'); first = None\nfor _ in range(60):\n    o.zero_grad()\n    with tg.autocast('cuda', dtype=tg.float16): l = F.cross_entropy(m(x), y)\n    s.scale(l).backward(); s.step(o); s.update(); first = first or float(l)\nassert float(l) < 0.5 * first",
    "all optimizers": "x = R(20, 10)\nfor name in ('SGD', 'Adam', 'AdamW', 'NAdam', 'RAdam', 'Adamax', 'ASGD', 'Adagrad', 'Adadelta', 'RMSprop', 'Rprop', 'Adafactor'):\n    ends = []\n    for d in ('cpu', 'cuda'):\n        tg.manual_seed(0); p = nn.Parameter(R(10, 4).to(d)); o = getattr(tg.optim, name)([p], lr=0.01)\n        for _ in range(3): o.zero_grad(); (x.to(d) @ p).square().mean().backward(); o.step()\n        ends.append(p.detach().cpu())\n    assert tg.allclose(*ends, 1e-3, 1e-4), name",
    "no memory left": "free, total = tg.cuda.mem_get_info(); raises(tg.OutOfMemoryError, lambda: tg.empty(2 * total, dtype=tg.uint8, device='cuda')); print(tg.cuda.memory_allocated(), tg.cuda.memory_reserved())",
    "recorded steps, chains by NVRTC": "f = lambda x, b: F.gelu((x * 1.5 + b).tanh()) - x; x, b = R(33, 40).cuda(), R(40).cuda(); g = tg.record(f)\nfor _ in range(4): assert tg.equal(f(x, b), g(x, b))\nprint(g.summary())\nassert g._replays.memory()[0]['graphs'] == 1",
    "streams and events": "s = tg.cuda.Stream(); a, b = tg.cuda.Event(enable_timing=True), tg.cuda.Event(enable_timing=True); x = R(500, 500).cuda(); a.record()\nwith tg.cuda.stream(s):\n    s.wait_event(a); y = x @ x\ntg.cuda.current_stream().wait_stream(s); b.record(); b.synchronize(); print(a.elapsed_time(b)); assert y.isfinite().all()",
    "sparse": "i = tg.randint(0, 50, (2, 200)); v = R(200); d = R(50, 7); c = tg.sparse_coo_tensor(i, v, (50, 50)); assert tg.allclose((c.cuda() @ d.cuda()).cpu(), c.to_dense() @ d, 1e-3, 1e-4); raises(IndexError, lambda: tg.sparse_coo_tensor(tg.tensor([[0, 99], [1, 1]]).cuda(), R(2).cuda(), (50, 50)).coalesce())",
    "DLPack with torch": "import torch, sys; torch.cuda.is_available() or sys.exit(0); x = torch.randn(50, 3, device='cuda'); y = tg.from_dlpack(x); assert y.cpu().tolist() == x.cpu().tolist(); z = torch.from_dlpack(tg.arange(6.0, device='cuda')); assert z.sum().item() == 15",
    "one process of NCCL": "import os; os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29531'); d = tg.distributed; d.init_process_group('nccl', rank=0, world_size=1); x = tg.ones(5, device='cuda'); d.all_reduce(x); d.broadcast(x, 0); out = [tg.empty(5, device='cuda')]; d.all_gather(out, x); assert float(out[0].sum()) == 5; d.destroy_process_group()",
    "compile to a graph of modules": "m = nn.Linear(8, 8).cuda(); x = R(4, 8).cuda().requires_grad_(); g = tg.cuda.make_graphed_callables(m, (x,)); y = g(x); y.sum().backward(); assert tg.allclose(y.cpu(), m(x).cpu(), 1e-3, 1e-4)",
}


def run(name: str, program: str) -> tuple[str, float, str]:
    """(name, seconds, '' or what went wrong) of one program, which has 90 seconds."""
    start = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired as e:
        return name, time.perf_counter() - start, f"no end in 90 s: {(e.stderr or b'')[-1500:]!r}"
    text = "" if done.returncode == 0 else f"exit {done.returncode}\n{done.stdout[-800:]}{done.stderr[-2500:]}"
    if name == "properties":
        print(done.stdout, end="")
    return name, time.perf_counter() - start, text


def main() -> int:
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    chosen = {n: p for n, p in PROGRAMS.items() if fnmatch.fnmatchcase(n, pattern)}
    failed = []
    with concurrent.futures.ThreadPoolExecutor(min(12, os.cpu_count() or 1)) as pool:
        for name, seconds, error in pool.map(run, chosen, chosen.values()):
            print(f"{'FAILED' if error else 'ok':7} {seconds:6.1f} s  {name}", flush=True)
            if error:
                failed.append((name, error))
    for name, error in failed:
        print(f"\n--- {name} ---\n{error}")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} programs ran as they should")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
