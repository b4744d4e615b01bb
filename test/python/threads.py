"""Functions that run at the same time."""

import threading


def run_all(functions, limit: float = 20) -> None:
    """Runs each function in a thread of its own. Raises the first one's error; fails where one has not ended after `limit` seconds."""
    errors = []

    def run(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join(limit)
        assert not t.is_alive()
    if errors:
        raise errors[0]
