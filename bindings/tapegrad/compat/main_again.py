"""The main program in a process that multiprocessing started afresh, where `import torch` has to give tapegrad again.

`multiprocessing` imports the module that `__main__.__spec__` names; that is this one, which runs the program's code in its place.
"""

import sys

from tapegrad.compat import install, runner

if __name__ == "__mp_main__":
    install()
    _code, __file__ = runner.code_again()
    sys.argv[0] = __file__ or sys.argv[0]
    exec(_code, globals())
