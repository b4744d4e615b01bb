"""Single operators, by family: products, convolutions, layers, linear algebra, Fourier transforms, quantized products."""
