// RUN: lamina opt %s --passes "lamina-emit-gpu-matmul{wgmma=true matrix=mma}" | filecheck %s

// One thread copies tiles of A and B, each 128 bytes of K, behind barriers; two warpgroups multiply, and write with bias
// by 16 bytes after an exchange among four lanes.
// CHECK-LABEL: gpu.module @linear
// CHECK: llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64}
// CHECK: gpu.func @linear_0(
// CHECK-SAME: !llvm.ptr
// CHECK-SAME: known_block_size = array<i32: 384, 1, 1>
// CHECK-SAME: lamina.args = ["buffer:2", "buffer:3", "tma:0", "tma:1"]
// CHECK-SAME: lamina.grid = ["min(512, sms)", "1", "1"], lamina.shared = 196672 : i64
// CHECK-SAME: lamina.tma = [{base = "buffer:0", box = array<i64: 64, 128>, sizes = ["4096", "4096"], strides = ["8192"], swizzle = 128 : i64, type = "bf16"}
// CHECK-SAME: box = array<i64: 64, 256>
// CHECK: nvvm.mbarrier.init
// CHECK: nvvm.fence.mbarrier.init
// CHECK: gpu.barrier
// CHECK: nvvm.setmaxregister decrease 40
// CHECK: scf.for
// CHECK: scf.for
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK-COUNT-2: cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
// CHECK: nvvm.setmaxregister increase 232
// CHECK: scf.for
// CHECK: scf.for
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: nvvm.wgmma.fence.aligned
// CHECK-COUNT-4: nvvm.wgmma.mma_async {{.*}}m = 64, n = 256, k = 16
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK: nvvm.wgmma.wait.group.sync.aligned 1
// CHECK: mbarrier.arrive.shared::cta.b64
// CHECK: wgmma.wait_group.sync.aligned 0;
// CHECK: vector.load {{.*}} {alignment = 4 : i64} : memref<4096xbf16
// CHECK: arith.truncf {{.*}} : vector<2xf32> to vector<2xbf16>
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK: vector.store {{.*}} {alignment = 16 : i64} {{.*}}, vector<8xbf16>
func.func private @linear(%0: tensor<4096x4096xbf16>, %1: tensor<4096x4096xbf16>, %2: tensor<4096xbf16>) -> tensor<4096x4096xbf16>
    attributes {lamina.kind = "matmul", lamina.label = "linear", lamina.symbols = [],
    lamina.arg_dims = [["4096", "4096"], ["4096", "4096"], ["4096"]], lamina.result_dims = [["4096", "4096"]],
    lamina.arg_dtypes = ["bf16", "bf16", "bf16"], lamina.result_dtypes = ["bf16"]} {
  %y = "lamina.linear"(%0, %1, %2) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<4096xbf16>) -> tensor<4096x4096xbf16>
  return %y : tensor<4096x4096xbf16>
}

// -----

// f32: both operands are split into planes first, B turned through shared memory on the way; TF32 products of a few
// blocks are added in f32.
// CHECK-LABEL: gpu.module @wide
// CHECK-SAME: lamina.scratch = ["12582912", "12582912"]
// CHECK: gpu.func @wide_0
// CHECK-COUNT-3: vector.store {{.*}} {alignment = 16 : i64} {{.*}}, vector<4xf32>
// CHECK: gpu.func @wide_1
// CHECK-SAME: workgroup(
// CHECK: gpu.barrier
// CHECK-COUNT-3: vector.store {{.*}} {alignment = 16 : i64} {{.*}}, vector<4xf32>
// CHECK: gpu.func @wide_2
// CHECK-SAME: sizes = ["1024", "1024", "3"]
// CHECK-COUNT-4: nvvm.wgmma.mma_async {{.*}}k = 8{{.*}}<tf32>
// CHECK: wgmma.wait_group.sync.aligned 0;
// CHECK: arith.addf
func.func private @wide(%0: tensor<1024x1024xf32>, %1: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> attributes {
    lamina.kind = "matmul", lamina.label = "wide", lamina.symbols = [],
    lamina.arg_dims = [["1024", "1024"], ["1024", "1024"]], lamina.result_dims = [["1024", "1024"]],
    lamina.arg_dtypes = ["f32", "f32"], lamina.result_dtypes = ["f32"]} {
  %y = "lamina.matmul"(%0, %1) : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  return %y : tensor<1024x1024xf32>
}

// -----

// A few rows of f32: a warp for two columns, no shared memory and no tensor cores.
// CHECK-LABEL: gpu.module @few
// CHECK: gpu.func @few_0(
// CHECK-NOT: smem
// CHECK-NOT: wgmma
// CHECK-COUNT-10: gpu.shuffle xor
// CHECK: vector.store
func.func private @few(%0: tensor<1x1024xf32>, %1: tensor<64x1024xf32>) -> tensor<1x64xf32> attributes {
    lamina.kind = "matmul", lamina.label = "few", lamina.symbols = [],
    lamina.arg_dims = [["1", "1024"], ["64", "1024"]], lamina.result_dims = [["1", "64"]],
    lamina.arg_dtypes = ["f32", "f32"], lamina.result_dtypes = ["f32"]} {
  %y = "lamina.linear"(%0, %1) : (tensor<1x1024xf32>, tensor<64x1024xf32>) -> tensor<1x64xf32>
  return %y : tensor<1x64xf32>
}

// -----

// f64 has neither: tiles in shared memory, multiply-adds.
// CHECK-LABEL: gpu.module @double
// CHECK: workgroup(
// CHECK-NOT: nvvm
// CHECK: math.fma {{.*}} : f64
func.func private @double(%0: tensor<64x64xf64>, %1: tensor<64x64xf64>) -> tensor<64x64xf64> attributes {
    lamina.kind = "matmul", lamina.label = "double", lamina.symbols = [],
    lamina.arg_dims = [["64", "64"], ["64", "64"]], lamina.result_dims = [["64", "64"]],
    lamina.arg_dtypes = ["f64", "f64"], lamina.result_dtypes = ["f64"]} {
  %y = "lamina.matmul"(%0, %1) : (tensor<64x64xf64>, tensor<64x64xf64>) -> tensor<64x64xf64>
  return %y : tensor<64x64xf64>
}
