"""Images and programs for the runtime's tests: kernels written as LLVM IR, linked with a planned host program."""

import functools

import pytest
from llvmlite import binding as llvm

from lamina.compiler.native.host_ir import host_ir
from lamina.compiler.native.support_ir import support_ir
from lamina.compiler.plan import PlanBuilder, whole_plan
from lamina.dialects.dims import symbol
from lamina.dialects.record import Location, TensorType
from lamina.targets.linker import link

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

S = symbol("s0")

# a kernel over the flat elements of float tensors; dims[0] is their number. {compute}: %r from %x (and %y)
KERNEL = """
define i32 @{name}.range(ptr %ctx, ptr %buffers, ptr %dims, i64 %begin, i64 %end) {{
entry:
  %a = load ptr, ptr %buffers
  %b.at = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b.at
  %out.at = getelementptr ptr, ptr %buffers, i64 {operands}
  %out = load ptr, ptr %out.at
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %j, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %x.at = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %x.at
  {load_y}
  {compute}
  %r.at = getelementptr float, ptr %out, i64 %i
  store float %r, ptr %r.at
  %j = add i64 %i, 1
  br label %loop
done:
  ret i32 0
}}
define i32 @{name}(ptr %ctx, ptr %buffers, ptr %dims) {{
  %parallel.at = getelementptr ptr, ptr %ctx, i64 1
  %parallel = load ptr, ptr %parallel.at
  %n = load i64, ptr %dims
  %status = call i32 %parallel(ptr %ctx, ptr @{name}.range, ptr %buffers, ptr %dims, i64 %n, i64 1024)
  ret i32 %status
}}
"""
Y = "%y.at = getelementptr float, ptr %b, i64 %i\n  %y = load float, ptr %y.at"
# fails with code 1 if the first element of the operand is negative, else copies it
CHECK = """
define i32 @check(ptr %ctx, ptr %buffers, ptr %dims) {
  %a = load ptr, ptr %buffers
  %x = load float, ptr %a
  %out.at = getelementptr ptr, ptr %buffers, i64 1
  %out = load ptr, ptr %out.at
  store float %x, ptr %out
  %bad = fcmp olt float %x, 0.0
  %status = select i1 %bad, i32 1, i32 0
  ret i32 %status
}
"""
KERNELS = "".join(
    KERNEL.format(name=name, operands=2 if binary else 1, load_y=Y if binary else "", compute=f"%r = {compute}")
    for name, binary, compute in (
        ("add", True, "fadd float %x, %y"),
        ("mul", True, "fmul float %x, %y"),
        ("twice", False, "fadd float %x, %x"),
        ("increment", False, "fadd float %x, 1.0"),
    )
)


@functools.lru_cache(maxsize=64)
def _assemble(text: str) -> bytes:
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    module.verify()
    return machine.emit_object(module)


@pytest.fixture(scope="session")
def build():
    """build(*texts) → image: each text one object."""
    return lambda *texts: link([_assemble(text) for text in texts])


class Function:
    """A small way to write plans: tensors are f32 of one shape, kernels those of KERNELS."""

    def __init__(self, shape=(S,)):
        self.plan, self.type = PlanBuilder(), TensorType("f32", shape)
        self.size = self.type.numel

    def input(self, name):
        return self.plan.argument(name, self.type)

    def weight(self, name):
        return self.plan.weight(name, self.type)

    def stored(self, index):
        return self.plan.stored(index, self.type)

    def call(self, kernel, *operands, inplace=None):
        inplace = {} if inplace is None else {0: inplace}
        location = Location("model.py", len(self.plan.launches) + 10, kernel)
        return self.plan.launch(kernel, operands, [self.type], [self.size], inplace, location)[0]

    def view(self, value, op, result, **attributes):
        return self.plan.view(op, attributes, value, TensorType("f32", result))


@pytest.fixture(scope="session")
def compiled(build):
    """compiled(main, outputs, init, results, symbols) → (manifest, image)."""

    def run(main, outputs, init=None, results=(), symbols=None):
        if symbols is None:
            symbols = [{"name": "s0", "min": 0, "max": 4096, "multiple_of": 1, "input": 0, "dim": 0}]
        weights = {}
        for function in (main, init):
            for name, buffer in function.plan.weights.items() if function else ():
                weights[name] = buffer.type
                buffer.index = list(weights).index(name)
        init_plan = init.plan.finish_init(results) if init else None
        plan = whole_plan(main.plan.finish(outputs), init_plan, symbols, main.plan.inputs, weights)
        image = build(host_ir(plan), support_ir(), KERNELS, CHECK)
        return {"name": "test", "target": "native", "plan": plan}, image

    return run


@pytest.fixture(scope="session")
def saved(compiled, tmp_path_factory):
    """saved(entries, weights, state) → path of an artifact; an entry is what `compiled` returned."""
    from lamina.compiler.artifact_file import Code, EntryCode, write_artifact
    from lamina.runtime.machine import host_arch

    def run(entries, weights=None, state=None, name="model.lamina", flags=()):
        path = tmp_path_factory.mktemp("artifact") / name
        codes = {
            n: EntryCode({"test": Code(*program, host_arch(), flags)}, (state or {}).get(n, {}))
            for n, program in entries.items()
        }
        write_artifact(path, codes, weights or {}, "lamina test")
        return path

    return run
