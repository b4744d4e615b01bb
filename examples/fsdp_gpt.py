"""Trains the GPT of gpt.py with its parameters cut among processes: each rank keeps a piece of every one, of its gradient and of the states
of the optimizer, and all come together for a block only while it computes (fully_shard; Rajbhandari et al. 2020, Zhao et al. 2023).

    python examples/fsdp_gpt.py                                                    # alone
    python -m tapegrad.distributed.run --nproc-per-node 2 examples/fsdp_gpt.py     # two processes of this machine; also torchrun, srun, mpirun

It is saved every tenth of the run, every 30 seconds and when Ctrl-C is pressed; `--resume` goes on from the newest checkpoint, also with another number of processes, and with as many as
before it ends with the same bits as a run that was never stopped. Under `--max-restarts 3` the launcher starts all ranks again when one dies,
and they go on by themselves.
"""

import os

import common
import tapegrad as tg
import tapegrad.distributed as dist
from gpt import GPT, Text, batch, held_out_loss, update
from gpt import parse as parse_gpt
from tapegrad.distributed import checkpoint
from tapegrad.distributed.fsdp import fully_shard
from tapegrad.distributed.health import Health


def parse(arguments=None):
    parser = common.arguments(__doc__, "fsdp_gpt")
    parser.set_defaults(checkpoint="runs/fsdp_gpt", picture="")
    own, rest = parser.parse_known_args(arguments)
    options = parse_gpt(rest)
    for name, value in vars(own).items():
        setattr(options, name, value)
    return options


@common.stoppable
@common.many_processes()
def main(arguments=None) -> float:
    """What each rank does. The loss of a letter of the held-out text."""
    options = parse(arguments)
    rank, size = dist.get_rank(), dist.get_world_size()
    if options.batch_size % size:
        raise SystemExit(f"--batch-size {options.batch_size} cannot be shared by {size} processes evenly")
    tg.manual_seed(options.seed)
    text = Text()
    model = GPT(len(text.letters), options.length, options.layers, options.heads, options.width, options.dropout)
    whole = sum(p.numel() for p in model.parameters())
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = tg.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    every = max(1, options.steps // 10)
    run = checkpoint.Checkpoints(options.checkpoint, model=model, optimizers=optimizer, every_steps=every, every_seconds=30)
    health = Health(checkpoints=run)
    print(f"{size} processes; {whole:,} parameters, {sum(p.numel() for p in model.parameters()):,} of them here")
    if options.resume or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        print("no checkpoint yet: starting from the beginning" if run.resume() is None else f"resuming after step {run.steps}")
    interrupts: list = []
    with common.remembered_interrupts(interrupts), common.progress(range(run.steps, options.steps), "step", options.quiet or rank != 0, total=options.steps, initial=run.steps) as steps:
        for step in steps:
            # All ranks draw the same places, whatever their number is, and each takes its part of them.
            generator = tg.Generator().manual_seed(options.seed * 1_000_003 + step)
            places = tg.randint(0, len(text.train) - options.length, (options.batch_size,), generator=generator)
            x, y = batch(text.train, places.chunk(size)[rank], options.length)
            loss = update(model, optimizer, x, y, step, options)
            run.step()
            health.step(loss=loss)
            pressed = tg.tensor(len(interrupts))
            dist.all_reduce(pressed)  # Ctrl-C may come between the steps of two ranks; all stop after the same one
            if pressed.item() or run.steps == options.stop_after:
                run.save()
                raise common.Stopped(f"{'interrupted' if pressed.item() else 'stopped'} after step {run.steps}; checkpoint: {options.checkpoint}, --resume goes on from it",
                                     130 if pressed.item() else 0)
    loss = held_out_loss(model, text, options)
    print(f"held-out loss: {loss:.6f} nats a letter")
    return loss


if __name__ == "__main__":
    main()
