"""`python -m tapegrad script.py ARGS`: runs a program that was written for PyTorch on tapegrad."""

import sys

_USAGE = """usage: python -m tapegrad [-h] [-V] (script.py | -m module | -c code) [argument ...]

Runs a Python program with `import torch` giving tapegrad, and `import torchvision` tapegrad.vision. Arguments behind the program
are the program's own.

  -m module   runs a module, as python -m does
  -c code     runs a line of code, as python -c does
  -V          prints the version
  -h          prints this text
"""


def main(arguments: list[str]) -> int:
    """Runs what the command line says; the result is an exit status."""
    from tapegrad.compat import runner

    if not arguments:
        print(_USAGE, end="", file=sys.stderr)
        return 2
    first, rest = arguments[0], arguments[1:]
    if first in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if first in ("-V", "--version"):
        from tapegrad import _C
        from tapegrad.torch_version import speaks

        print(f"tapegrad {_C.__version__} (names of PyTorch {speaks})")
        return 0
    if first in ("-m", "-c"):
        if not rest:
            print(f"tapegrad: argument expected for {first}", file=sys.stderr)
            return 2
        return (runner.run_module if first == "-m" else runner.run_code)(rest[0], rest[1:])
    if first.startswith("-"):
        print(f"tapegrad: unknown option {first}\n{_USAGE}", end="", file=sys.stderr)
        return 2
    return runner.run_script(first, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
