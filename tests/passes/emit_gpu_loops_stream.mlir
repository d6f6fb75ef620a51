// RUN: lamina opt %s --passes "lamina-emit-gpu-loops{stream=true aligned=true}" | filecheck %s

// The rows of 64 MB are read past the caches, 16 bytes at a time; the sums are not.
// CHECK-LABEL: gpu.module @sums
// CHECK: lamina.args = ["buffer:1", "buffer:0"]
// CHECK: llvm.inline_asm has_side_effects {{.*}}"createpolicy.fractional.L2::evict_first.b64 $0, 1.0;"
// CHECK: llvm.inline_asm has_side_effects {{.*}}"ld.global.L1::no_allocate.L2::cache_hint.v4.b32
// CHECK: vector.from_elements {{.*}} : vector<4xi32>
// CHECK: vector.bitcast {{.*}} : vector<4xi32> to vector<4xf32>
// CHECK-NOT: vector.load %{{.*}}, vector<4xf32>
// CHECK: memref.store %{{.*}} : memref<4096xf32, #gpu.address_space<global>>
func.func private @sums(%x: tensor<4096x4096xf32>) -> tensor<4096xf32> attributes {
    lamina.kind = "loops", lamina.label = "sums", lamina.symbols = [], lamina.arg_dims = [["4096", "4096"]],
    lamina.result_dims = [["4096"]], lamina.arg_dtypes = ["f32"], lamina.result_dtypes = ["f32"]} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<4096xf32>) -> tensor<4096xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4096x4096xf32>) outs(%i : tensor<4096xf32>) {
  ^bb0(%a: f32, %c: f32):
    %s = arith.addf %c, %a : f32
    linalg.yield %s : f32
  } -> tensor<4096xf32>
  return %z : tensor<4096xf32>
}

// -----

// What caches hold, 8 MB, is read as always.
// CHECK-LABEL: gpu.module @small
// CHECK-NOT: createpolicy
// CHECK: vector.load %{{.*}}, vector<4xf32>
func.func private @small(%x: tensor<512x4096xf32>) -> tensor<512xf32> attributes {
    lamina.kind = "loops", lamina.label = "small", lamina.symbols = [], lamina.arg_dims = [["512", "4096"]],
    lamina.result_dims = [["512"]], lamina.arg_dtypes = ["f32"], lamina.result_dtypes = ["f32"]} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<512xf32>) -> tensor<512xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<512x4096xf32>) outs(%i : tensor<512xf32>) {
  ^bb0(%a: f32, %c: f32):
    %s = arith.addf %c, %a : f32
    linalg.yield %s : f32
  } -> tensor<512xf32>
  return %z : tensor<512xf32>
}

// -----

// Short rows that begin anywhere are read by words, past the L2 cache only: neighbours share L1's lines.
// CHECK-LABEL: gpu.module @columns
// CHECK: llvm.inline_asm has_side_effects {{.*}}"ld.global.L2::cache_hint.b32 $0, [$1], $2;"
// CHECK: arith.bitcast {{.*}} : i32 to f32
func.func private @columns(%x: tensor<81920x5x41xf32>) -> tensor<5x41xf32> attributes {
    lamina.kind = "loops", lamina.label = "columns", lamina.symbols = [], lamina.arg_dims = [["81920", "5", "41"]],
    lamina.result_dims = [["5", "41"]], lamina.arg_dtypes = ["f32"], lamina.result_dtypes = ["f32"]} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x41xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<5x41xf32>) -> tensor<5x41xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (j, k)>],
      iterator_types = ["reduction", "parallel", "parallel"]} ins(%x : tensor<81920x5x41xf32>) outs(%i : tensor<5x41xf32>) {
  ^bb0(%a: f32, %c: f32):
    %s = arith.addf %c, %a : f32
    linalg.yield %s : f32
  } -> tensor<5x41xf32>
  return %z : tensor<5x41xf32>
}

// -----

// Rows of columns that begin anywhere are read in aligned vectors, which are another row's in part.
// CHECK-LABEL: gpu.module @shifted
// CHECK: llvm.inline_asm has_side_effects {{.*}}"ld.global.L1::no_allocate.L2::cache_hint.v4.b32
// CHECK-NOT: llvm.intr.fshr
// CHECK: gpu.barrier
func.func private @shifted(%x: tensor<8192x4097xbf16>) -> tensor<4097xbf16> attributes {
    lamina.kind = "loops", lamina.label = "shifted", lamina.symbols = [], lamina.arg_dims = [["8192", "4097"]],
    lamina.result_dims = [["4097"]], lamina.arg_dtypes = ["bf16"], lamina.result_dtypes = ["bf16"]} {
  %zero = arith.constant 0.0 : bf16
  %e = tensor.empty() : tensor<4097xbf16>
  %i = linalg.fill ins(%zero : bf16) outs(%e : tensor<4097xbf16>) -> tensor<4097xbf16>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>],
      iterator_types = ["reduction", "parallel"]} ins(%x : tensor<8192x4097xbf16>) outs(%i : tensor<4097xbf16>) {
  ^bb0(%a: bf16, %c: bf16):
    %s = arith.maximumf %c, %a : bf16
    linalg.yield %s : bf16
  } -> tensor<4097xbf16>
  return %z : tensor<4097xbf16>
}
