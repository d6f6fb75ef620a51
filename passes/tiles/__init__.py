"""Register tiles: matrix products, convolution and attention."""
