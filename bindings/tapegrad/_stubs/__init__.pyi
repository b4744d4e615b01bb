"""Types of what the generator writes beside this file: functions of the op table by module, the methods of Tensor, named results."""

from typing import TypeAlias

Number: TypeAlias = bool | int | float | complex
