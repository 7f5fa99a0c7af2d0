#!/usr/bin/env bash
# usage: run.sh ARCH TRIPLE SOURCE BUILD     builds the core for another architecture and runs its conformance tests under qemu-user
set -euo pipefail
arch=$1 triple=$2 source=$3 build=$4
for tool in "$triple-g++" "qemu-$arch-static"; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
cmake -S "$source" -B "$build" -G Ninja -DRIDGE_CORE_ONLY=ON -DRIDGE_CUDA=OFF -DCMAKE_UNITY_BUILD=ON \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$arch" -DCMAKE_CXX_COMPILER="$triple-g++" -DCMAKE_C_COMPILER="$triple-gcc" \
  >"$build.configure.log" 2>&1 || { cat "$build.configure.log"; exit 1; }
ninja -C "$build" test_formats test_conformance
# The cross compiler's own folder holds the target's C library; the largest processor that qemu knows has the most ISAs.
emulate=("qemu-$arch-static" -cpu max -L "/usr/$triple")
"${emulate[@]}" "$build/tests/test_formats" --gtest_brief=1
# What an emulator gets through in seconds; the rest of the conformance suite takes it many minutes.
"${emulate[@]}" "$build/tests/test_conformance" --gtest_brief=1 --gtest_filter='AddNorm.*:HeadNorm.*:RopeStore.*:RopeAngles.*:Activate.*:GatherRows.*:ScaleCap.*:Embed.*:Matmul.ThreeWeights*:Matmul.Transposed*:Matmul.PublishedNvfp4*'
