// RUN: lamina opt %s --passes "lamina-emit-gpu-matmul{wave=64 matrix=mfma}" | filecheck %s

// Four waves of 64 compute 256 x 128. The next tile is loaded before the products, which nothing is moved across, from a
// base that all threads share, and stored when all waves have read this one. A lane has four neighbouring columns and
// stores them at once.
// CHECK-LABEL: gpu.module @linear
// CHECK: gpu.func @linear_0(
// CHECK-SAME: workgroup({{.*}} : memref<8192xbf16, #gpu.address_space<workgroup>> {llvm.align = 16 : i64}, {{.*}} : memref<4096xbf16, #gpu.address_space<workgroup>> {{{.*}}})
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>, lamina.args = ["buffer:0", "buffer:1", "buffer:2", "buffer:3"], lamina.grid = ["512", "1", "1"]
// CHECK-COUNT-4: vector.load {{.*}} {alignment = 16 : i64} : memref<16777216xbf16, strided<[1], offset: ?>, #gpu.address_space<global>>, vector<8xbf16>
// CHECK: amdgpu.lds_barrier
// CHECK: scf.for
// CHECK: %[[BASE:.*]] = memref.reinterpret_cast
// CHECK-COUNT-4: vector.load %[[BASE]]{{.*}} {alignment = 16 : i64}
// CHECK-COUNT-2: vector.load {{.*}} {alignment = 16 : i64} : memref<16777216xbf16, strided<[1], offset: ?>, #gpu.address_space<global>>, vector<8xbf16>
// CHECK: amdgpu.sched_barrier
// CHECK-COUNT-8: vector.load {{.*}} {alignment = 16 : i64} : memref<8192xbf16, #gpu.address_space<workgroup>>, vector<8xbf16>
// CHECK-COUNT-4: vector.load {{.*}} {alignment = 16 : i64} : memref<4096xbf16, #gpu.address_space<workgroup>>, vector<8xbf16>
// CHECK-COUNT-64: amdgpu.mfma 16x16x16 {{.*}} : vector<4xbf16>, vector<4xbf16>, vector<4xf32>
// CHECK: amdgpu.sched_barrier
// CHECK: amdgpu.lds_barrier
// CHECK-COUNT-4: vector.store {{.*}} {alignment = 16 : i64} : memref<8192xbf16, #gpu.address_space<workgroup>>, vector<8xbf16>
// CHECK: amdgpu.lds_barrier
// CHECK: scf.yield
// CHECK: arith.addf {{.*}} : vector<4xf32>
// CHECK: arith.truncf {{.*}} : vector<4xf32> to vector<4xbf16>
// CHECK: vector.store {{.*}} {alignment = 8 : i64} : memref<16777216xbf16, #gpu.address_space<global>>, vector<4xbf16>
// CHECK-NOT: scf.if
func.func private @linear(%0: tensor<4096x4096xbf16>, %1: tensor<4096x4096xbf16>, %2: tensor<4096xbf16>) -> tensor<4096x4096xbf16>
    attributes {lamina.kind = "matmul", lamina.label = "linear", lamina.symbols = [],
    lamina.arg_dims = [["4096", "4096"], ["4096", "4096"], ["4096"]], lamina.result_dims = [["4096", "4096"]],
    lamina.arg_dtypes = ["bf16", "bf16", "bf16"], lamina.result_dtypes = ["bf16"]} {
  %y = "lamina.linear"(%0, %1, %2) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<4096xbf16>) -> tensor<4096x4096xbf16>
  return %y : tensor<4096x4096xbf16>
}

// -----

// There is no matrix instruction for f64: multiply-adds in tiles of shared memory.
// CHECK-LABEL: gpu.module @double
// CHECK-NOT: amdgpu.mfma
// CHECK: math.fma {{.*}} : f64
func.func private @double(%0: tensor<64x64xf64>, %1: tensor<64x64xf64>) -> tensor<64x64xf64>
    attributes {lamina.kind = "matmul", lamina.label = "double", lamina.symbols = [],
    lamina.arg_dims = [["64", "64"], ["64", "64"]], lamina.result_dims = [["64", "64"]],
    lamina.arg_dtypes = ["f64", "f64"], lamina.result_dtypes = ["f64"]} {
  %y = "lamina.matmul"(%0, %1) : (tensor<64x64xf64>, tensor<64x64xf64>) -> tensor<64x64xf64>
  return %y : tensor<64x64xf64>
}
