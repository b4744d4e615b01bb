"""Switches for behaviour of modules that PyTorch may change one day; kept."""

_switches = {"overwrite_module_params_on_conversion": False, "swap_module_params_on_conversion": False}


def _pair(name: str):
    def set_(value: bool) -> None:
        """Keeps the switch."""
        _switches[name] = bool(value)

    def get() -> bool:
        """What the switch was set to."""
        return _switches[name]

    return set_, get


set_overwrite_module_params_on_conversion, get_overwrite_module_params_on_conversion = _pair("overwrite_module_params_on_conversion")
set_swap_module_params_on_conversion, get_swap_module_params_on_conversion = _pair("swap_module_params_on_conversion")
