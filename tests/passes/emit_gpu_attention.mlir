// RUN: lamina opt %s --passes "lamina-emit-gpu-attention{wgmma=true}" | filecheck %s

// One thread copies Q, and tiles of K and V behind barriers of their own; two warpgroups take turns to multiply, weights
// stay in registers, and the rows are written by 16 bytes.
// CHECK-LABEL: gpu.module @attention
// CHECK: gpu.func @attention_0(
// CHECK-SAME: known_block_size = array<i32: 384, 1, 1>
// CHECK-SAME: lamina.args = ["buffer:3", "tma:0", "tma:1", "tma:2"]
// CHECK-SAME: lamina.grid = ["min(1024, sms)", "1", "1"], lamina.shared = 163920 : i64
// CHECK-SAME: box = array<i64: 64, 128, 1>, sizes = ["128", "4096", "64"], strides = ["256", "1048576"]
// CHECK: nvvm.fence.mbarrier.init
// CHECK: gpu.barrier
// CHECK: nvvm.setmaxregister decrease 40
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK-COUNT-2: cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes
// CHECK: nvvm.setmaxregister increase 232
// CHECK: bar.arrive
// CHECK-COUNT-8: nvvm.wgmma.mma_async {{.*}}m = 64, n = 128, k = 16
// CHECK: wgmma.wait_group.sync.aligned 0;
// CHECK: llvm.nvvm.ex2.approx.ftz.f
// CHECK: scf.for
// CHECK: bar.sync
// CHECK-COUNT-8: nvvm.wgmma.mma_async {{.*}}m = 64, n = 128, k = 16
// CHECK-COUNT-8: wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
// CHECK: bar.arrive
// CHECK: wgmma.wait_group.sync.aligned 1;
// CHECK: llvm.nvvm.ex2.approx.ftz.f
// CHECK: wgmma.wait_group.sync.aligned 0;
// CHECK: vector.store {{.*}} {alignment = 16 : i64} {{.*}}, vector<8xbf16>
func.func private @attention(%0: tensor<4x16x4096x128xbf16>, %1: tensor<4x16x4096x128xbf16>, %2: tensor<4x16x4096x128xbf16>)
    -> tensor<4x16x4096x128xbf16>
    attributes {lamina.kind = "attention", lamina.label = "attention", lamina.symbols = [],
    lamina.arg_dims = [["4", "16", "4096", "128"], ["4", "16", "4096", "128"], ["4", "16", "4096", "128"]],
    lamina.result_dims = [["4", "16", "4096", "128"]],
    lamina.arg_dtypes = ["bf16", "bf16", "bf16"], lamina.result_dtypes = ["bf16"]} {
  %y, %l = "lamina.attention"(%0, %1, %2) {causal = true, gqa = 1 : i64, scale = unit}
    : (tensor<4x16x4096x128xbf16>, tensor<4x16x4096x128xbf16>, tensor<4x16x4096x128xbf16>)
    -> (tensor<4x16x4096x128xbf16>, tensor<4x16x4096xf32>)
  return %y : tensor<4x16x4096x128xbf16>
}

// One query: the four heads that share keys are rows of one, the keys are cut into four parts, which a second stage merges.
// CHECK-LABEL: gpu.module @decode
// CHECK-SAME: lamina.scratch = ["262144", "2048", "2048"]
// CHECK: gpu.func @decode_0(
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK-SAME: lamina.tma = [{base = "buffer:0", box = array<i64: 64, 64, 1>, sizes = ["128", "4", "32"]
// CHECK-NOT: nvvm.setmaxregister
// CHECK: gpu.func @decode_1(
// CHECK-COUNT-4: vector.load {{.*}}vector<4xf32>
// CHECK: arith.truncf
func.func private @decode(%0: tensor<4x32x1x128xbf16>, %1: tensor<4x8x4096x128xbf16>, %2: tensor<4x8x4096x128xbf16>)
    -> tensor<4x32x1x128xbf16>
    attributes {lamina.kind = "attention", lamina.label = "decode", lamina.symbols = [],
    lamina.arg_dims = [["4", "32", "1", "128"], ["4", "8", "4096", "128"], ["4", "8", "4096", "128"]],
    lamina.result_dims = [["4", "32", "1", "128"]],
    lamina.arg_dtypes = ["bf16", "bf16", "bf16"], lamina.result_dtypes = ["bf16"]} {
  %y, %l = "lamina.attention"(%0, %1, %2) {causal = false, gqa = 4 : i64, scale = unit}
    : (tensor<4x32x1x128xbf16>, tensor<4x8x4096x128xbf16>, tensor<4x8x4096x128xbf16>)
    -> (tensor<4x32x1x128xbf16>, tensor<4x32x1xf32>)
  return %y : tensor<4x32x1x128xbf16>
}
