// RUN: lamina opt %s --passes "lamina-emit-gpu-attention" | filecheck %s

// Four warps of 32 query rows. Q and K begin; in the loop V begins before the first product, the next K before the second.
// CHECK-LABEL: gpu.module @attention
// CHECK: known_block_size = array<i32: 128, 1, 1>
// CHECK-SAME: lamina.args = ["buffer:3", "buffer:0", "buffer:1", "buffer:2"], lamina.grid = ["2048", "1", "1"], lamina.shared = 65536 : i64
// CHECK-COUNT-24: nvvm.cp.async.shared.global {{.*}}, 16, cache = {{ *}}cg
// CHECK-NEXT: nvvm.cp.async.commit.group
// CHECK: scf.for
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK-COUNT-8: nvvm.cp.async.shared.global
// CHECK-NEXT: nvvm.cp.async.commit.group
// CHECK-COUNT-128: nvvm.mma.sync
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK: scf.if
// CHECK-COUNT-8: nvvm.cp.async.shared.global
// CHECK: llvm.nvvm.ex2.approx.ftz.f
// CHECK: layout = #nvvm.mma_layout<col>
// CHECK-COUNT-128: nvvm.mma.sync
// CHECK: scf.yield
// CHECK: vector.store {{.*}} {alignment = 16 : i64} {{.*}}, vector<8xbf16>
func.func private @attention(%0: tensor<4x16x4096x128xbf16>, %1: tensor<4x16x4096x128xbf16>, %2: tensor<4x16x4096x128xbf16>)
    -> tensor<4x16x4096x128xbf16>
    attributes {lamina.kind = "attention", lamina.label = "attention", lamina.symbols = [],
    lamina.arg_dims = [["4", "16", "4096", "128"], ["4", "16", "4096", "128"], ["4", "16", "4096", "128"]],
    lamina.result_dims = [["4", "16", "4096", "128"]],
    lamina.arg_dtypes = ["bf16", "bf16", "bf16"], lamina.result_dtypes = ["bf16"]} {
  %y, %l = "lamina.attention"(%0, %1, %2) {causal = false, gqa = 1 : i64, scale = unit}
    : (tensor<4x16x4096x128xbf16>, tensor<4x16x4096x128xbf16>, tensor<4x16x4096x128xbf16>)
    -> (tensor<4x16x4096x128xbf16>, tensor<4x16x4096xf32>)
  return %y : tensor<4x16x4096x128xbf16>
}
