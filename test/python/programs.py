"""Programs in processes of their own: of PyTorch, or with `-m tapegrad` before them."""

import os
import subprocess
import sys

import tapegrad


def run(*arguments: str) -> str:
    """What `python *arguments` prints; it must end well."""
    path = os.pathsep.join(filter(None, [os.path.dirname(os.path.dirname(tapegrad.__file__)), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout
