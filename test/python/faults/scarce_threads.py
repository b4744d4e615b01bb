"""A program whose threads share too little memory: `scarce_threads.py LEFT SEED`. A mix of large calls of libraries and of our own, each of
which succeeds or raises OutOfMemoryError; then memory is given back, and all of them give what they give elsewhere."""

import random
import resource
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import scarce  # noqa: E402
import tapegrad as tg  # noqa: E402

SECONDS = 4
f = tg.nn.functional


def calls():
    tg.manual_seed(1)
    a, b, image, weight, long = tg.randn(500, 500), tg.randn(200, 200, dtype=tg.float64), tg.randn(8, 8, 64, 64), tg.randn(16, 8, 3, 3), tg.randn(1 << 19)
    weight.requires_grad_()

    def gradient():
        return tg.autograd.grad(f.conv2d(image, weight).square().sum(), weight)[0]

    return [lambda: a @ a, lambda: tg.linalg.svd(b).S, lambda: long.sort().values, lambda: f.conv2d(image, weight).detach(), lambda: tg.linalg.qr(b).R,
            lambda: tg.linalg.eigh(b + b.T).eigenvalues, lambda: tg.fft.fft(long), lambda: tg.linalg.solve(a, a), gradient, lambda: long.cumsum(0),
            lambda: tg.bmm(a.view(10, 50, 500), a.view(10, 500, 50)), lambda: tg.linalg.eig(b).eigenvalues, lambda: f.scaled_dot_product_attention(a, a, a),
            lambda: tg.linalg.svd(a).S, lambda: tg.cat([long] * 5), lambda: a.half() @ a.half(), lambda: tg.cdist(a, a),
            lambda: a.bfloat16() @ a.bfloat16(), lambda: f.conv2d(image.bfloat16(), weight.bfloat16()).detach(), lambda: f.conv2d(image, weight[..., :1, :1]).detach()]


def main(left, seed):
    tg.set_num_threads(3)
    mix, wrong, counts = calls(), [], [0, 0]
    go = threading.Event()

    def work(number):
        dice = random.Random(100 * seed + number)
        go.wait()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                call = dice.choice(mix)
                call()
                counts[0] += 1
            except (tg.OutOfMemoryError, MemoryError):
                counts[1] += 1
            except BaseException as error:  # noqa: BLE001
                wrong.append(f"call {mix.index(call)}: {type(error).__name__}: {error}"[:300])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    scarce.limit(scarce.used() + left)
    go.set()
    for thread in threads:
        thread.join()
    scarce.limit(resource.RLIM_INFINITY)
    after = [call() for call in mix]
    tg.set_num_threads(1)
    same = [x.equal(call()) for x, call in zip(after, mix)]
    if not all(same):
        wrong.append(f"other values with memory: {same}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{counts[0]} calls succeeded, {counts[1]} found no memory")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
