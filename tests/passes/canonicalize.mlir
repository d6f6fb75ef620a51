// RUN: lamina opt %s --passes lamina-canonicalize | filecheck %s

// Chains of views are one view, and a view that moves nothing is none.
// CHECK-LABEL: @views
// CHECK-NEXT: %0 = "lamina.slice"(%arg0) {sizes = ["2", "3"], starts = ["3", "0"], steps = array<i64: 6, 1>}
// CHECK-NEXT: return %arg0, %0
func.func @views(%x: tensor<12x3xf32>) -> (tensor<12x3xf32>, tensor<2x3xf32>) {
  %0 = "lamina.permute"(%x) {dims = array<i64: 1, 0>} : (tensor<12x3xf32>) -> tensor<3x12xf32>
  %1 = "lamina.permute"(%0) {dims = array<i64: 1, 0>} : (tensor<3x12xf32>) -> tensor<12x3xf32>
  %2 = "lamina.slice"(%1) {starts = ["1", "0"], sizes = ["5", "3"], steps = array<i64: 2, 1>} : (tensor<12x3xf32>) -> tensor<5x3xf32>
  %3 = "lamina.slice"(%2) {starts = ["1", "0"], sizes = ["2", "3"], steps = array<i64: 3, 1>} : (tensor<5x3xf32>) -> tensor<2x3xf32>
  return %1, %3 : tensor<12x3xf32>, tensor<2x3xf32>
}

// -----

// Symbolic sizes compare as expressions.
// CHECK-LABEL: @symbolic_reshape
// CHECK-NEXT: return %arg0
func.func @symbolic_reshape(%x: tensor<?x4xf32, ["s0", "4"]>) -> tensor<?x4xf32, ["s0", "4"]> {
  %0 = "lamina.reshape"(%x) {shape = ["4*s0"]} : (tensor<?x4xf32, ["s0", "4"]>) -> tensor<?xf32, ["4*s0"]>
  %1 = "lamina.reshape"(%0) {shape = ["s0", "4"]} : (tensor<?xf32, ["4*s0"]>) -> tensor<?x4xf32, ["s0", "4"]>
  return %1 : tensor<?x4xf32, ["s0", "4"]>
}

// -----

