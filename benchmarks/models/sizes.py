"""How large the models are made."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """As large as in the papers; or `tiny`: as many layers and calls, but next to nothing to compute, for tests and for what
    a step costs besides its kernels. `device`: the CPU is given shorter texts and a narrower translator than a GPU."""

    tiny: bool = False
    device: str = "cpu"

    def of(self, n: int, tiny: int, cpu: int | None = None) -> int:
        """n, or `tiny` where the model is tiny; `cpu` on the CPU, where it is given."""
        return tiny if self.tiny else n if cpu is None or self.device != "cpu" else cpu

    def cut(self, n: int, by: int = 32, least: int = 2) -> int:
        """n channels, or few."""
        return max(least, n // by) if self.tiny else n
