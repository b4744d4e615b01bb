"""Times of statements, and tables that compare them."""

from . import utils
from .utils import common, compare, timer
from .utils.common import Measurement, TaskSpec, select_unit, set_torch_threads, trim_sigfig, unit_to_english
from .utils.compare import Colorize, Compare
from .utils.timer import Language, Timer

__all__ = ["Colorize", "Compare", "Language", "Measurement", "TaskSpec", "Timer", "common", "compare", "select_unit", "set_torch_threads", "timer",
           "trim_sigfig", "unit_to_english", "utils"]