// `x + 0.0` turns -0.0 into 0.0, so it stays; `x - 0.0` and `x * 1.0` go.
// CHECK-LABEL: @neutral_elements
// CHECK: %[[Z:.*]] = "lamina.full"
// CHECK-NEXT: %[[A:.*]] = "lamina.add"(%arg0, %[[Z]])
// CHECK-NEXT: return %[[A]], %arg0, %arg0
func.func @neutral_elements(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = "lamina.full"() {shape = [], value = 0.0 : f64, dtype = f32} : () -> tensor<f32>
  %one = "lamina.full"() {shape = [], value = 1.0 : f64, dtype = f32} : () -> tensor<f32>
  %0 = "lamina.add"(%x, %zero) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "lamina.sub"(%x, %zero) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = "lamina.mul"(%one, %x) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A cast that loses nothing can be undone; one that rounds cannot.
// CHECK-LABEL: @casts
// CHECK-NEXT: %0 = "lamina.cast"(%arg1) {dtype = f16}
// CHECK-NEXT: %1 = "lamina.cast"(%0) {dtype = f32}
// CHECK-NEXT: return %arg0, %1
func.func @casts(%x: tensor<4xf16>, %y: tensor<4xf32>) -> (tensor<4xf16>, tensor<4xf32>) {
  %0 = "lamina.cast"(%x) {dtype = f32} : (tensor<4xf16>) -> tensor<4xf32>
  %1 = "lamina.cast"(%0) {dtype = f16} : (tensor<4xf32>) -> tensor<4xf16>
  %2 = "lamina.cast"(%y) {dtype = f16} : (tensor<4xf32>) -> tensor<4xf16>
  %3 = "lamina.cast"(%2) {dtype = f32} : (tensor<4xf16>) -> tensor<4xf32>
  return %1, %3 : tensor<4xf16>, tensor<4xf32>
}

// -----

// A known condition chooses its branch; `not (a < b)` is not `a >= b` where NaN is.
// CHECK-LABEL: @conditions
// CHECK-NEXT: %0 = "lamina.lt"(%arg0, %arg1)
// CHECK-NEXT: %1 = "lamina.logical_not"(%0)
// CHECK-NEXT: %2 = "lamina.ne"(%arg0, %arg1)
// CHECK-NEXT: return %arg1, %1, %2
func.func @conditions(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi1>, tensor<4xi1>) {
  %no = "lamina.full"() {shape = ["4"], value = false, dtype = i1} : () -> tensor<4xi1>
  %0 = "lamina.where"(%no, %x, %y) : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "lamina.lt"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %2 = "lamina.logical_not"(%1) : (tensor<4xi1>) -> tensor<4xi1>
  %3 = "lamina.eq"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %4 = "lamina.logical_not"(%3) : (tensor<4xi1>) -> tensor<4xi1>
  return %0, %2, %4 : tensor<4xf32>, tensor<4xi1>, tensor<4xi1>
}

// -----

// Masks of a library are mostly `true`.
// CHECK-LABEL: @truth
// CHECK-NEXT: %0 = "lamina.full"() {dtype = i1, shape = ["4"], value = true}
// CHECK-NEXT: return %arg0, %0
func.func @truth(%x: tensor<4xi1>) -> (tensor<4xi1>, tensor<4xi1>) {
  %t = "lamina.full"() {shape = [], value = true, dtype = i1} : () -> tensor<i1>
  %0 = "lamina.bitwise_and"(%t, %x) : (tensor<i1>, tensor<4xi1>) -> tensor<4xi1>
  %1 = "lamina.logical_or"(%x, %t) : (tensor<4xi1>, tensor<i1>) -> tensor<4xi1>
  return %0, %1 : tensor<4xi1>, tensor<4xi1>
}

// -----

// Heads of keys and values that are repeated for a group of query heads are shared by it; heads that alternate are not.
// CHECK-LABEL: @shared_heads
// CHECK-NEXT: %[[A:.*]]:2 = "lamina.attention"(%arg0, %arg1, %arg1) {{.*}}gqa = 2 : i64
// CHECK: "lamina.expand"
// CHECK: "lamina.attention"({{.*}}gqa = 1 : i64
func.func @shared_heads(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x5x8xf32>) -> (tensor<1x4x3x8xf32>, tensor<1x4x3x8xf32>) {
  %0 = "lamina.reshape"(%k) {shape = ["1", "2", "1", "5", "8"]} : (tensor<1x2x5x8xf32>) -> tensor<1x2x1x5x8xf32>
  %1 = "lamina.expand"(%0) {shape = ["1", "2", "2", "5", "8"]} : (tensor<1x2x1x5x8xf32>) -> tensor<1x2x2x5x8xf32>
  %2 = "lamina.reshape"(%1) {shape = ["1", "4", "5", "8"]} : (tensor<1x2x2x5x8xf32>) -> tensor<1x4x5x8xf32>
  %3:2 = "lamina.attention"(%q, %2, %2) {causal = false, scale, gqa = 1 : i64} : (tensor<1x4x3x8xf32>, tensor<1x4x5x8xf32>, tensor<1x4x5x8xf32>) -> (tensor<1x4x3x8xf32>, tensor<1x4x3xf32>)
  %4 = "lamina.reshape"(%k) {shape = ["1", "1", "2", "5", "8"]} : (tensor<1x2x5x8xf32>) -> tensor<1x1x2x5x8xf32>
  %5 = "lamina.expand"(%4) {shape = ["1", "2", "2", "5", "8"]} : (tensor<1x1x2x5x8xf32>) -> tensor<1x2x2x5x8xf32>
  %6 = "lamina.reshape"(%5) {shape = ["1", "4", "5", "8"]} : (tensor<1x2x2x5x8xf32>) -> tensor<1x4x5x8xf32>
  %7:2 = "lamina.attention"(%q, %6, %6) {causal = false, scale, gqa = 1 : i64} : (tensor<1x4x3x8xf32>, tensor<1x4x5x8xf32>, tensor<1x4x5x8xf32>) -> (tensor<1x4x3x8xf32>, tensor<1x4x3xf32>)
  return %3#0, %7#0 : tensor<1x4x3x8xf32>, tensor<1x4x3x8xf32>
}

// -----

// A mask that is known to keep the keys up to the query's is no operand, however it is made; another one stays.
// CHECK-LABEL: @causal_mask
// CHECK: "lamina.attention"(%arg0, %arg0, %arg0) {causal = true
// CHECK: "lamina.attention"(%arg0, %arg0, %arg0, %{{.*}}) {causal = false
func.func @causal_mask(%q: tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) {
  %i = "lamina.iota"() {dtype = i64, size = ["4"], start = 0 : i64, step = 1 : i64} : () -> tensor<4xi64>
  %row = "lamina.reshape"(%i) {shape = ["1", "1", "4", "1"]} : (tensor<4xi64>) -> tensor<1x1x4x1xi64>
  %key = "lamina.reshape"(%i) {shape = ["1", "1", "1", "4"]} : (tensor<4xi64>) -> tensor<1x1x1x4xi64>
  %le = "lamina.le"(%key, %row) : (tensor<1x1x1x4xi64>, tensor<1x1x4x1xi64>) -> tensor<1x1x4x4xi1>
  %0:2 = "lamina.attention"(%q, %q, %q, %le) {causal = false, scale, gqa = 1 : i64} : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x1x4x4xi1>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
  %lt = "lamina.lt"(%key, %row) : (tensor<1x1x1x4xi64>, tensor<1x1x4x1xi64>) -> tensor<1x1x4x4xi1>
  %1:2 = "lamina.attention"(%q, %q, %q, %lt) {causal = false, scale, gqa = 1 : i64} : (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x1x4x4xi1>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4xf32>)
  return %0#0, %1#0 : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
}

// -----

// A mask of zeros, or of true, is none.
// CHECK-LABEL: @no_mask
// CHECK-NEXT: %0:2 = "lamina.attention"(%arg0, %arg0, %arg0) {causal = false
// CHECK-NEXT: return %0#0, %0#1
func.func @no_mask(%x: tensor<2x3x8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3xf32>) {
  %m = "lamina.full"() {dtype = f32, shape = ["3", "3"], value = 0.0 : f64} : () -> tensor<3x3xf32>
  %0:2 = "lamina.attention"(%x, %x, %x, %m) {causal = false, gqa = 1 : i64, scale = 1.0 : f64} : (tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<3x3xf32>) -> (tensor<2x3x8xf32>, tensor<2x3xf32>)
  return %0#0, %0#1 : tensor<2x3x8xf32>, tensor<2x3xf32>
}

// -----

// Zeros are put around what was made narrower; a value that other dtypes round stays.
// CHECK-LABEL: @cast_of_pad
// CHECK: %[[C:.*]] = "lamina.cast"(%arg0) {dtype = bf16} : (tensor<3x8xf32>)
// CHECK-NEXT: "lamina.pad"(%[[C]]) {{.*}} : (tensor<3x8xbf16>) -> tensor<4x8xbf16>
// CHECK: "lamina.pad"(%arg0)
// CHECK-NEXT: "lamina.cast"
func.func @cast_of_pad(%x: tensor<3x8xf32>) -> (tensor<4x8xbf16>, tensor<4x8xbf16>) {
  %0 = "lamina.pad"(%x) {high = ["1", "0"], low = ["0", "0"], mode = "constant", value = 0 : i64} : (tensor<3x8xf32>) -> tensor<4x8xf32>
  %1 = "lamina.cast"(%0) {dtype = bf16} : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %2 = "lamina.pad"(%x) {high = ["1", "0"], low = ["0", "0"], mode = "constant", value = 1.500000e-01 : f64} : (tensor<3x8xf32>) -> tensor<4x8xf32>
  %3 = "lamina.cast"(%2) {dtype = bf16} : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  return %1, %3 : tensor<4x8xbf16>, tensor<4x8xbf16>
}

// -----

// The loss of a row needs one of its classes: a logit less the row's logarithm, not all of them in memory.
// CHECK-LABEL: @picked
// CHECK: %[[X:.*]] = "lamina.index"(%arg0, %arg2, %arg3) {checked = true, dims = array<i64: 0, 1>
// CHECK: %[[C:.*]] = "lamina.cast"(%[[X]]) {dtype = f32} : (tensor<4xbf16>)
// CHECK: %[[R:.*]] = "lamina.reshape"(%arg1) {shape = ["4"]}
// CHECK: %[[S:.*]] = "lamina.index"(%[[R]], %arg2) {{.*}}dims = array<i64: 0>
// CHECK: "lamina.sub"(%[[C]], %[[S]]) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: return
func.func @picked(%x: tensor<4x100xbf16>, %s: tensor<4x1xf32>, %i: tensor<4xi64>, %j: tensor<4xi64>) -> tensor<4xf32> {
  %0 = "lamina.cast"(%x) {dtype = f32} : (tensor<4x100xbf16>) -> tensor<4x100xf32>
  %1 = "lamina.sub"(%0, %s) : (tensor<4x100xf32>, tensor<4x1xf32>) -> tensor<4x100xf32>
  %2 = "lamina.index"(%1, %i, %j) {checked = true, dims = array<i64: 0, 1>, wrap = false} : (tensor<4x100xf32>, tensor<4xi64>, tensor<4xi64>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// The same behind views of a cast.
// CHECK-LABEL: @picked_of_rows
// CHECK: %[[V:.*]] = "lamina.slice"(%arg0) {{.*}} -> tensor<4x100xbf16>
// CHECK: %[[X:.*]] = "lamina.index"(%[[V]], %arg1, %arg2)
// CHECK-NEXT: "lamina.cast"(%[[X]]) {dtype = f32} : (tensor<4xbf16>)
func.func @picked_of_rows(%x: tensor<5x100xbf16>, %i: tensor<4xi64>, %j: tensor<4xi64>) -> tensor<4xf32> {
  %0 = "lamina.cast"(%x) {dtype = f32} : (tensor<5x100xbf16>) -> tensor<5x100xf32>
  %1 = "lamina.slice"(%0) {starts = ["0", "0"], sizes = ["4", "100"], steps = array<i64: 1, 1>} : (tensor<5x100xf32>) -> tensor<4x100xf32>
  %2 = "lamina.index"(%1, %i, %j) {checked = true, dims = array<i64: 0, 1>, wrap = false} : (tensor<4x100xf32>, tensor<4xi64>, tensor<4xi64>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// Positions of a batch are the same for all of it: their rows are looked up once.
// CHECK-LABEL: @positions
// CHECK-NEXT: %0 = "lamina.embedding"(%arg0, %arg1) : (tensor<9x4xf32>, tensor<1x5xi64>) -> tensor<1x5x4xf32>
// CHECK-NEXT: %1 = "lamina.add"(%arg2, %0) : (tensor<3x5x4xf32>, tensor<1x5x4xf32>) -> tensor<3x5x4xf32>
// CHECK-NEXT: return %1
func.func @positions(%w: tensor<9x4xf32>, %i: tensor<1x5xi64>, %x: tensor<3x5x4xf32>) -> tensor<3x5x4xf32> {
  %0 = "lamina.expand"(%i) {shape = ["3", "5"]} : (tensor<1x5xi64>) -> tensor<3x5xi64>
  %1 = "lamina.embedding"(%w, %0) : (tensor<9x4xf32>, tensor<3x5xi64>) -> tensor<3x5x4xf32>
  %2 = "lamina.add"(%x, %1) : (tensor<3x5x4xf32>, tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
  return %2 : tensor<3x5x4xf32>
}

// -----

// A mask that torch has made of bools, the same for all queries, is made once a key; one of every query stays.
// CHECK-LABEL: @masks
// CHECK: %[[M:.*]] = "lamina.where"(%arg1, %{{.*}}, %{{.*}}) : (tensor<2x1x1x5xi1>, tensor<f32>, tensor<f32>) -> tensor<2x1x1x5xf32>
// CHECK: %[[A:.*]]:2 = "lamina.attention"(%arg0, %arg0, %arg0, %[[M]])
// CHECK: "lamina.attention"(%[[A]]#0, %arg0, %arg0, %arg2)
func.func @masks(%q: tensor<2x3x5x4xf32>, %keep: tensor<2x1x1x5xi1>, %bias: tensor<5x5xf32>) -> tensor<2x3x5x4xf32> {
  %zero = "lamina.full"() {shape = [], value = 0.0 : f64, dtype = f32} : () -> tensor<f32>
  %least = "lamina.full"() {shape = [], value = -65504.0 : f64, dtype = f32} : () -> tensor<f32>
  %0 = "lamina.expand"(%keep) {shape = ["2", "1", "5", "5"]} : (tensor<2x1x1x5xi1>) -> tensor<2x1x5x5xi1>
  %1 = "lamina.where"(%0, %zero, %least) : (tensor<2x1x5x5xi1>, tensor<f32>, tensor<f32>) -> tensor<2x1x5x5xf32>
  %2 = "lamina.expand"(%1) {shape = ["2", "3", "5", "5"]} : (tensor<2x1x5x5xf32>) -> tensor<2x3x5x5xf32>
  %3:2 = "lamina.attention"(%q, %q, %q, %2) {causal = false, gqa = 1 : i64, scale = 0.5 : f64} : (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>, tensor<2x3x5x5xf32>) -> (tensor<2x3x5x4xf32>, tensor<2x3x5xf32>)
  %4:2 = "lamina.attention"(%3#0, %q, %q, %bias) {causal = false, gqa = 1 : i64, scale = 0.5 : f64} : (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>, tensor<5x5xf32>) -> (tensor<2x3x5x4xf32>, tensor<2x3x5xf32>)
  return %4#0 : tensor<2x3x5x4xf32>
}
