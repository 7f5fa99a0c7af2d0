// How the matmul for many tokens goes (kernels/matmul/gemm.cu): by blocks of 64, 128, 184 or 192 tokens, with all chains of their rows' inputs or with one at a time. All give the same bits.
#pragma once

namespace ridge::cuda {

struct GemmWay {
  int tokens = 0;                            // 0: what takes least time
  bool by_chain = false;
};

}  // namespace ridge::cuda
