// RUN: lamina opt %s --passes "lamina-emit-gpu-loops" | filecheck %s

// A thread adds four f32, with one load of 16 bytes for each operand; nothing is left over, so there is no tail.
// CHECK-LABEL: gpu.module @add
// CHECK: gpu.func @add_0(%{{.*}}: memref<262144xf32, #gpu.address_space<global>> {llvm.align = 16 : i64, llvm.noalias}
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK-SAME: lamina.args = ["buffer:0", "buffer:1", "buffer:2"]
// CHECK-SAME: lamina.grid = ["256", "1", "1"]
// CHECK: vector.load %{{.*}} {alignment = 16 : i64} : memref<262144xf32, #gpu.address_space<global>>, vector<4xf32>
// CHECK: vector.load %{{.*}} {alignment = 16 : i64} : memref<262144xf32, #gpu.address_space<global>>, vector<4xf32>
// CHECK-NEXT: arith.addf %{{.*}} : vector<4xf32>
// CHECK-NEXT: vector.store %{{.*}} {alignment = 16 : i64}
// CHECK-NOT: memref.load
func.func private @add(%x: tensor<262144xf32>, %y: tensor<262144xf32>) -> tensor<262144xf32> attributes {
    lamina.kind = "loops", lamina.label = "add", lamina.symbols = [], lamina.arg_dims = [["262144"], ["262144"]],
    lamina.result_dims = [["262144"]], lamina.arg_dtypes = ["f32", "f32"], lamina.result_dtypes = ["f32"]} {
  %e = tensor.empty() : tensor<262144xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x, %y : tensor<262144xf32>, tensor<262144xf32>) outs(%e : tensor<262144xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<262144xf32>
  return %z : tensor<262144xf32>
}

// -----

// A block sums a row: each thread its vectors, lanes by shuffles, warps through shared memory behind one barrier.
// CHECK-LABEL: gpu.module @sum
// CHECK: gpu.func @sum_0(
// CHECK-SAME: workgroup(%{{.*}} : memref<8xf32, #gpu.address_space<workgroup>> {llvm.align = 16 : i64})
// CHECK-SAME: lamina.grid = ["300", "1", "1"]
// CHECK-COUNT-4: vector.load %{{.*}} {alignment = 16 : i64} {{.*}}, vector<4xf32>
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: memref.store %{{.*}} : memref<8xf32, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK-COUNT-8: memref.load %{{.*}} : memref<8xf32, #gpu.address_space<workgroup>>
// CHECK-NOT: gpu.shuffle
// CHECK-NOT: gpu.barrier
// CHECK: scf.if
// CHECK: memref.store %{{.*}} : memref<300xf32, #gpu.address_space<global>>
func.func private @sum(%x: tensor<300x4096xf32>) -> tensor<300xf32> attributes {
    lamina.kind = "loops", lamina.label = "sum", lamina.symbols = [], lamina.arg_dims = [["300", "4096"]],
    lamina.result_dims = [["300"]], lamina.arg_dtypes = ["f32"], lamina.result_dtypes = ["f32"]} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<300xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<300xf32>) -> tensor<300xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<300x4096xf32>) outs(%i : tensor<300xf32>) {
  ^bb0(%a: f32, %c: f32):
    %s = arith.addf %c, %a : f32
    linalg.yield %s : f32
  } -> tensor<300xf32>
  return %z : tensor<300xf32>
}

// -----

// A transpose goes through a tile of shared memory: vectors on both sides, and into the tile, of which lanes are read one by one.
// CHECK-LABEL: gpu.module @turn
// CHECK: gpu.func @turn_0(
// CHECK-SAME: workgroup(%{{.*}} : memref<1056xf32, #gpu.address_space<workgroup>> {llvm.align = 16 : i64})
// CHECK: vector.load %{{.*}} {alignment = 16 : i64} : memref<8192xf32, #gpu.address_space<global>>, vector<4xf32>
// CHECK: vector.store %{{.*}} {alignment = 16 : i64} : memref<1056xf32, #gpu.address_space<workgroup>>, vector<4xf32>
// CHECK: gpu.barrier
// CHECK: memref.load %{{.*}} : memref<1056xf32, #gpu.address_space<workgroup>>
// CHECK: vector.store %{{.*}} {alignment = 16 : i64} : memref<8192xf32, #gpu.address_space<global>>, vector<4xf32>
func.func private @turn(%x: tensor<64x128xf32>) -> tensor<128x64xf32> attributes {
    lamina.kind = "loops", lamina.label = "turn", lamina.symbols = [], lamina.arg_dims = [["64", "128"]],
    lamina.result_dims = [["128", "64"]], lamina.arg_dtypes = ["f32"], lamina.result_dtypes = ["f32"]} {
  %e = tensor.empty() : tensor<128x64xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x128xf32>) outs(%e : tensor<128x64xf32>) {
  ^bb0(%a: f32, %c: f32):
    linalg.yield %a : f32
  } -> tensor<128x64xf32>
  return %z : tensor<128x64xf32>
}
