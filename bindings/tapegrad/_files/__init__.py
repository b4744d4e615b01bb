"""How files are laid out: plain data as JSON, the safetensors container, PyTorch's archives, atomic writing."""
