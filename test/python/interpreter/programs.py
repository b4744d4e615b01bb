"""Programs that tests start: whole interpreters, that a test may end, interrupt or break."""

import os
import subprocess
import sys
import textwrap


def start(source, *arguments, **environment):
    """A Python that runs the source, with more variables in its environment; what it writes is kept."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)], env={**os.environ, **environment},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(source, *arguments, status=0, timeout=60, **environment):
    """What the program wrote; it must end with the status, in silence."""
    program = start(source, *arguments, **environment)
    try:
        written, errors = program.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        raise
    assert program.returncode == status, (program.returncode, errors[-3000:])
    assert errors == "", errors[-3000:]
    return written
