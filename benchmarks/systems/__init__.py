"""Systems that run PyTorch models on a CPU, each as one function `build(model, args, threads) -> call`.

`call()` runs the model once on `args` and returns its outputs, in order, as what numpy.asarray takes. Each is imported and run
in a process of its own (worker.py), since their thread pools and settings exclude each other.
"""

SYSTEMS = {
    "lamina": "torch.compile(backend='lamina')",
    "lamina_file": "an artifact of lamina.export, called from numpy",
    "eager": "PyTorch, eager",
    "inductor": "torch.compile",
    "inductor_tuned": "torch.compile(mode='max-autotune') with frozen weights",
    "onnx_runtime": "torch.onnx.export, ONNX Runtime with all optimisations",
    "open_vino": "torch.export, OpenVINO with the latency hint, f32 inside",
    "xla": "torchax and jax.jit",
    "iree": "iree-turbine, IREE for the host's processor with data tiling",
}
