"""Stand-ins for torch and tqdm, for programs whose steps the hook counts."""

TORCH = """
hooks = []
def register_optimizer_step_post_hook(hook):
    hooks.append(hook)
class Optimizer:
    def step(self):
        for hook in hooks:
            hook(self, (), {})
"""
TQDM = """
class tqdm:
    unit = "it"
    def __init__(self, items=()):
        self.items = items
    def __iter__(self):
        for place, item in enumerate(self.items):
            if place % 3 == 2:
                self.update(3)
            yield item
    def update(self, n=1):
        return n
"""


def write_packages(folder):
    """Write the stand-ins into a folder for PYTHONPATH, and return it."""
    for path, text in {"torch/optim/optimizer.py": TORCH, "tqdm/std.py": TQDM}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        for package in (file.parent, folder / path.split("/")[0]):
            (package / "__init__.py").touch()
        file.write_text(text)
    return folder
