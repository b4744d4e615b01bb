"""python -m tapegrad.distributed.launch: as tapegrad.distributed.run, and each rank also gets --local-rank=N, as old scripts want it."""

from .run import _command_line, get_args_parser, run

__all__ = ["launch", "main", "parse_args"]


def parse_args(args):
    """run's options, and --use-env: no --local-rank."""
    parser = get_args_parser()
    parser.add_argument("--use-env", "--use_env", default=False, action="store_true", help="tell the local rank by $LOCAL_RANK only")
    return parser.parse_args(args)


def launch(args) -> None:
    """Runs the ranks to their end."""
    if args.no_python and not args.use_env:
        raise ValueError("When using the '--no-python' flag, you must also set the '--use-env' flag.")
    run(args)


def main(args=None) -> None:
    """The command line."""
    launch(parse_args(args))


if __name__ == "__main__":
    _command_line(main)
