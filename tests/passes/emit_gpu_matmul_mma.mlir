// RUN: lamina opt %s --passes "lamina-emit-gpu-matmul{matrix=mma}" | filecheck %s

// Three parts of K are under way before the first is multiplied. In the loop a step is read ahead of the products, the
// last one behind the barrier; A is read as it lies, B, which lies K by rows, turned.
// CHECK-LABEL: gpu.module @product
// CHECK: gpu.func @product_0(
// CHECK-SAME: !llvm.ptr<1>
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK-SAME: lamina.args = ["buffer:2", "buffer:0", "buffer:1"], lamina.grid = ["512", "1", "1"], lamina.shared = 98304 : i64
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache =  cg :
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 2
// CHECK-NEXT: gpu.barrier
// CHECK-COUNT-4: nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<row>, num = 4
// CHECK-COUNT-4: nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<col>, num = 4
// CHECK: scf.for
// CHECK-COUNT-8: nvvm.ldmatrix
// CHECK: scf.if
// CHECK-COUNT-6: nvvm.cp.async.shared.global
// CHECK-COUNT-32: nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 16>
// CHECK: nvvm.cp.async.commit.group
// CHECK-NEXT: nvvm.cp.async.wait.group 2
// CHECK-NEXT: gpu.barrier
// CHECK-COUNT-8: nvvm.ldmatrix
// CHECK-COUNT-32: nvvm.mma.sync
// CHECK: scf.yield
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK: vector.store {{.*}} {alignment = 16 : i64} {{.*}}, vector<8xbf16>
func.func private @product(%0: tensor<4096x4096xbf16>, %1: tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16> attributes {
    lamina.kind = "matmul", lamina.label = "product", lamina.symbols = [],
    lamina.arg_dims = [["4096", "4096"], ["4096", "4096"]], lamina.result_dims = [["4096", "4096"]],
    lamina.arg_dtypes = ["bf16", "bf16"], lamina.result_dtypes = ["bf16"]} {
  %y = "lamina.matmul"(%0, %1) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  return %y : tensor<4096x4096xbf16>
}

// -----

// Ragged: how many of a copy's bytes exist, and zeros beyond. In TF32 words are rounded as they are read, K is 8.
// CHECK-LABEL: gpu.module @ragged
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache =  cg, {{.*}} : {{.*}}, i32
// CHECK: llvm.inline_asm {{.*}}"cvt.rna.tf32.f32 $0, $1;"
// CHECK: nvvm.mma.sync {{.*}}#nvvm.mma_type<tf32>{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 8>
func.func private @ragged(%0: tensor<1000x516xf32>, %1: tensor<1000x516xf32>) -> tensor<1000x1000xf32> attributes {
    lamina.kind = "matmul", lamina.label = "ragged", lamina.symbols = [], lamina.tf32,
    lamina.arg_dims = [["1000", "516"], ["1000", "516"]], lamina.result_dims = [["1000", "1000"]],
    lamina.arg_dtypes = ["f32", "f32"], lamina.result_dtypes = ["f32"]} {
  %y = "lamina.linear"(%0, %1) : (tensor<1000x516xf32>, tensor<1000x516xf32>) -> tensor<1000x1000xf32>
  return %y : tensor<1000x1000xf32>
}
