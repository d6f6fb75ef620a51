// RUN: lamina opt %s --passes lamina-form-kernels | filecheck %s

// An epilogue joins its matmul, also with a residual.
// CHECK-LABEL: @epilogue
// CHECK: "lamina.linear"{{.*}}lamina.kernel = 0
// CHECK: "lamina.gelu"{{.*}}lamina.kernel = 0
// CHECK: "lamina.add"{{.*}}lamina.kernel = 0
func.func @epilogue(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %0 = "lamina.linear"(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = "lamina.gelu"(%0) {approximate = "none"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = "lamina.add"(%1, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// -----

// What feeds a row op, the row op and what follows are one kernel, though the first value is stored as well.
// CHECK-LABEL: @rows
// CHECK: "lamina.add"{{.*}}lamina.kernel = 0
// CHECK: "lamina.layer_norm"{{.*}}lamina.kernel = 0
// CHECK: "lamina.tanh"{{.*}}lamina.kernel = 0
// CHECK: "lamina.sum"{{.*}}lamina.kernel = 0
// CHECK: "lamina.neg"{{.*}}lamina.kernel = 0
func.func @rows(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>) {
  %0 = "lamina.add"(%x, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %1:3 = "lamina.layer_norm"(%0) {dims = 1 : i64, eps = 1.0e-05 : f64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>)
  %2 = "lamina.tanh"(%1#0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = "lamina.sum"(%2) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<4x8xf32>) -> tensor<4xf32>
  %4 = "lamina.neg"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %2, %4 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>
}

// -----

// A transposed value is another space: it is computed inside its only reader, but stored for two.
// CHECK-LABEL: @transposed
// CHECK: "lamina.exp"(%arg0) {lamina.kernel = 1
// CHECK: "lamina.add"{{.*}}lamina.kernel = 1
// CHECK: "lamina.tanh"(%arg0) {lamina.kernel = 0
// CHECK: "lamina.mul"{{.*}}lamina.kernel = 1
func.func @transposed(%x: tensor<8x4xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>) {
  %0 = "lamina.exp"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = "lamina.permute"(%0) {dims = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %2 = "lamina.add"(%1, %y) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = "lamina.tanh"(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %4 = "lamina.permute"(%3) {dims = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %5 = "lamina.mul"(%4, %2) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2, %5, %3 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>
}

// -----

// A sum over rows that are not contiguous does not store what it sums up.
// CHECK-LABEL: @columns
// CHECK: "lamina.relu"{{.*}}lamina.kernel = 0
// CHECK: "lamina.sum"{{.*}}lamina.kernel = 1
func.func @columns(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %0 = "lamina.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "lamina.sum"(%0) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4x8xf32>) -> tensor<8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<8xf32>
}

// -----

// A matmul takes its operands from memory; cheap ops on inputs with two readers are computed in both.
// CHECK-LABEL: @producers
// CHECK: "lamina.exp"{{.*}}lamina.kernel = 0
// CHECK: "lamina.matmul"{{.*}}lamina.kernel = 1
// CHECK: "lamina.neg"(%arg1) :
// CHECK: "lamina.add"{{.*}}lamina.kernel = 1
// CHECK: "lamina.sum"{{.*}}lamina.kernel = 2
func.func @producers(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>) {
  %0 = "lamina.exp"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "lamina.matmul"(%0, %y) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "lamina.neg"(%y) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "lamina.add"(%1, %2) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %4 = "lamina.sum"(%2) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4x4xf32>) -> tensor<4xf32>
  return %3, %4 : tensor<4x4xf32>, tensor<4xf32>
}

// -----

// No cycle: the second exp needs the reduction between them, which needs the first.
// CHECK-LABEL: @no_cycle
// CHECK: "lamina.exp"(%arg0) {lamina.kernel = 0
// CHECK: "lamina.sum"{{.*}}lamina.kernel = 1
// CHECK: "lamina.add"{{.*}}lamina.kernel = 2
func.func @no_cycle(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = "lamina.exp"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "lamina.sum"(%0) {dims = array<i64: 0>, keepdim = true, dtype = f32} : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %2 = "lamina.add"(%0, %1) : (tensor<4x8xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
  return %0, %2 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Sums over the rows of two tensors join where a quotient reads both, once a row; sums along columns have no such place.
// CHECK-LABEL: @quotient
// CHECK: "lamina.sum"(%arg0) {{{.*}}lamina.kernel = 0
// CHECK: "lamina.sum"(%arg1) {{{.*}}lamina.kernel = 0
// CHECK: "lamina.div"{{.*}}lamina.kernel = 0
// CHECK: "lamina.sum"(%arg0) {{{.*}}lamina.kernel = 1
// CHECK: "lamina.sum"(%arg1) {{{.*}}lamina.kernel = 2
// CHECK: "lamina.div"{{.*}}lamina.kernel = 2
func.func @quotient(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  %0 = "lamina.sum"(%x) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "lamina.sum"(%y) {dims = array<i64: 1>, keepdim = false, dtype = f32} : (tensor<4x8xf32>) -> tensor<4xf32>
  %2 = "lamina.div"(%0, %1) {rounding = "none"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "lamina.sum"(%x) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4x8xf32>) -> tensor<8xf32>
  %4 = "lamina.sum"(%y) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<4x8xf32>) -> tensor<8xf32>
  %5 = "lamina.div"(%3, %4) {rounding = "none"} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %2, %5 : tensor<4xf32>, tensor<8xf32>
}

// -----

// Most emitters of attention store its result as it is: a copy in another order is a kernel of its own.
// CHECK-LABEL: @turned
// CHECK: "lamina.attention"(%{{.*}}) {{.*}}lamina.kernel = 0
// CHECK: "lamina.materialize"(%{{.*}}) {lamina.kernel = 1 : i64}
func.func @turned(%q: tensor<1x4x8x16xf32>) -> tensor<8x1x4x16xf32> {
  %y, %lse = "lamina.attention"(%q, %q, %q) {causal = false, gqa = 1 : i64, scale} : (tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> (tensor<1x4x8x16xf32>, tensor<1x4x8xf32>)
  %0 = "lamina.permute"(%y) {dims = array<i64: 2, 0, 1, 3>} : (tensor<1x4x8x16xf32>) -> tensor<8x1x4x16xf32>
  %1 = "lamina.materialize"(%0) : (tensor<8x1x4x16xf32>) -> tensor<8x1x4x16xf32>
  return %1 : tensor<8x1x4x16xf32>
}

// -----

// Logits are stored as they are, in bf16: the softmax casts what it reads.
// CHECK-LABEL: func.func @logits
// CHECK: lamina.linear{{.*}}lamina.kernel = 0
// CHECK: "lamina.cast"(%0) {dtype = f32}
// CHECK: lamina.log_softmax{{.*}}lamina.kernel = 1
func.func @logits(%x: tensor<16x64xbf16>, %w: tensor<100x64xbf16>) -> tensor<15x100xf32> {
  %0 = "lamina.linear"(%x, %w) : (tensor<16x64xbf16>, tensor<100x64xbf16>) -> tensor<16x100xbf16>
  %1 = "lamina.cast"(%0) {dtype = f32} : (tensor<16x100xbf16>) -> tensor<16x100xf32>
  %2 = "lamina.slice"(%1) {starts = ["0", "0"], sizes = ["15", "100"], steps = array<i64: 1, 1>} : (tensor<16x100xf32>) -> tensor<15x100xf32>
  %3 = "lamina.log_softmax"(%2) {dim = 1 : i64} : (tensor<15x100xf32>) -> tensor<15x100xf32>
  return %3 : tensor<15x100xf32>
}

// -----

// The gradient that a norm gets is stored as the product rounds it, not thrice in f32: what it is multiplied by is in the kernel of
// the mean along rows, and in that of the sum over rows.
// CHECK-LABEL: func.func @gradient
// CHECK: lamina.linear{{.*}}lamina.kernel = 0
// CHECK: "lamina.cast"(%0) {dtype = f32}
// CHECK: lamina.mul{{.*}}lamina.kernel = 1
// CHECK: lamina.mean{{.*}}lamina.kernel = 1
// CHECK: lamina.sub{{.*}}lamina.kernel = 1
// CHECK: lamina.sum{{.*}}lamina.kernel = 2
func.func @gradient(%x: tensor<16x64xbf16>, %w: tensor<100x64xbf16>, %v: tensor<100xf32>) -> (tensor<16x100xf32>, tensor<100xf32>) {
  %0 = "lamina.linear"(%x, %w) : (tensor<16x64xbf16>, tensor<100x64xbf16>) -> tensor<16x100xbf16>
  %1 = "lamina.cast"(%0) {dtype = f32} : (tensor<16x100xbf16>) -> tensor<16x100xf32>
  %2 = "lamina.mul"(%1, %v) : (tensor<16x100xf32>, tensor<100xf32>) -> tensor<16x100xf32>
  %3 = "lamina.mean"(%2) {dims = array<i64: 1>, keepdim = true} : (tensor<16x100xf32>) -> tensor<16x1xf32>
  %4 = "lamina.sub"(%2, %3) : (tensor<16x100xf32>, tensor<16x1xf32>) -> tensor<16x100xf32>
  %5 = "lamina.sum"(%1) {dims = array<i64: 0>, keepdim = false, dtype = f32} : (tensor<16x100xf32>) -> tensor<100xf32>
  return %4, %5 : tensor<16x100xf32>, tensor<100xf32>
}

// -----

// An activation between two casts stays in the epilogue, whatever reads its result.
// CHECK-LABEL: func.func @activation
// CHECK: lamina.linear{{.*}}lamina.kernel = 0
// CHECK: lamina.cast{{.*}}lamina.kernel = 0
// CHECK: lamina.tanh{{.*}}lamina.kernel = 0
// CHECK: lamina.cast{{.*}}lamina.kernel = 0
// CHECK: lamina.softmax{{.*}}lamina.kernel = 1
func.func @activation(%x: tensor<16x64xbf16>, %w: tensor<100x64xbf16>) -> tensor<16x100xbf16> {
  %0 = "lamina.linear"(%x, %w) : (tensor<16x64xbf16>, tensor<100x64xbf16>) -> tensor<16x100xbf16>
  %1 = "lamina.cast"(%0) {dtype = f32} : (tensor<16x100xbf16>) -> tensor<16x100xf32>
  %2 = "lamina.tanh"(%1) : (tensor<16x100xf32>) -> tensor<16x100xf32>
  %3 = "lamina.cast"(%2) {dtype = bf16} : (tensor<16x100xf32>) -> tensor<16x100xbf16>
  %4 = "lamina.softmax"(%3) {dim = 1 : i64} : (tensor<16x100xbf16>) -> tensor<16x100xbf16>
  return %4 : tensor<16x100xbf16>
}

// -----

// A residual stream is stored in its own type, not beside itself in that of the norm that reads it.
// CHECK-LABEL: func.func @residual_norm
// CHECK: lamina.linear{{.*}}lamina.kernel = 0
// CHECK: lamina.add{{.*}}lamina.kernel = 0
// CHECK: "lamina.cast"(%1) {dtype = f32}
// CHECK: lamina.rms_norm{{.*}}lamina.kernel = 1
func.func @residual_norm(%x: tensor<16x64xbf16>, %w: tensor<100x64xbf16>, %r: tensor<16x100xbf16>) -> (tensor<16x100xbf16>, tensor<16x100xf32>) {
  %0 = "lamina.linear"(%x, %w) : (tensor<16x64xbf16>, tensor<100x64xbf16>) -> tensor<16x100xbf16>
  %1 = "lamina.add"(%r, %0) : (tensor<16x100xbf16>, tensor<16x100xbf16>) -> tensor<16x100xbf16>
  %2 = "lamina.cast"(%1) {dtype = f32} : (tensor<16x100xbf16>) -> tensor<16x100xf32>
  %3 = "lamina.rms_norm"(%2) {dims = 1 : i64, eps = 1.0e-05 : f64} : (tensor<16x100xf32>) -> tensor<16x100xf32>
  return %1, %3 : tensor<16x100xbf16>, tensor<16x100xf32>
}
