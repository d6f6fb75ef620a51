// RUN: lamina opt %s --passes "lamina-overlap-launches" | filecheck %s

// Stages wait first and then let the next launch begin. What a stage only reads, also through casts, may not be loaded as
// constant: it has no `noalias`. The launcher learns it from the stages' text.
// CHECK: gpu.module @k attributes {lamina.stages = "{\22name\22: \22k\22, {{.*}}, \22overlaps\22: true}"}
// CHECK: gpu.func @k_0(%{{.*}}: memref<8xf32> {llvm.align = 16 : i64}, %{{.*}}: memref<8xf32> {llvm.noalias}) kernel {
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK: gpu.func @k_1(%{{.*}}: memref<8xf32>, %{{.*}}: memref<8xf32> {llvm.noalias}) kernel {
// CHECK-NEXT: nvvm.griddepcontrol wait
gpu.module @k attributes {lamina.stages = "{\"name\": \"k\", \"stages\": [{\"name\": \"k_0\", \"grid\": [\"1024\", \"1\", \"1\"]}, {\"name\": \"k_1\", \"grid\": [\"min(512, sms)\", \"2\", \"1\"]}]}"} {
  gpu.func @k_0(%x: memref<8xf32> {llvm.align = 16 : i64, llvm.noalias}, %y: memref<8xf32> {llvm.noalias}) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<8xf32>
    memref.store %v, %y[%i] : memref<8xf32>
    gpu.return
  }
  gpu.func @k_1(%x: memref<8xf32> {llvm.noalias}, %y: memref<8xf32> {llvm.noalias}) kernel {
    %i = gpu.thread_id x
    %a = memref.cast %x : memref<8xf32> to memref<?xf32>
    %v = memref.load %a[%i] : memref<?xf32>
    %b = memref.cast %y : memref<8xf32> to memref<?xf32>
    memref.store %v, %b[%i] : memref<?xf32>
    gpu.return
  }
}

// -----

// A stage that says where it waits does so there: what comes before overlaps with the launch before it.
// CHECK-LABEL: gpu.func @late_0
// CHECK-NEXT: gpu.barrier
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK-NEXT: gpu.return
gpu.module @late attributes {lamina.stages = "{\"name\": \"late\", \"stages\": [{\"name\": \"late_0\", \"grid\": [\"1\", \"1\", \"1\"]}]}"} {
  gpu.func @late_0() kernel {
    gpu.barrier
    nvvm.griddepcontrol wait
    gpu.return
  }
}

// -----

// Of many blocks, or of who knows how many, the last ones let the next launch in before they end.
// CHECK-LABEL: gpu.func @many_0
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK-NEXT: %[[at:.*]] = gpu.block_id x
// CHECK-NEXT: %[[count:.*]] = gpu.grid_dim x
// CHECK-NEXT: %[[left:.*]] = arith.subi %[[count]], %[[at]] : index
// CHECK-NEXT: %[[last:.*]] = arith.constant 1024 : index
// CHECK-NEXT: %[[among:.*]] = arith.cmpi ule, %[[left]], %[[last]] : index
// CHECK-NEXT: scf.if %[[among]] {
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK-NEXT: }
// CHECK-NEXT: gpu.return
// CHECK-LABEL: gpu.func @many_1
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK-DAG: %[[y:.*]] = gpu.block_id y
// CHECK-DAG: %[[x:.*]] = gpu.block_id x
// CHECK-DAG: %[[columns:.*]] = gpu.grid_dim x
// CHECK: %[[before:.*]] = arith.muli %[[y]], %[[columns]] : index
// CHECK: arith.addi %[[before]], %[[x]] : index
// CHECK: scf.if
gpu.module @many attributes {lamina.stages = "{\"name\": \"many\", \"stages\": [{\"name\": \"many_0\", \"grid\": [\"1025\", \"1\", \"1\"]}, {\"name\": \"many_1\", \"grid\": [\"s0\", \"2\", \"1\"]}]}"} {
  gpu.func @many_0() kernel {
    gpu.return
  }
  gpu.func @many_1() kernel {
    gpu.return
  }
}

// -----

// What has no stages is no kernel of ours.
// CHECK-LABEL: gpu.func @other_0
// CHECK-NEXT: gpu.return
gpu.module @other {
  gpu.func @other_0() kernel {
    gpu.return
  }
}
