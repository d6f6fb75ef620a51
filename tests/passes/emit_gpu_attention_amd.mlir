// RUN: lamina opt %s --passes "lamina-emit-gpu-attention{wave=64 matrix=mfma}" | filecheck %s

// Four waves of 64 take 128 query rows. Q goes through shared memory to registers once; then V of a tile is under way
// during the first product, K of the next one during the second, and weights go from one to the other in registers.
// CHECK-LABEL: gpu.module @attention
// CHECK: gpu.func @attention_0(
// CHECK-SAME: workgroup({{.*}} : memref<16384xbf16, #gpu.address_space<workgroup>>
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>, lamina.args = ["buffer:0", "buffer:1", "buffer:2", "buffer:3"], lamina.grid = ["2048", "1", "1"]
// CHECK-COUNT-8: vector.load {{.*}} {alignment = 16 : i64} : memref<16384xbf16, #gpu.address_space<workgroup>>, vector<8xbf16>
// CHECK: amdgpu.lds_barrier
// CHECK: scf.for
// CHECK-COUNT-4: vector.load {{.*}} {alignment = 16 : i64} : memref<33554432xbf16, strided<[1], offset: ?>, #gpu.address_space<global>>, vector<8xbf16>
// CHECK: amdgpu.sched_barrier
// CHECK-COUNT-64: amdgpu.mfma 16x16x16 {{.*}} : vector<4xbf16>, vector<4xbf16>, vector<4xf32>
// CHECK: arith.maxnumf
// CHECK-COUNT-2: gpu.shuffle xor
// CHECK: llvm.amdgcn.exp2
// CHECK: arith.bitcast {{.*}} : vector<8xi16> to vector<8xbf16>
// CHECK: amdgpu.sched_barrier
// CHECK: vector.store {{.*}} : memref<16384xbf16, #gpu.address_space<workgroup>>, vector<2xbf16>
// CHECK-COUNT-4: vector.load {{.*}} {alignment = 16 : i64} : memref<33554432xbf16, strided<[1], offset: ?>, #gpu.address_space<global>>, vector<8xbf16>
// CHECK: amdgpu.lds_barrier
// CHECK-COUNT-64: amdgpu.mfma 16x16x16 {{.*}} : vector<4xbf16>, vector<4xbf16>, vector<4xf32>
// CHECK: amdgpu.lds_barrier
// CHECK: scf.yield
// CHECK-NOT: amdgpu.mfma
// CHECK: llvm.amdgcn.rcp
// CHECK: vector.store {{.*}} {alignment = 8 : i64} : memref<33554432xbf16, #gpu.address_space<global>>, vector<4xbf16>
// CHECK-NOT: scf.if
func.func private @attention(%0: tensor<64x4096x128xbf16>, %1: tensor<64x4096x128xbf16>, %2: tensor<64x4096x128xbf16>)
    -> tensor<64x4096x128xbf16>
    attributes {lamina.kind = "attention", lamina.label = "attention", lamina.symbols = [],
    lamina.arg_dims = [["64", "4096", "128"], ["64", "4096", "128"], ["64", "4096", "128"]],
    lamina.result_dims = [["64", "4096", "128"]],
    lamina.arg_dtypes = ["bf16", "bf16", "bf16"], lamina.result_dtypes = ["bf16"]} {
  %y, %l = "lamina.attention"(%0, %1, %2) {causal = false, gqa = 1 : i64, scale = unit}
    : (tensor<64x4096x128xbf16>, tensor<64x4096x128xbf16>, tensor<64x4096x128xbf16>)
    -> (tensor<64x4096x128xbf16>, tensor<64x4096xf32>)
  return %y : tensor<64x4096x128xbf16>
}
