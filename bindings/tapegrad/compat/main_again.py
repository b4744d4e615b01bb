"""The main program in a process that was started afresh, where `import torch` has to give tapegrad again.

`__main__.__spec__` names this module. `multiprocessing` imports it in a fresh process; launchers that start their own program several
times run `python -m` with that name and the program's arguments. It runs the program's code in its place.
"""

import sys

from tapegrad.compat import install, runner

if __name__ == "__main__":
    sys.exit(runner.run_again(sys.argv[1:]))
if __name__ == "__mp_main__":
    install()
    _code, __file__ = runner.code_again()
    sys.argv[0] = __file__ or sys.argv[0]
    exec(_code, globals())
