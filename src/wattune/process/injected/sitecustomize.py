"""Load the hook of `wattune run` into a Python, and then the sitecustomize that this file hides.

Python imports this file at its start, since its folder comes first on PYTHONPATH (`process.step_file` puts it there).
A program may start any Python, so this file is written for all versions; the hook is for 3.7 and newer.
"""

import os
import sys


def _load_hook():
    # type: () -> None
    if sys.version_info < (3, 7) or "wattune_hook" in sys.modules:  # that of another installation
        return
    try:
        import wattune_hook  # type: ignore[import-not-found]  # it is beside this file, no part of a package

        wattune_hook.start()
    except Exception:
        pass  # the program must not see it


def _run_hidden():
    # type: () -> None
    """Import the sitecustomize that this file hides, as Python would have done."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        # Python 2 has the name in the text alone.
        if getattr(error, "name", str(error).split()[-1]) != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


if __name__ == "sitecustomize":
    _load_hook()
    _run_hidden()
