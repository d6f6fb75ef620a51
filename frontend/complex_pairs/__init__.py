"""Complex numbers: graphs on complex tensors as graphs on their real and imaginary parts, before they are partitioned."""
