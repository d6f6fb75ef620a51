"""What Hopper adds: PTX in line, the copy engine, wgmma, rings of stages between warps."""
