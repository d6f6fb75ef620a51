"""Runs linked AArch64 code on llvm-objdump's reading of it: the few instructions that the linker's tests need."""

import re
import subprocess
from pathlib import Path

import llvm

from .loaded import BASE, Loaded

OBJDUMP = Path(llvm.__path__[0]) / "bin" / "llvm-objdump"


class Machine(Loaded):
    def __init__(self, image: bytes, path: Path, imports):
        super().__init__(image, imports, relative=1027, symbol=(1025, 1026, 257))
        path.write_bytes(image)
        shown = subprocess.run([OBJDUMP, "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
        lines = re.findall(r"^ *([0-9a-f]+):[ \t]+(\w[\w.]*)[ \t]*(.*?)(?:[ \t]*<.*)?$", shown.stdout, re.M)
        self.code = {int(at, 16): (name, re.split(r",\s*(?![^\[]*\])", rest)) for at, name, rest in lines}

    def call(self, name, *arguments):
        """Run function `name`; returns x0."""
        x = {f"x{i}": 0 for i in range(31)} | {"sp": BASE + 0x70000} | {f"x{i}": v for i, v in enumerate(arguments)}
        pc = self.symbols[name]
        for _ in range(1000):
            op, a = self.code[pc]
            here, pc = pc, pc + 4
            r = [re.sub(r"^w(\d+)$", r"x\1", name) for name in a]  # w0 is the low half of x0
            mask = 2**32 - 1 if a[0].startswith("w") else 2**64 - 1
            match op:
                case "adrp":
                    x[r[0]] = BASE + int(a[1], 16)
                case "add" | "mul":
                    right = int(a[2][1:], 0) if a[2].startswith("#") else x[r[2]]
                    x[r[0]] = (x[r[1]] + right if op == "add" else x[r[1]] * right) & mask
                case "mov":
                    x[r[0]] = int(a[1][1:], 0) if a[1].startswith("#") else x[r[1]] & mask
                case "ldr" | "str":
                    at, *index = a[1].strip("[]!").split(", ")
                    address = x[at] + (int(index[0][1:], 0) if index else 0)
                    if op == "ldr":
                        x[r[0]] = self.load(address, 4 if mask == 2**32 - 1 else 8)
                    else:
                        self.store(address, x[r[0]], 8)
                    if len(a) > 2:
                        x[at] += int(a[2][1:], 0)
                    elif a[1].endswith("!"):
                        x[at] = address
                case "b" | "bl":
                    x["x30"] = BASE + pc if op == "bl" else x["x30"]
                    pc = int(a[0], 16)
                case "br" | "blr" | "ret":
                    target = x[a[0] or "x30"]
                    x["x30"] = BASE + pc if op == "blr" else x["x30"]
                    if target in self.imports:
                        x["x0"] = self.imports[target](x["x0"], x["x1"])
                        target = x["x30"]
                    if target == 0:
                        return x["x0"]
                    pc = target - BASE
                case "nop":
                    pass
                case _:
                    raise NotImplementedError(f"{here:#x}: {op} {a}")
        raise RuntimeError("does not end")
